/* device.h - the CUDA device, for backend_register. */
#ifndef DEJA_ENGINE_BACKEND_CUDA_DEVICE_H
#define DEJA_ENGINE_BACKEND_CUDA_DEVICE_H
#ifdef __cplusplus
extern "C" {
#endif
struct device_ops;
extern const struct device_ops cuda_device;
#ifdef __cplusplus
}
#endif
#endif
