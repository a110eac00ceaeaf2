/* marks_sync.c - keeps cache/marks.h as Redis has it: asked for at every connection, after a gap in the log, and every second where no log
 * is tailed; in between each removal is followed. Also deletes bit by bit what mass removals have left. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "cache/cache_internal.h"

enum { ASK_MS = 1000, SWEEP_AT_ONCE = 500, DENY_S = 90 * 86400 };

static uint64_t from_hex(struct str s)
{
    uint64_t v = 0;
    for (size_t i = 0; i < s.n && i < 16; i++) {
        char c = s.p[i];
        v = v << 4 | (uint64_t)(c >= 'a' ? c - 'a' + 10 : c - '0');
    }
    return v;
}

static void deny_pair(struct cache *c, struct str name, int64_t until_s)
{
    struct hash128 entry;
    if (name.n == 32 + 1 + 16 && hash_from_hex(str_sub(name, 0, 32), &entry) == OK)
        marks_deny(c->marks, entry, from_hex(str_sub(name, 33, 16)), until_s);
}

static void mark(struct cache *c, struct str scope, int64_t epoch)
{
    if (marks_set(c->marks, scope, epoch) != OK)
        log_limited(LOG_WARN, "cache",
                    "too many kinds of entries were removed: older ones of "
                    "every kind are not used any more");
}

static void read_marks(struct cache *c, const struct redis_reply *epochs,
                       const struct redis_reply *denied, const struct redis_reply *aside)
{
    struct hash128 id;
    int64_t v;
    marks_clear(c->marks);
    for (size_t i = 0; i + 1 < epochs->n_items; i += 2)
        if (str_to_i64(epochs->items[i + 1].text, 0, INT64_MAX / 4, &v) == OK)
            mark(c, epochs->items[i].text, v);
    for (size_t i = 0; i + 1 < denied->n_items; i += 2)
        if (str_to_i64(denied->items[i + 1].text, 0, INT64_MAX / 4, &v) == OK)
            deny_pair(c, denied->items[i].text, v);
    for (size_t i = 0; i + 1 < aside->n_items; i += 2)
        if (hash_from_hex(aside->items[i].text, &id) == OK)
            cache_quarantine_follow(c, id, aside->items[i + 1].text);
    metric_set(c->m.aside, (double)marks_aside_count(c->marks));
}

static void got_marks(void *arg, enum err code, const struct redis_reply *reply)
{
    struct cache *c = arg;
    c->asked_marks = false;
    if (!c->closed && code == OK) {
        if (reply->kind == REDIS_ARRAY && reply->n_items == 4 &&
            reply->items[0].kind == REDIS_ARRAY && reply->items[1].kind == REDIS_ARRAY) {
            read_marks(c, &reply->items[0], &reply->items[1], &reply->items[3]);
            c->sweeping = reply->items[2].integer > 0;
            c->marks_known = c->stats.redis_known = true;
        } else {
            log_limited(LOG_WARN, "cache", "Redis does not say what was removed: " STR_FMT,
                        STR_ARG(reply->text));
        }
    }
    cache_unref(c);
}

static void ask(struct cache *c)
{
    char key[KEY_BYTES_MAX], now[24];
    snprintf(now, sizeof now, "%lld", (long long)marks_now(c->marks));
    struct str argv[] = {STR("FCALL"), STR("deja_marks"),
                         STR("1"),     cache_redis_key(c, key, "log", STR("")),
                         str_of(now),  STR("aside")};
    c->asked_marks = true;
    c->marks_asked_ms = clock_ms();
    cache_ref(c);
    redis_command(c->redis, 6, argv, 1000, got_marks, c);
}

static void swept(void *arg, enum err code, const struct redis_reply *reply)
{
    struct cache *c = arg;
    if (!c->closed && code == OK && reply->kind == REDIS_INTEGER) c->sweeping = reply->integer > 0;
    cache_unref(c);
}

static void sweep(struct cache *c)
{
    char key[KEY_BYTES_MAX], max[16];
    snprintf(max, sizeof max, "%d", SWEEP_AT_ONCE);
    struct str argv[] = {STR("FCALL"), STR("deja_sweep"), STR("1"),
                         cache_redis_key(c, key, "log", STR("")), str_of(max)};
    cache_ref(c);
    redis_command(c->redis, 5, argv, 1000, swept, c);
}

void cache_marks_tick(struct cache *c)
{
    bool due = !c->marks_known || (!c->tail && clock_ms() - c->marks_asked_ms >= ASK_MS);
    if (due && !c->asked_marks) ask(c);
    if (c->sweeping && c->marks_known) sweep(c);
}

void cache_marks_follow(struct cache *c, struct str scope, struct str epoch, struct str left)
{
    int64_t v = 0, n = 0;
    if (str_to_i64(epoch, 1, INT64_MAX / 4, &v) != OK || !scope.n) return;
    mark(c, scope, v);
    metric_add(c->m.void_entries, 1);
    log_info("cache", "removed: " STR_FMT " epoch=%lld", STR_ARG(scope), (long long)v);
    if (str_to_i64(left, 0, INT64_MAX / 4, &n) == OK && n > 0) c->sweeping = true;
}

void cache_marks_deny(struct cache *c, struct hash128 entry, struct str answer_hex)
{
    marks_deny(c->marks, entry, from_hex(answer_hex), clock_wall_s() + DENY_S);
}
