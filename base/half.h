/* half.h - numbers in 16 bits, as model files and stored vectors keep them: IEEE 754 binary16 and bfloat16. Pure. */
#ifndef DEJA_BASE_HALF_H
#define DEJA_BASE_HALF_H
#include <stdbool.h>
#include <stdint.h>

float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f); /* nearest even; overflow becomes infinity, NaN stays NaN */
bool f16_is_native(void);     /* has this CPU instructions for it (F16C of x86)? */
float bf16_to_f32(uint16_t h);
uint16_t f32_to_bf16(float f); /* nearest even; NaN stays NaN */

#endif
