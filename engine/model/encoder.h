/* encoder.h - a BERT-type sentence encoder read from a GGUF file: text -> unit vector. Owns weights, tokenizer and scratch.
 * Refuses what it cannot place: text longer than the model's window (never cut silently: the tail may hold what
 * matters), and text made largely of unknown pieces (all such texts meet in one vector).
 * Keys of ours: deja.embed.id, .prefix (put before every text, "query: " for e5), .max_tokens, .pooling ("mean", "cls").
 * Threading: one thread at a time; uses its own compute threads inside. id, dim, max_tokens: any thread.
 * Source: Devlin et al. 2019 (arXiv:1810.04805); mean pooling: Reimers & Gurevych 2019 (arXiv:1908.10084). */
#ifndef DEJA_ENGINE_MODEL_ENCODER_H
#define DEJA_ENGINE_MODEL_ENCODER_H
#include "base/str.h"

struct encoder;

struct encoder_options {
    int n_threads;   /* 0 = all cores */
    const char *isa; /* as in model_options */
    bool exact;      /* float32 activations and weights throughout: the oracle path */
    bool
        keep_f32; /* do not round F32 and F16 weights to 8 bit at load (4 times the memory, about 3 times the time) */
    int batch_tokens_max; /* tokens of one pass; 0 = 1024; at least the model's max_tokens are always allowed */
    float unknown_share_max; /* largest share of unknown pieces in a text; 0 = 0.3; 1 = any */
};

MUST enum err encoder_open(struct encoder **out, const char *path,
                           const struct encoder_options *opt, struct errmsg *e);
void encoder_close(struct encoder *enc); /* NULL is fine */

int encoder_dim(const struct encoder *enc);
/* NAME-HASH: vectors of different ids must never be compared. Borrowed until encoder_close. */
const char *encoder_id(const struct encoder *enc);
int encoder_max_tokens(
    const struct encoder *enc); /* of one text, prefix and special tokens included */

/* out f32[n][dim] = the unit vectors of texts[n]; status[i] OK, ERR_TOO_LARGE (over max_tokens), ERR_UNSUPPORTED (too many
 * unknown pieces) or ERR_CORRUPT (no finite vector came out); a refused text's vector is zero. A text's vector is
 * bit-identical whatever else is in the call. */
void encoder_embed(struct encoder *enc, const struct str *texts, int n, float *out,
                   enum err *status);

/* One pass on its way: rows f32[sum of lengths][dim] after `layer` layers, texts side by side, special tokens and prefix
 * included. All borrowed for the call. */
struct encoder_pass {
    int n_texts;
    const int32_t *length; /* [n_texts] rows of each */
    const int *text_i;     /* [n_texts] index into the texts of encoder_embed */
    const int32_t *ids;    /* [rows] token of each row */
    const float *rows;
};
typedef void encoder_tap(void *arg, const struct encoder_pass *pass);
/* tap is called once in every pass of encoder_embed from now on, before it returns; NULL = no longer. layer 1..encoder_layers. */
void encoder_tap_set(struct encoder *enc, int layer, encoder_tap *tap, void *arg);
int encoder_layers(const struct encoder *enc);

/* Pieces of text with prefix and special tokens, the unknown ones among them. At most max_tokens + 1 are counted. */
int encoder_count_tokens(const struct encoder *enc, struct str text, int *n_unknown);

/* Checks keys and tensor shapes of a file without loading it; appends one line that describes it to summary (may be NULL). */
struct gguf;
struct buf;
MUST enum err encoder_check(const struct gguf *g, struct buf *summary, struct errmsg *e);

#endif
