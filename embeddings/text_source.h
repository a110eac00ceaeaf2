/* text_source.h - where vectors come from: the encoder of a GGUF file, with our pair net on it where its weights fit, or a remote server.
 * Owns them. A text gives one record of floats: its vector, and behind it the bytes of its sketch (engine/model/pair_net.h).
 * Private to the embedder. Threading: one thread at a time; dim, record, id, score: any thread. */
#ifndef DEJA_EMBEDDINGS_TEXT_SOURCE_H
#define DEJA_EMBEDDINGS_TEXT_SOURCE_H
#include "embeddings/embedder.h"
#include "engine/model/pair_net.h"

struct text_source;
MUST enum err text_source_open(struct text_source **out, const char *path,
                               const struct embedder_options *o, struct errmsg *e);
void text_source_close(struct text_source *s); /* NULL is fine */

size_t text_source_dim(const struct text_source *s);
size_t text_source_record(const struct text_source *s); /* floats; >= dim */
size_t text_source_sketch_bytes(const struct text_source *s);
bool text_source_has_joint(const struct text_source *s);
const char *text_source_id(const struct text_source *s);
const char *text_source_why_no_sketch(const struct text_source *s); /* "" when there is one */
struct str text_source_calibration(const struct text_source *s);    /* empty without a net */

/* records f32[n][record] of texts[n]; status[i] as encoder_embed. */
void text_source_compute(struct text_source *s, const struct str *texts, int n, float *records,
                         enum err *status);
/* See pair_net_score; ERR_UNSUPPORTED without a net. */
MUST enum err text_source_score(const struct text_source *s, const void *sketch_a,
                                const void *sketch_b, double cosine, float *logit);
/* See embedder_compare: n at most EMBEDDER_COMPARE_MAX. Sketches and token states are remembered for some texts, and computed again for
 * others, unless packed[i] (NULL = none) holds them for b[i]. ERR_UNSUPPORTED: no joint net. */
MUST enum err text_source_joint(struct text_source *s, struct str a, const struct str *b, int n,
                                const double *cosines, const struct str *packed,
                                struct embedder_opinion *out);
/* Any thread; see embedder_recall_tokens and embedder_tokens_fit. */
size_t text_source_recall_tokens(struct text_source *s, struct str text,
                                 uint8_t out[PAIR_PACKED_MAX]);
bool text_source_tokens_fit(const struct text_source *s, struct str bytes);
size_t text_source_tokens_bytes(struct text_source *s);

#endif
