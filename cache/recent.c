/* recent.c - see recent.h. */
#include "cache/recent.h"

#include "base/mem.h"

struct recents {
    struct recent at[RECENT_MAX];
    uint64_t noted;
};

struct recents *recents_new(void)
{
    return xcalloc(1, sizeof(struct recents));
}

void recents_free(struct recents *r)
{
    mem_free(r);
}

static size_t place(struct hash128 question)
{
    return (size_t)(question.lo ^ question.lo >> 32) % RECENT_MAX;
}

void recents_note(struct recents *r, const struct recent *x)
{
    struct recent *to = &r->at[place(x->question)];
    *to = *x;
    to->noted = ++r->noted;
}

const struct recent *recents_find(const struct recents *r, struct hash128 question,
                                  const struct hash128 *entry)
{
    const struct recent *x = &r->at[place(question)];
    if (!hash_eq(x->question, question) || !(question.hi | question.lo)) return NULL;
    return entry && !hash_eq(x->entry, *entry) ? NULL : x;
}

uint64_t recents_text(struct str text)
{
    uint64_t h = hash_bytes(0x726563, text).lo;
    return h ? h : 1;
}

const struct recent *recents_latest(const struct recents *r, struct hash128 entry, uint64_t text)
{
    const struct recent *best = NULL;
    for (size_t i = 0; i < RECENT_MAX; i++) {
        const struct recent *x = &r->at[i];
        if (!x->noted || !hash_eq(x->entry, entry)) continue;
        if (text ? x->text != text : !x->served) continue;
        if (!best || x->noted > best->noted) best = x;
    }
    return best;
}

void recents_drop(struct recents *r, struct hash128 question)
{
    if (recents_find(r, question, NULL)) r->at[place(question)] = (struct recent){0};
}
