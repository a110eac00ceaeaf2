/* recent.c - see recent.h. */
#include "cache/recent.h"

#include "base/mem.h"

struct recents {
    struct recent at[RECENT_MAX];
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
    r->at[place(x->question)] = *x;
}

const struct recent *recents_find(const struct recents *r, struct hash128 question,
                                  const struct hash128 *entry)
{
    const struct recent *x = &r->at[place(question)];
    if (!hash_eq(x->question, question) || !(question.hi | question.lo)) return NULL;
    return entry && !hash_eq(x->entry, *entry) ? NULL : x;
}

void recents_drop(struct recents *r, struct hash128 question)
{
    if (recents_find(r, question, NULL)) r->at[place(question)] = (struct recent){0};
}
