/* cpu.h - what the files of one instruction set give each other; the tables themselves are in room.h. */
#ifndef DEJA_ENGINE_BACKEND_CPU_CPU_H
#define DEJA_ENGINE_BACKEND_CPU_CPU_H
#include "engine/backend/room.h"

/* rows_*.c and attend_*.c; struct kernels says what each does */
#define DECLARE_ISA(isa)                                                                           \
    void act_##isa(const struct act_in *in, const struct act_row *out, float *tmp);                \
    void rmsnorm_##isa(const float *x, const float *weight, float eps, int n, float *out);         \
    void layernorm_##isa(const float *x, const float *add, const struct layernorm *p, int n,       \
                         float *out);                                                              \
    void rope_##isa(const struct rope_row *r, const float *x, float *out);                         \
    void to_f16_##isa(const float *x, uint16_t *out, int n);                                       \
    uint16_t to_i8_##isa(const float *x, int8_t *out, int n);                                      \
    void to_u4_##isa(const float *x, uint8_t *out, int n, uint16_t *scale, uint16_t *min);         \
    float to_i16_##isa(const float *x, int16_t *out, int n);                                       \
    void attend_##isa(const struct attend *a);
DECLARE_ISA(avx2)
DECLARE_ISA(avx512)

#endif
