/* trace.c - see trace.h. */
#include "gateway/trace.h"

#include <string.h>

static const char hex[] = "0123456789abcdef";

static bool is_hex(struct str s, size_t from, size_t n)
{
    for (size_t i = from; i < from + n; i++)
        if (!((s.p[i] >= '0' && s.p[i] <= '9') || (s.p[i] >= 'a' && s.p[i] <= 'f'))) return false;
    return true;
}

static bool is_zero(struct str s, size_t from, size_t n)
{
    for (size_t i = from; i < from + n; i++)
        if (s.p[i] != '0') return false;
    return true;
}

static uint8_t digit(char c)
{
    return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
}

/* VV-ID(32)-SPAN(16)-FF; a version above 00 may have more after another dash. */
static bool parses(struct str s)
{
    if (s.n < TRACE_PARENT_BYTES || s.p[2] != '-' || s.p[35] != '-' || s.p[52] != '-') return false;
    if (!is_hex(s, 0, 2) || !is_hex(s, 3, 32) || !is_hex(s, 36, 16) || !is_hex(s, 53, 2))
        return false;
    if (is_zero(s, 3, 32) || is_zero(s, 36, 16)) return false;
    if (s.p[0] == 'f' && s.p[1] == 'f') return false;
    bool first = is_zero(s, 0, 2);
    return s.n == TRACE_PARENT_BYTES || (!first && s.p[TRACE_PARENT_BYTES] == '-');
}

static void write_u64(uint64_t v, char out[17])
{
    for (int i = 15; i >= 0; i--, v >>= 4)
        out[i] = hex[v & 15];
    out[16] = 0;
}

void trace_begin(struct trace *t, struct str given, struct hash128 fresh, uint64_t span,
                 double sampled_percent)
{
    given = str_trim(given);
    t->given = parses(given);
    write_u64(span ? span : 1, t->span);
    if (t->given) {
        memcpy(t->id, given.p + 3, 32);
        t->id[32] = 0;
        t->flags = digit(given.p[54]) & TRACE_SAMPLED; /* of the others level 1 says: send 0 */
        return;
    }
    if (!fresh.lo) fresh.lo = 1;
    write_u64(fresh.hi, t->id);
    write_u64(fresh.lo, t->id + 16);
    double at = (double)(fresh.lo >> 11) * 0x1p-53 * 100;
    t->flags = at < sampled_percent ? TRACE_SAMPLED : 0;
}

void trace_write(const struct trace *t, char out[TRACE_PARENT_BYTES + 1])
{
    memcpy(out, "00-", 3);
    memcpy(out + 3, t->id, 32);
    out[35] = '-';
    memcpy(out + 36, t->span, 16);
    memcpy(out + 52, "-0", 2);
    out[54] = hex[t->flags & 15];
    out[55] = 0;
}
