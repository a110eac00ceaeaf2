/* quarantine.c - entries that many unlike questions hit (cache/crowd.h) are set aside, here at once and through Redis on every gateway
 * (lua/quarantine.lua), until somebody clears them. Each gateway judges by what it served itself. Without Redis it lasts as long as the
 * process. Threading: the loop's thread. */
#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "cache/lookup.h"

static void mark(struct cache *c, struct hash128 entry, enum marks_aside state)
{
    if (marks_set_aside(c->marks, entry, state) != OK) { /* more than Redis keeps */
        if (state == ASIDE_SET) partitions_remove_id(c->partitions, entry);
        log_limited(LOG_WARN, "cache", "too many entries are set aside: this one is let go");
    }
    metric_set(c->m.aside, (double)marks_aside_count(c->marks));
}

struct said {
    struct cache *c;
    struct hash128 entry;
};

static void told(void *arg, enum err code, const struct redis_reply *reply)
{
    struct said *s = arg;
    struct cache *c = s->c;
    if (!c->closed && code == OK && str_eqz(reply->text, "CLEARED"))
        cache_quarantine_follow(c, s->entry, STR("cleared"));
    mem_free(s);
    cache_unref(c);
}

static void tell(struct cache *c, struct hash128 entry, struct crowd_count n)
{
    char key[KEY_BYTES_MAX], hex[33], questions[12], unlike[12];
    hash_hex(entry, hex);
    snprintf(questions, sizeof questions, "%u", n.questions);
    snprintf(unlike, sizeof unlike, "%u", n.unlike);
    struct str argv[] = {STR("FCALL"),      STR("deja_quarantine"),
                         STR("1"),          cache_redis_key(c, key, "log", STR("")),
                         str_of(c->source), str_of(hex),
                         str_of(questions), str_of(unlike)};
    struct said *s = xcalloc(1, sizeof *s);
    *s = (struct said){c, entry};
    cache_ref(c);
    redis_command(c->redis, sizeof argv / sizeof *argv, argv, 1000, told, s);
}

bool cache_quarantine_note(struct cache *c, const struct cache_lookup *l,
                           const struct question *own)
{
    char hex[33];
    const struct cache_knobs *k = &l->knobs;
    if (k->quarantine_questions <= 0 || l->o.explain || !l->vec || own->trust >= TRUST_REVIEWED ||
        marks_aside(c->marks, own->id) != ASIDE_NOT)
        return false;
    struct policy p = policy_with(&c->shipped, k);
    struct crowd_question q = {.text = l->k->user_text,
                               .asker = l->o.asker,
                               .vec = l->vec,
                               .unlike = p.unlike[guard_language(own->text) == 'z']};
    if (q.unlike <= 0) return false;
    struct crowd_count n = crowds_note(c->crowds, own->id, &q);
    if (!crowd_is_one(n, k->quarantine_questions)) return false;
    hash_hex(own->id, hex);
    log_warn("cache",
             "entry set aside: %u of %u questions it was the answer to are unlike each other "
             "entry=%s (deja_review list WHAT quarantined)",
             n.unlike, n.questions, hex);
    metric_add(c->m.set_aside, 1);
    mark(c, own->id, ASIDE_SET);
    if (c->redis) tell(c, own->id, n);
    return true;
}

void cache_quarantine_follow(struct cache *c, struct hash128 entry, struct str state)
{
    bool set = str_eqz(state, "quarantined");
    mark(c, entry, set ? ASIDE_SET : str_eqz(state, "cleared") ? ASIDE_CLEARED : ASIDE_NOT);
    if (!set) crowds_forget(c->crowds, entry);
}
