/* limit_wire.c - see limit_wire.h. */
#include "gateway/limit_wire.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"

enum { FIXED = 13 }; /* integers of an answer before those of the buckets */

void limit_wire_id(char out[LIMIT_ID_BYTES], uint64_t a, uint64_t b)
{
    hash_hex((struct hash128){a, b}, out);
}

static void add(struct limit_args *out, struct str s)
{
    ASSERT(out->n < LIMIT_ARGS_MAX);
    out->v[out->n++] = s;
}

static void add_number(struct limit_args *out, double v)
{
    char *text = out->text[out->n];
    snprintf(text, sizeof out->text[0], "%.15g", v);
    add(out, str_of(text));
}

static void begin(struct limit_args *out, const char *key, const char *what)
{
    out->n = 0;
    add(out, STR("FCALL"));
    add(out, STR("deja_limit"));
    add(out, STR("1"));
    add(out, str_of(key));
    add(out, str_of(what));
}

void limit_wire_reserve(struct limit_args *out, const char *key, const char *id, bool force,
                        int lease_ms, const struct limit_plan *p, struct limit_amounts a)
{
    begin(out, key, "reserve");
    add(out, str_of(id));
    add(out, force ? STR("force") : STR("-"));
    add_number(out, lease_ms);
    add_number(out, a.tokens);
    add_number(out, a.cost);
    add_number(out, p->n);
    for (int i = 0; i < p->n; i++) {
        const struct limit_bucket *b = &p->buckets[i];
        add(out, str_of(b->name));
        add(out, b->shadow ? STR("1") : STR("0"));
        for (int k = 0; k < N_LIMIT_KINDS; k++)
            add_number(out, b->limit[k]);
    }
}

void limit_wire_settle(struct limit_args *out, const char *key, const char *id,
                       struct limit_amounts used, double saved)
{
    begin(out, key, "settle");
    add(out, str_of(id));
    add_number(out, used.tokens);
    add_number(out, used.cost);
    add_number(out, saved);
}

static struct limit_view view_of(const struct redis_reply *items)
{
    return (struct limit_view){.limit = (double)items[0].integer,
                               .left = (double)items[1].integer,
                               .full_ms = items[2].integer};
}

static bool in_range(int64_t v, int64_t most)
{
    return v >= 0 && v <= most;
}

bool limit_wire_read(const struct redis_reply *reply, int n, struct limit_verdict *out,
                     double *left)
{
    if (!reply || reply->kind != REDIS_ARRAY || reply->n_items != (size_t)(FIXED + n)) return false;
    const struct redis_reply *r = reply->items;
    for (size_t i = 0; i < reply->n_items; i++)
        if (r[i].kind != REDIS_INTEGER) return false;
    bool fits = in_range(r[1].integer, N_LIMIT_KINDS) && in_range(r[2].integer, n) &&
                in_range(r[5].integer, N_LIMIT_KINDS) && in_range(r[6].integer, n) &&
                (r[0].integer || (r[1].integer && r[2].integer)) && !r[5].integer == !r[6].integer;
    if (!fits) return false;
    bool money = r[1].integer > LIMIT_BUDGET_DAY;
    *out = (struct limit_verdict){.allowed = r[0].integer != 0,
                                  .kind = (int)r[1].integer - 1,
                                  .bucket = (int)r[2].integer - 1,
                                  .used = (double)r[3].integer / (money ? 1e6 : 1),
                                  .retry_ms = r[4].integer,
                                  .shadow_kind = (int)r[5].integer - 1,
                                  .shadow_bucket = (int)r[6].integer - 1,
                                  .requests = view_of(&r[7]),
                                  .tokens = view_of(&r[10])};
    for (int i = 0; i < n; i++)
        left[i] = r[FIXED + i].integer < 0 ? -1 : (double)r[FIXED + i].integer / 1e6;
    return true;
}
