/* tally.c - see tally.h. */
#include "gateway/tally.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const names[N_TALLY_FIELDS] = {
    [TALLY_REQUESTS] = "requests",
    [TALLY_EXACT] = "exact",
    [TALLY_SEMANTIC] = "semantic",
    [TALLY_STALE] = "stale",
    [TALLY_COALESCED] = "coalesced",
    [TALLY_FOLLOWED] = "followed",
    [TALLY_MISS] = "miss",
    [TALLY_BYPASS] = "bypass",
    [TALLY_ERRORS] = "errors",
    [TALLY_NEAR] = "near",
    [TALLY_PROMPT_ASKED] = "prompt_asked",
    [TALLY_COMPLETION_ASKED] = "completion_asked",
    [TALLY_PROMPT_SAVED] = "prompt_saved",
    [TALLY_COMPLETION_SAVED] = "completion_saved",
    [TALLY_SHADOWED] = "shadowed",
    [TALLY_CHECKED] = "checked",
    [TALLY_WRONG] = "wrong",
    [TALLY_JUDGED] = "judged",
    [TALLY_APPROVED] = "approved",
    [TALLY_VETOED] = "vetoed",
};

struct tally_row *tally_at(struct tally *t, const char *ns, const char *arm)
{
    for (int i = 0; i < t->n_rows; i++)
        if (!strcmp(t->rows[i].ns, ns) && !strcmp(t->rows[i].arm, arm)) return &t->rows[i];
    bool full = t->n_rows == TALLY_ROWS_MAX - 1; /* the last one is for the rest */
    if (t->n_rows == TALLY_ROWS_MAX) return &t->rows[TALLY_ROWS_MAX - 1];
    struct tally_row *r = &t->rows[t->n_rows++];
    memset(r, 0, sizeof *r);
    snprintf(r->ns, sizeof r->ns, "%s", full ? "(others)" : ns);
    snprintf(r->arm, sizeof r->arm, "%s", full ? "" : arm);
    return r;
}

void tally_latency(struct tally_row *r, double ms)
{
    double i = ms > 0.05 ? ceil(4 * log2(ms / 0.05)) : 0;
    r->buckets[i < TALLY_BUCKETS ? (size_t)i : TALLY_BUCKETS - 1]++;
}

static void add(struct buf *out, size_t *n_args, const char *text)
{
    buf_add(out, text, strlen(text) + 1);
    ++*n_args;
}

static void add_number(struct buf *out, size_t *n_args, uint64_t v)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, v);
    add(out, n_args, text);
}

static void take_row(const struct tally_row *r, struct buf *out, size_t *n_args)
{
    uint64_t n = 0;
    char name[24];
    for (int i = 0; i < N_TALLY_FIELDS; i++)
        n += r->counts[i] != 0;
    for (int i = 0; i < TALLY_BUCKETS; i++)
        n += r->buckets[i] != 0;
    add(out, n_args, r->ns);
    add(out, n_args, r->arm);
    add_number(out, n_args, n);
    for (int i = 0; i < N_TALLY_FIELDS; i++) {
        if (!r->counts[i]) continue;
        add(out, n_args, names[i]);
        add_number(out, n_args, r->counts[i]);
    }
    for (int i = 0; i < TALLY_BUCKETS; i++) {
        if (!r->buckets[i]) continue;
        snprintf(name, sizeof name, "l%d", i);
        add(out, n_args, name);
        add_number(out, n_args, r->buckets[i]);
    }
}

void tally_take(struct tally *t, struct buf *out, size_t *n_args)
{
    *n_args = 0;
    add_number(out, n_args, (uint64_t)t->n_rows);
    for (int i = 0; i < t->n_rows; i++)
        take_row(&t->rows[i], out, n_args);
    t->n_rows = 0;
}
