/* breaker.c - see breaker.h. */
#include "gateway/breaker.h"

#include "base/err.h"

void breaker_init(struct breaker *b, int failures_max, uint64_t open_ms)
{
    ASSERT(failures_max >= 1);
    *b = (struct breaker){.failures_max = failures_max, .open_ms = open_ms};
}

bool breaker_allow(struct breaker *b, uint64_t now_ms)
{
    if (!b->open_until_ms) return true;
    if (now_ms < b->open_until_ms) return false;
    if (b->probe_at_ms && now_ms - b->probe_at_ms < b->open_ms) return false;
    b->probe_at_ms = now_ms ? now_ms : 1;
    return true;
}

/* --- what was seen lately */
static void note(struct breaker *b, enum breaker_end end, struct breaker_call by, uint64_t now_ms)
{
    b->marks[b->n_marks++ % BREAKER_SAMPLES_MAX] = (struct breaker_mark){by, end, now_ms};
}

static const struct breaker_mark *mark_at(const struct breaker *b, uint64_t i)
{
    return &b->marks[i % BREAKER_SAMPLES_MAX];
}

/* The first mark that is still known and not before from. */
static uint64_t first_mark(const struct breaker *b, uint64_t from)
{
    uint64_t known = b->n_marks > BREAKER_SAMPLES_MAX ? b->n_marks - BREAKER_SAMPLES_MAX : 0;
    return from > known ? from : known;
}

/* Has the request of mark i met the same end before, from mark `from` on? */
static bool is_repeat(const struct breaker *b, uint64_t from, uint64_t i)
{
    const struct breaker_mark *m = mark_at(b, i);
    for (uint64_t k = from; k < i && m->by.request; k++)
        if (mark_at(b, k)->by.request == m->by.request && mark_at(b, k)->end == m->end) return true;
    return false;
}

static uint32_t tenant_of(const struct breaker_mark *m)
{
    return m->by.tenant;
}
static uint32_t model_of(const struct breaker_mark *m)
{
    return m->by.model;
}

/* Leaving out the one (tenant, or model) that has met most failures: are the others served well? */
static bool others_served(const struct breaker *b, uint32_t (*of)(const struct breaker_mark *),
                          uint64_t now_ms)
{
    uint64_t from = first_mark(b, 0);
    uint32_t worst = 0;
    int most = 0, well = 0, others = 0;
    while (from < b->n_marks && now_ms - mark_at(b, from)->at_ms > BREAKER_OTHERS_MS)
        from++;
    for (uint64_t i = from; i < b->n_marks; i++) {
        int n = 0;
        for (uint64_t k = from; k < b->n_marks; k++)
            n += mark_at(b, k)->end != BREAKER_WELL && of(mark_at(b, k)) == of(mark_at(b, i));
        if (n > most) most = n, worst = of(mark_at(b, i));
    }
    for (uint64_t i = from; i < b->n_marks; i++) {
        const struct breaker_mark *m = mark_at(b, i);
        if (!of(m) || of(m) == worst) continue;
        others++;
        well += m->end == BREAKER_WELL;
    }
    return worst && well * 2 > others;
}

static bool is_theirs_alone(const struct breaker *b, uint64_t now_ms)
{
    return others_served(b, tenant_of, now_ms) || others_served(b, model_of, now_ms);
}

/* --- what is told */
void breaker_success(struct breaker *b)
{
    b->failures = 0;
    b->row_from = b->n_marks;
    b->open_until_ms = 0;
    b->probe_at_ms = 0;
}

void breaker_probed(struct breaker *b)
{
    bool calls_fail = b->n_marks > b->row_from && mark_at(b, b->n_marks - 1)->by.request;
    if (b->open_until_ms || !calls_fail) breaker_success(b);
}

void breaker_failure(struct breaker *b, struct breaker_call by, uint64_t now_ms)
{
    note(b, BREAKER_BROKEN, by, now_ms);
    bool again = is_repeat(b, first_mark(b, b->row_from), b->n_marks - 1);
    if (b->failures < b->failures_max && !again) b->failures++;
    bool was_probe = b->open_until_ms && b->probe_at_ms;
    bool too_many = b->failures >= b->failures_max &&
                    (b->open_until_ms || !by.request || !is_theirs_alone(b, now_ms));
    b->probe_at_ms = 0;
    if (was_probe || too_many) b->open_until_ms = now_ms + b->open_ms;
}

void breaker_sample(struct breaker *b, bool well, struct breaker_call by, uint64_t now_ms)
{
    int bad = 0, n = 0;
    if (b->open_until_ms) return;
    note(b, well ? BREAKER_WELL : BREAKER_ERRED, by, now_ms);
    if (well || b->error_percent <= 0) return;
    uint64_t from = first_mark(b, b->samples_from);
    for (uint64_t i = from; i < b->n_marks; i++) {
        if (mark_at(b, i)->end == BREAKER_BROKEN || is_repeat(b, from, i)) continue;
        bad += mark_at(b, i)->end == BREAKER_ERRED;
        n++;
    }
    if (n < BREAKER_SAMPLES_MIN || bad * 100 < b->error_percent * n) return;
    if (is_theirs_alone(b, now_ms)) return;
    b->samples_from = b->n_marks; /* what comes after the pause is judged by itself */
    b->probe_at_ms = 0;
    b->open_until_ms = now_ms + b->open_ms;
}

void breaker_forget(struct breaker *b)
{
    b->probe_at_ms = 0;
}

bool breaker_is_open(const struct breaker *b)
{
    return b->open_until_ms != 0;
}

uint64_t breaker_wait_ms(const struct breaker *b, uint64_t now_ms)
{
    if (!b->open_until_ms) return 0;
    if (now_ms < b->open_until_ms) return b->open_until_ms - now_ms;
    if (!b->probe_at_ms || now_ms - b->probe_at_ms >= b->open_ms) return 0;
    return b->open_ms - (now_ms - b->probe_at_ms);
}
