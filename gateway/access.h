/* access.h - the one log line a request leaves at its end: who, what, how long, from where; never a word of its text or a key. */
#ifndef DEJA_GATEWAY_ACCESS_H
#define DEJA_GATEWAY_ACCESS_H
#include "gateway/exchange.h"

void access_line(const struct exchange *x, uint64_t now_us);

#endif
