/* clock.h - time. Pure files take time as an argument instead of calling these. Any thread. */
#ifndef DEJA_BASE_CLOCK_H
#define DEJA_BASE_CLOCK_H
#include <stdint.h>

uint64_t clock_ms(void);    /* monotonic milliseconds, never 0 */
uint64_t clock_us(void);    /* monotonic microseconds */
int64_t clock_wall_s(void); /* seconds since 1970-01-01 UTC */

#endif
