/* vocab.c - open addressing with linear probing, at most half full; 32 bits of the hash stand beside the id so that
 * a probe seldom touches the string. */
#include "engine/text/vocab.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

enum { TOKENS_MAX = 1 << 24 };
static const size_t text_bytes_max = (size_t)1 << 30;

struct slot {
    uint32_t tag;
    int32_t id; /* -1 = free */
};
struct vocab {
    int n;
    uint32_t mask;
    char *bytes;
    uint32_t *from; /* [n+1] offsets into bytes */
    struct slot *slots;
};

static uint64_t key_of(struct str text)
{
    return hash_bytes(0x76ab, text).lo;
}

static struct slot *slot_of(const struct vocab *v, struct str text, uint64_t key)
{
    uint32_t i = (uint32_t)(key >> 32) & v->mask;
    for (;; i = (i + 1) & v->mask) {
        struct slot *s = &v->slots[i];
        if (s->id < 0) return s;
        if (s->tag == (uint32_t)key && str_eq(vocab_text(v, s->id), text)) return s;
    }
}

static enum err fill(struct vocab *v, const struct str *tokens, struct errmsg *e)
{
    uint32_t at = 0;
    for (int i = 0; i < v->n; i++) {
        v->from[i] = at;
        if (tokens[i].n) memcpy(v->bytes + at, tokens[i].p, tokens[i].n);
        at += (uint32_t)tokens[i].n;
    }
    v->from[v->n] = at;
    for (int i = 0; i < v->n; i++) {
        if (!tokens[i].n) continue;
        struct str text = vocab_text(v, i);
        uint64_t key = key_of(text);
        struct slot *s = slot_of(v, text, key);
        if (s->id >= 0)
            return err_set(e, ERR_CORRUPT, "tokens %d and %d have the same text", (int)s->id, i);
        *s = (struct slot){(uint32_t)key, i};
    }
    return OK;
}

enum err vocab_new(struct vocab **out, const struct str *tokens, int n_tokens, struct errmsg *e)
{
    *out = NULL;
    if (n_tokens < 1 || n_tokens > TOKENS_MAX)
        return err_set(e, ERR_TOO_LARGE, "%d tokens, expected 1 to %d", n_tokens, TOKENS_MAX);
    size_t bytes = 0;
    for (int i = 0; i < n_tokens; i++) {
        if (tokens[i].n > text_bytes_max - bytes)
            return err_set(e, ERR_TOO_LARGE, "the vocabulary's text is longer than 1 GiB");
        bytes += tokens[i].n;
    }
    struct vocab *v = xcalloc(1, sizeof *v);
    size_t n_slots = 16;
    while (n_slots < (size_t)n_tokens * 2)
        n_slots *= 2;
    v->n = n_tokens;
    v->mask = (uint32_t)(n_slots - 1);
    v->bytes = try_malloc(bytes + 1);
    v->from = try_malloc(((size_t)n_tokens + 1) * sizeof *v->from);
    v->slots = try_malloc(n_slots * sizeof *v->slots);
    enum err err = OK;
    if (!v->bytes || !v->from || !v->slots) {
        err = err_set(e, ERR_TOO_LARGE, "no memory for a vocabulary of %d tokens", n_tokens);
    } else {
        memset(v->slots, 0xff, n_slots * sizeof *v->slots);
        err = fill(v, tokens, e);
    }
    if (err)
        vocab_free(v);
    else
        *out = v;
    return err;
}

void vocab_free(struct vocab *v)
{
    if (!v) return;
    mem_free(v->bytes);
    mem_free(v->from);
    mem_free(v->slots);
    mem_free(v);
}

int vocab_size(const struct vocab *v)
{
    return v->n;
}

struct str vocab_text(const struct vocab *v, int32_t id)
{
    ASSERT(id >= 0 && id < v->n);
    return (struct str){v->bytes + v->from[id], v->from[id + 1] - v->from[id]};
}

int32_t vocab_find(const struct vocab *v, struct str text)
{
    return text.n ? slot_of(v, text, key_of(text))->id : -1;
}
