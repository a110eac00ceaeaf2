/* eval_texts.c - the table of texts of an evaluation. See eval.h. */
#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "cache/eval.h"

enum { IN_FLIGHT = 128, DEADLINE_MS = 600000 };

struct slot {
    uint64_t hash;
    int i; /* -1 = free */
};
struct eval_texts {
    struct embedder *em;
    size_t dim, n, cap, n_slots;
    char **text;
    size_t *bytes;
    float *vectors; /* [n][dim]; NULL before eval_texts_embed */
    bool *known;
    struct slot *slots;
    pthread_mutex_t lock; /* the embedder's thread writes records and counts */
    pthread_cond_t room;
    size_t flying, done;
};

struct eval_texts *eval_texts_new(struct embedder *em)
{
    struct eval_texts *t = xcalloc(1, sizeof *t);
    t->em = em;
    t->dim = em ? (size_t)embedder_dim(em) : 0;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->room, NULL);
    return t;
}

void eval_texts_free(struct eval_texts *t)
{
    if (!t) return;
    for (size_t i = 0; i < t->n; i++)
        mem_free(t->text[i]);
    mem_free(t->text);
    mem_free(t->bytes);
    mem_free(t->vectors);
    mem_free(t->known);
    mem_free(t->slots);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->room);
    mem_free(t);
}

static struct slot *slot_of(const struct eval_texts *t, uint64_t hash, struct str text)
{
    size_t at = (size_t)hash & (t->n_slots - 1);
    for (;; at = (at + 1) & (t->n_slots - 1)) {
        struct slot *s = &t->slots[at];
        if (s->i < 0 || (s->hash == hash && str_eq(eval_text(t, s->i), text))) return s;
    }
}

static void grow(struct eval_texts *t)
{
    t->cap = t->cap ? t->cap * 2 : 256;
    t->text = xrealloc(t->text, t->cap * sizeof *t->text);
    t->bytes = xrealloc(t->bytes, t->cap * sizeof *t->bytes);
    mem_free(t->slots);
    t->n_slots = t->cap * 2;
    t->slots = xmalloc(t->n_slots * sizeof *t->slots);
    for (size_t i = 0; i < t->n_slots; i++)
        t->slots[i].i = -1;
    for (size_t i = 0; i < t->n; i++) {
        struct str text = eval_text(t, (int)i);
        uint64_t hash = hash_bytes(1, text).lo;
        *slot_of(t, hash, text) = (struct slot){hash, (int)i};
    }
}

int eval_texts_add(struct eval_texts *t, struct str text)
{
    if (t->n == t->cap) grow(t);
    uint64_t hash = hash_bytes(1, text).lo;
    struct slot *s = slot_of(t, hash, text);
    if (s->i >= 0) return s->i;
    *s = (struct slot){hash, (int)t->n};
    t->text[t->n] = xstrndup(text.p ? text.p : "", text.n);
    t->bytes[t->n] = text.n;
    return (int)t->n++;
}

struct str eval_text(const struct eval_texts *t, int i)
{
    return (struct str){t->text[i], t->bytes[i]};
}

const float *eval_vector(const struct eval_texts *t, int i)
{
    return t->vectors && t->known[i] ? t->vectors + (size_t)i * t->dim : NULL;
}

double eval_cosine(const struct eval_texts *t, int a, int b)
{
    const float *x = eval_vector(t, a), *y = eval_vector(t, b);
    double sum = 0;
    if (!x || !y) return -1;
    for (size_t i = 0; i < t->dim; i++)
        sum += (double)x[i] * (double)y[i];
    return sum;
}

struct flight {
    struct eval_texts *t;
    size_t i;
};

static void landed(void *arg, enum err code, const float *vector, size_t dim, bool more)
{
    struct flight *f = arg;
    struct eval_texts *t = f->t;
    pthread_mutex_lock(&t->lock);
    if (code == OK && dim == t->dim) {
        memcpy(t->vectors + f->i * dim, vector, dim * sizeof *vector);
        t->known[f->i] = true;
    }
    t->flying--;
    t->done++;
    if (!more) pthread_cond_signal(&t->room);
    pthread_mutex_unlock(&t->lock);
    mem_free(f);
}

static void wait_until(struct eval_texts *t, size_t flying)
{
    pthread_mutex_lock(&t->lock);
    while (t->flying > flying)
        pthread_cond_wait(&t->room, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

bool eval_texts_embed(struct eval_texts *t, void (*told)(size_t done, size_t of))
{
    bool ok = true;
    if (!t->em || !t->n) return true;
    t->vectors = xcalloc(t->n, t->dim * sizeof *t->vectors);
    t->known = xcalloc(t->n, sizeof *t->known);
    for (size_t i = 0; i < t->n && ok; i++) {
        struct flight *f = xmalloc(sizeof *f);
        *f = (struct flight){t, i};
        wait_until(t, IN_FLIGHT - 1);
        pthread_mutex_lock(&t->lock);
        t->flying++;
        pthread_mutex_unlock(&t->lock);
        enum err code = embedder_submit(t->em, eval_text(t, (int)i), DEADLINE_MS, landed, f);
        if (code != OK) landed(f, code, NULL, 0, false);
        ok = code == OK || code == ERR_TOO_LARGE;
        if (told && i % 500 == 499) told(i + 1, t->n);
    }
    wait_until(t, 0);
    return ok;
}
