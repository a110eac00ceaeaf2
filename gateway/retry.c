/* retry.c - see retry.h. The table of statuses is docs/upstreams.md's. */
#include "gateway/retry.h"

#include <string.h>

struct retry_policy retry_of_status(int status)
{
    if (status == 429) return (struct retry_policy){RETRY_ANYWHERE, TARGET_WELL, true};
    if (status == 503 || status == 529)
        return (struct retry_policy){RETRY_ANYWHERE, TARGET_ERRED, true};
    if (status == 408) return (struct retry_policy){RETRY_ELSEWHERE, TARGET_WELL, true};
    if (status == 501 || status == 505)
        return (struct retry_policy){RETRY_NO, TARGET_WELL, false}; /* about the request */
    if (status >= 500) return (struct retry_policy){RETRY_ELSEWHERE, TARGET_ERRED, true};
    return (struct retry_policy){RETRY_NO, TARGET_WELL, false};
}

struct retry_policy retry_of_end(enum err code)
{
    switch (code) {
    case ERR_UNAVAILABLE: /* nothing was sent */
        return (struct retry_policy){RETRY_ANYWHERE, TARGET_BROKEN, true};
    case ERR_TIMEOUT:
    case ERR_CLOSED:
    case ERR_CORRUPT:
        return (struct retry_policy){RETRY_ELSEWHERE, TARGET_BROKEN, true};
    case ERR_INVALID: /* the request could not even be written */
    case ERR_CANCELLED:
        return (struct retry_policy){RETRY_NO, TARGET_UNKNOWN, false};
    default:
        return (struct retry_policy){RETRY_NO, TARGET_BROKEN, true};
    }
}

/* --- Retry-After */
static bool digits(struct str s, size_t at, size_t n, int *out)
{
    if (at + n > s.n) return false;
    *out = 0;
    for (size_t i = at; i < at + n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9') return false;
        *out = *out * 10 + (s.p[i] - '0');
    }
    return true;
}

/* Days since 1970-01-01 of a Gregorian date; counts years from March, so that the leap day is the last. */
static int64_t days_of(int year, int month, int day)
{
    int y = month <= 2 ? year - 1 : year, m = (month + 9) % 12;
    return 365 * (int64_t)y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719468;
}

/* "Sun, 06 Nov 1994 08:49:37 GMT": the only form senders may still use (RFC 9110, 5.6.7). */
static bool date_of(struct str s, int64_t *unix_s)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    int day, year, hour, minute, second, month = 0;
    if (s.n != 29 || s.p[3] != ',' || !str_eqz(str_sub(s, 25, 4), " GMT")) return false;
    if (!digits(s, 5, 2, &day) || !digits(s, 12, 4, &year) || !digits(s, 17, 2, &hour) ||
        !digits(s, 20, 2, &minute) || !digits(s, 23, 2, &second))
        return false;
    for (int i = 0; i < 12; i++)
        if (!memcmp(s.p + 8, months + i * 3, 3)) month = i + 1;
    if (!month || day < 1 || day > 31 || year < 1970 || hour > 23 || minute > 59 || second > 60)
        return false;
    *unix_s = days_of(year, month, day) * 86400 + hour * 3600 + minute * 60 + second;
    return true;
}

bool retry_after_parse(struct str value, bool is_ms, int64_t now_unix_s, uint64_t *ms)
{
    double v;
    int64_t at;
    value = str_trim(value);
    if (!value.n) return false;
    if (str_to_f64(value, &v) == OK) {
        if (!is_ms) v *= 1000;
    } else if (!is_ms && date_of(value, &at)) {
        v = (double)(at - now_unix_s) * 1000;
    } else {
        return false;
    }
    if (!(v > 0)) v = 0;
    *ms = v < RETRY_AFTER_MAX_MS ? (uint64_t)v : RETRY_AFTER_MAX_MS;
    return true;
}

/* --- the budget */
static void refill(struct retry_budget *b, uint64_t now_ms)
{
    double more = now_ms > b->at_ms ? (double)(now_ms - b->at_ms) / 1000 * BUDGET_RESERVE / 10 : 0;
    b->at_ms = now_ms;
    if (b->tokens < BUDGET_RESERVE) /* time alone gives back no more than the reserve */
        b->tokens = b->tokens + more < BUDGET_RESERVE ? b->tokens + more : BUDGET_RESERVE;
}

void retry_budget_init(struct retry_budget *b, double percent, uint64_t now_ms)
{
    *b = (struct retry_budget){.percent = percent, .tokens = BUDGET_RESERVE, .at_ms = now_ms};
}

void retry_budget_request(struct retry_budget *b, uint64_t now_ms)
{
    refill(b, now_ms);
    b->tokens += b->percent / 100;
    if (b->tokens > BUDGET_MAX) b->tokens = BUDGET_MAX;
}

bool retry_budget_take(struct retry_budget *b, uint64_t now_ms)
{
    refill(b, now_ms);
    if (b->percent <= 0 || b->tokens < 1) return false;
    b->tokens -= 1;
    return true;
}
