/* batch_pace.c - see batch_pace.h. */
#include "gateway/batch_pace.h"

enum {
    DELAY_MAX_MS = 60000,
    ASKED_MAX_MS = 600000,
    AGAIN_MS = 500,
    AGAIN_MAX_MS = 30000,
    WEEK_S = 7 * 86400
};

static bool read_time(struct str s, int *out)
{
    int64_t h, m;
    if (s.n != 5 || s.p[2] != ':' || str_to_i64(str_sub(s, 0, 2), 0, 24, &h) != OK ||
        str_to_i64(str_sub(s, 3, 2), 0, 59, &m) != OK || h * 60 + m > 24 * 60)
        return false;
    *out = (int)(h * 60 + m) % (24 * 60);
    return true;
}

enum err batch_window_parse(struct batch_window *out, struct str text, struct errmsg *e)
{
    struct batch_window w = {0};
    struct str s = str_trim(text), until = s, from;
    *out = w;
    if (!s.n) return OK;
    if (str_ends(s, STR(" local"))) {
        w.local = true;
        until = s = str_trim(str_sub(s, 0, s.n - 6));
    }
    bool any = str_next(&until, '-', &from);
    if (!any || !read_time(str_trim(from), &w.from_min) ||
        !read_time(str_trim(until), &w.until_min))
        return err_set(e, ERR_INVALID,
                       "expected times of the day as in 22:00-06:00 (UTC) or 22:00-06:00 local, "
                       "not \"" STR_FMT "\"",
                       STR_ARG(str_sub(text, 0, 40)));
    *out = w;
    return OK;
}

bool batch_window_open(const struct batch_window *w, int minute_of_day)
{
    if (w->from_min == w->until_min) return true;
    if (w->from_min < w->until_min)
        return minute_of_day >= w->from_min && minute_of_day < w->until_min;
    return minute_of_day >= w->from_min || minute_of_day < w->until_min;
}

int batch_allowed(const struct batch_load *l)
{
    int least = l->minimum < l->concurrency ? l->minimum : l->concurrency;
    return l->window_open && l->online <= l->yield_above ? l->concurrency : least;
}

enum batch_verdict batch_verdict(int status, int tries, int tries_max, int waits)
{
    if (status / 100 == 2) return BATCH_GOOD;
    if (status == 429 || status == 503 || status == 529)
        return waits < BATCH_WAITS_MAX ? BATCH_WAIT : BATCH_BAD;
    bool may_pass = status < 400 || status == 408 || status == 409 || status == 499 ||
                    (status >= 500 && status != 501);
    return may_pass && tries + 1 < tries_max ? BATCH_RETRY : BATCH_BAD;
}

uint64_t batch_delay_ms(uint64_t first_ms, int attempt, uint64_t asked_ms, double chance)
{
    uint64_t ms = first_ms << (attempt < 16 ? attempt : 16);
    if (ms > DELAY_MAX_MS) ms = DELAY_MAX_MS;
    ms = ms / 2 + (uint64_t)((double)(ms / 2) * chance);
    if (asked_ms > ASKED_MAX_MS) asked_ms = ASKED_MAX_MS;
    /* those that were told the same time do not come back together */
    if (ms < asked_ms) ms = asked_ms + (uint64_t)((double)asked_ms * chance / 4);
    return ms;
}

uint64_t batch_again_ms(int refused, double chance)
{
    uint64_t ms = (uint64_t)AGAIN_MS << (refused < 16 ? refused : 16);
    if (ms > AGAIN_MAX_MS) ms = AGAIN_MAX_MS;
    return ms / 2 + (uint64_t)((double)(ms / 2) * chance);
}

enum err batch_duration_parse(struct str text, int64_t *out_s, struct errmsg *e)
{
    static const int64_t seconds[] = {1, 60, 3600, 86400};
    ptrdiff_t unit = text.n > 1 ? str_find_char(STR("smhd"), text.p[text.n - 1]) : -1;
    int64_t n = 0;
    if (unit < 0 || str_to_i64(str_sub(text, 0, text.n - 1), 1, WEEK_S / seconds[unit], &n) != OK)
        return err_set(e, ERR_INVALID, "expected 24h, or another time up to 7d (s, m, h, d)");
    *out_s = n * seconds[unit];
    return OK;
}
