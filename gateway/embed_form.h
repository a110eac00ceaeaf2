/* embed_form.h - lists of embeddings: read from an upstream's reply, kept one by one as an answer of the exact cache, and written in
 * either encoding. A vector is its f32 values, little endian, which is what the API's base64 holds; numbers read from JSON text are
 * rounded to that. Pure, allocation aside. */
#ifndef DEJA_GATEWAY_EMBED_FORM_H
#define DEJA_GATEWAY_EMBED_FORM_H
#include "base/openai.h"

enum { EMBED_DIM_MAX = 65536, EMBED_INPUTS_MAX = 2048 };

struct embed_vector {
    struct buf values; /* f32; empty = none */
    int64_t tokens;    /* of its text; -1 = not known */
};
struct embed_list {
    struct embed_vector *at; /* n, owned */
    size_t n;
    char model[128];
    int64_t tokens; /* of the whole, -1 = not told */
};

void embed_list_init(struct embed_list *l, size_t n);
void embed_list_fini(struct embed_list *l);
/* Fills a list of n vectors from a reply. ERR_INVALID: not n vectors of finite numbers, each index once. */
MUST enum err embed_read(struct embed_list *l, struct str json, struct errmsg *e);
/* Deals the tokens of the whole out over texts of these lengths; exact for one. */
void embed_share_tokens(struct embed_list *l, const size_t *text_bytes);
/* The reply with every vector; tokens that are not known count nothing. */
void embed_write(struct buf *out, const struct embed_list *l, bool base64);

/* One vector as the cache keeps answers, and back. ERR_CORRUPT: the answer holds none. */
void embed_to_answer(const struct embed_vector *v, const char *model, struct openai_answer *out);
MUST enum err embed_from_answer(struct embed_vector *v, const struct openai_answer *a);

#endif
