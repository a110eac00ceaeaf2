/* cpu.h - what the files of one instruction set give each other; the tables themselves are in room.h. */
#ifndef DEJA_ENGINE_BACKEND_CPU_CPU_H
#define DEJA_ENGINE_BACKEND_CPU_CPU_H
#include "engine/backend/room.h"

void act_avx2(const struct act_in *in, const struct act_row *out, float *tmp);
void rmsnorm_avx2(const float *x, const float *weight, float eps, int n, float *out);
void layernorm_avx2(const float *x, const float *add, const struct layernorm *p, int n, float *out);
void rope_avx2(const struct rope_row *r, const float *x, float *out);
void to_f16_avx2(const float *x, uint16_t *out, int n);
uint16_t to_i8_avx2(const float *x, int8_t *out, int n);
void to_u4_avx2(const float *x, uint8_t *out, int n, uint16_t *scale, uint16_t *min);
float to_i16_avx2(const float *x, int16_t *out, int n);
void attend_avx2(const struct attend *a);

void act_avx512(const struct act_in *in, const struct act_row *out, float *tmp);
void rmsnorm_avx512(const float *x, const float *weight, float eps, int n, float *out);
void layernorm_avx512(const float *x, const float *add, const struct layernorm *p, int n,
                      float *out);
void rope_avx512(const struct rope_row *r, const float *x, float *out);
void to_f16_avx512(const float *x, uint16_t *out, int n);
uint16_t to_i8_avx512(const float *x, int8_t *out, int n);
void to_u4_avx512(const float *x, uint8_t *out, int n, uint16_t *scale, uint16_t *min);
float to_i16_avx512(const float *x, int16_t *out, int n);
void attend_avx512(const struct attend *a);

#endif
