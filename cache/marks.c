/* marks.c - three small open-addressing tables. */
#include "cache/marks.h"

#include <string.h>

#include "base/mem.h"

enum { SLOTS_FIRST = 64 };

struct slot {
    uint64_t key; /* 0 = free */
    int64_t value;
};
struct table {
    struct slot *slots;
    size_t n_slots, count;
};
struct marks {
    int64_t now;
    int64_t newest; /* of all scopes: an entry as new as this is never void */
    int64_t all;    /* everything older is void */
    struct table scopes, denied, aside;
    size_t n_aside; /* set */
    bool tags;      /* some scope is a tag */
};

static void table_init(struct table *t)
{
    t->n_slots = SLOTS_FIRST;
    t->count = 0;
    t->slots = xcalloc(t->n_slots, sizeof *t->slots);
}

static struct slot *slot_of(const struct table *t, uint64_t key)
{
    size_t at = (size_t)(key ^ key >> 32) & (t->n_slots - 1);
    while (t->slots[at].key && t->slots[at].key != key)
        at = (at + 1) & (t->n_slots - 1);
    return &t->slots[at];
}

static void grow(struct table *t)
{
    struct table bigger = {xcalloc(t->n_slots * 2, sizeof *t->slots), t->n_slots * 2, t->count};
    for (size_t i = 0; i < t->n_slots; i++)
        if (t->slots[i].key) *slot_of(&bigger, t->slots[i].key) = t->slots[i];
    mem_free(t->slots);
    *t = bigger;
}

static struct slot *slot_make(struct table *t, uint64_t key, size_t max)
{
    struct slot *s = slot_of(t, key);
    if (s->key) return s;
    if (t->count >= max) return NULL;
    if ((t->count + 1) * 2 > t->n_slots) {
        grow(t);
        s = slot_of(t, key);
    }
    s->key = key;
    t->count++;
    return s;
}

struct marks *marks_new(void)
{
    struct marks *m = xcalloc(1, sizeof *m);
    table_init(&m->scopes);
    table_init(&m->denied);
    table_init(&m->aside);
    return m;
}

void marks_free(struct marks *m)
{
    if (!m) return;
    mem_free(m->scopes.slots);
    mem_free(m->denied.slots);
    mem_free(m->aside.slots);
    mem_free(m);
}

void marks_clear(struct marks *m)
{
    mem_free(m->scopes.slots);
    mem_free(m->denied.slots);
    mem_free(m->aside.slots);
    *m = (struct marks){.now = m->now};
    table_init(&m->scopes);
    table_init(&m->denied);
    table_init(&m->aside);
}

int64_t marks_now(const struct marks *m)
{
    return m->now;
}

static uint64_t name_hash(struct str text)
{
    uint64_t h = hash_bytes(0x6d61726b, text).lo;
    return h ? h : 1;
}

uint64_t marks_name(const char *kind, struct str name)
{
    char text[640];
    size_t n = strlen(kind);
    struct str cut = str_sub(name, 0, sizeof text - n - 1);
    memcpy(text, kind, n);
    text[n] = ':';
    if (cut.n) memcpy(text + n + 1, cut.p, cut.n);
    return name_hash((struct str){text, n + 1 + cut.n});
}

enum err marks_set(struct marks *m, struct str scope, int64_t epoch)
{
    if (epoch > m->now) m->now = epoch;
    if (str_eqz(scope, "now")) return OK;
    if (epoch > m->newest) m->newest = epoch;
    if (str_eqz(scope, "all")) {
        if (epoch > m->all) m->all = epoch;
        return OK;
    }
    if (str_starts(scope, STR("tag:"))) m->tags = true;
    struct slot *s = slot_make(&m->scopes, name_hash(scope), MARKS_SCOPES_MAX);
    if (!s) {
        if (epoch > m->all) m->all = epoch;
        return ERR_FULL;
    }
    if (epoch > s->value) s->value = epoch;
    return OK;
}

static bool newer(const struct marks *m, uint64_t name, int64_t epoch)
{
    const struct slot *s = slot_of(&m->scopes, name);
    return s->key && s->value > epoch;
}

bool marks_void(const struct marks *m, const struct mark_scope *s)
{
    if (s->epoch >= m->newest) return false;
    if (m->all > s->epoch || newer(m, s->tenant, s->epoch) || newer(m, s->model, s->epoch) ||
        newer(m, s->ns, s->epoch))
        return true;
    struct str tags = s->tags, tag;
    while (m->tags && str_next(&tags, ',', &tag))
        if (newer(m, marks_name("tag", tag), s->epoch)) return true;
    return false;
}

/* --- answers called wrong */
static uint64_t pair_key(struct hash128 entry, uint64_t answer)
{
    uint64_t key = (entry.hi ^ entry.lo * 0x9e3779b97f4a7c15u) ^ (answer * 0xff51afd7ed558ccdu);
    return key ? key : 1;
}

/* Makes room: the half that ends first goes. */
static void forget_half(struct table *t)
{
    struct table old = *t;
    int64_t min = INT64_MAX, max = INT64_MIN;
    for (size_t i = 0; i < old.n_slots; i++) {
        if (!old.slots[i].key) continue;
        if (old.slots[i].value < min) min = old.slots[i].value;
        if (old.slots[i].value > max) max = old.slots[i].value;
    }
    *t = (struct table){xcalloc(old.n_slots, sizeof *t->slots), old.n_slots, 0};
    for (size_t i = 0; i < old.n_slots; i++)
        if (old.slots[i].key && old.slots[i].value > min + (max - min) / 2) {
            *slot_of(t, old.slots[i].key) = old.slots[i];
            t->count++;
        }
    mem_free(old.slots);
}

void marks_deny(struct marks *m, struct hash128 entry, uint64_t answer, int64_t until_s)
{
    if (!answer) return;
    struct slot *s = slot_make(&m->denied, pair_key(entry, answer), MARKS_DENIED_MAX);
    if (!s) {
        forget_half(&m->denied);
        s = slot_make(&m->denied, pair_key(entry, answer), MARKS_DENIED_MAX);
    }
    if (s && until_s > s->value) s->value = until_s;
}

bool marks_denied(const struct marks *m, struct hash128 entry, uint64_t answer, int64_t now_s)
{
    const struct slot *s = answer ? slot_of(&m->denied, pair_key(entry, answer)) : NULL;
    return s && s->key && s->value > now_s;
}

/* --- set aside */
enum err marks_set_aside(struct marks *m, struct hash128 entry, enum marks_aside state)
{
    struct slot *s = slot_make(&m->aside, pair_key(entry, 0), MARKS_ASIDE_MAX);
    if (!s) return ERR_FULL;
    m->n_aside += (size_t)(state == ASIDE_SET);
    m->n_aside -= (size_t)(s->value == ASIDE_SET);
    s->value = state;
    return OK;
}

enum marks_aside marks_aside(const struct marks *m, struct hash128 entry)
{
    if (!m->aside.count) return ASIDE_NOT;
    const struct slot *s = slot_of(&m->aside, pair_key(entry, 0));
    return s->key ? (enum marks_aside)s->value : ASIDE_NOT;
}

size_t marks_aside_count(const struct marks *m)
{
    return m->n_aside;
}
