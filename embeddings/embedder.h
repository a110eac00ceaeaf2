/* embedder.h - text -> unit vector, asynchronously, with the encoder of a GGUF file or a remote server. Owns it and two threads: one
 * computes, one watches deadlines. Everything queued while a pass runs is taken into the next one together (micro-batching),
 * comparisons and texts in turn; equal texts are computed once; recent texts are remembered.
 * Refuses to queue without end: past queue_max a text is turned away at once. Knows no cache and no index.
 * Threading: every function from any thread but open and close. Callbacks run on a thread of the embedder, possibly
 * before embedder_submit has returned; they must hand over and return (loop_post), and may not call embedder_close. */
#ifndef DEJA_EMBEDDINGS_EMBEDDER_H
#define DEJA_EMBEDDINGS_EMBEDDER_H
#include "base/str.h"

struct embedder;

struct embedder_options {  /* 0 = the default in brackets */
    const char *key;       /* bearer token of a remote server; NULL = none */
    int n_threads;         /* compute threads (1), 1..64 */
    const char *isa;       /* NULL = best; "scalar", "avx2", "avx512" */
    bool keep_f32;         /* no 8-bit rounding of float weights: see encoder_options */
    int batch_max;         /* texts of one pass (32), 1..1024 */
    int batch_tokens_max;  /* tokens of one pass, about (512): what one text may have to wait for */
    int queue_max;         /* texts waiting (256), 1..65536; beyond: ERR_FULL */
    int memo_entries;      /* texts remembered (4096); -1 = none */
    int deadline_ms;       /* of calls that name none (1000), 1..600000 */
    size_t text_bytes_max; /* longer texts are ERR_TOO_LARGE at once (32 KiB) */
    float unknown_share_max; /* (0.3) see encoder_options */
    const char
        *pair_net; /* a GGUF file of retrained weights; NULL = ours, where they fit the encoder */
};

/* path: a GGUF file, or "http://host:port/v1#model" for a server with /v1/embeddings (embeddings/remote.h). */
MUST enum err embedder_open(struct embedder **out, const char *path,
                            const struct embedder_options *opt, struct errmsg *e);
/* Waits for the pass that runs; texts still queued end with ERR_CANCELLED before this returns. NULL is fine. */
void embedder_close(struct embedder *em);

int embedder_dim(const struct embedder *em);
/* Vectors of different ids must never be compared. Borrowed until embedder_close. */
const char *embedder_id(const struct embedder *em);

/* code OK: vector f32[dim], borrowed during the call. ERR_TIMEOUT, ERR_CANCELLED, ERR_TOO_LARGE (over the model's window),
 * ERR_UNSUPPORTED (too many unknown pieces), ERR_CORRUPT: vector NULL. more: this very function is called again from this thread before it
 * does anything else (a pass has several texts), so that what is handed over can be handed over together. */
typedef void embedder_done(void *arg, enum err code, const float *vector, size_t dim, bool more);

/* OK: done is called exactly once, by the deadline or a few milliseconds later. ERR_FULL, ERR_TOO_LARGE (bytes), ERR_CLOSED: it
 * is never called. text is copied. deadline_ms 0 = the option's. */
MUST enum err embedder_submit(struct embedder *em, struct str text, int deadline_ms,
                              embedder_done *done, void *arg);

/* A remembered vector at once, without a thread switch: true and out f32[dim] filled. */
bool embedder_recall(struct embedder *em, struct str text, float *out);

/* ---- do two questions ask the same? engine/model/pair_net.h says how; for the encoders its weights were made for ---- */

/* Bytes of a text's sketch, at most PAIR_SKETCH_MAX; 0 = this embedder makes none, and the reason is a sentence. */
size_t embedder_sketch_bytes(const struct embedder *em);
const char *embedder_why_no_sketch(const struct embedder *em);
/* How logits become decisions, for verifier_new (cache/verifier.h); empty without a net. Borrowed until embedder_close. */
struct str embedder_calibration(const struct embedder *em);
/* embedder_recall with the sketch, [sketch_bytes], may be NULL; and the same that waits: for tools and tests, never on an event loop. */
bool embedder_recall_sketch(struct embedder *em, struct str text, float *out, void *sketch);
MUST enum err embedder_embed_sketch_sync(struct embedder *em, struct str text, float *out,
                                         void *sketch);

/* The first look, some 30 microseconds: *logit > 0 = rather the same question. cosine: of the two vectors. ERR_UNSUPPORTED: no
 * sketches here; ERR_CORRUPT: one of the two is no sketch of this embedder (zeros: its text was too long). cache/verifier.h. */
MUST enum err embedder_score(const struct embedder *em, const void *sketch_a, const void *sketch_b,
                             double cosine, float *logit);

/* The second look, 0.1 ms a pair and some ms for a text not seen lately, on the embedder's thread: a against each of b[n], n at
 * most EMBEDDER_COMPARE_MAX, with the cosines of their vectors. Called as embedder_submit is. code OK: opinions[n], borrowed during the
 * call; a text too long for the net gives NaN. */
enum { EMBEDDER_COMPARE_MAX = 8 };
struct embedder_opinion {
    float alone; /* what embedder_score says */
    float joint; /* both texts together */
};
bool embedder_can_compare(const struct embedder *em);
typedef void embedder_compared(void *arg, enum err code, const struct embedder_opinion *opinions,
                               int n);
/* tokens: of b[n], as embedder_recall_tokens gave them once; copied. NULL, or empty where they are not at hand. */
MUST enum err embedder_compare(struct embedder *em, struct str a, const struct str *b,
                               const double *cosines, const struct str *tokens, int n,
                               int deadline_ms, embedder_compared *done, void *arg);
/* What a comparison needs of a text seen lately, to be stored with it so that nobody computes it again: bytes written, 0 = not
 * remembered. fit: were such bytes made with these weights? */
enum { EMBEDDER_TOKENS_BYTES = 16384 };
size_t embedder_recall_tokens(struct embedder *em, struct str text,
                              uint8_t out[EMBEDDER_TOKENS_BYTES]);
bool embedder_tokens_fit(const struct embedder *em, struct str bytes);

struct embedder_stats {
    uint64_t submitted, answered, memo_hits, timeouts, refused_full, refused_text,
        cancelled;     /* texts */
    uint64_t compared; /* pairs, by embedder_compare */
    uint64_t passes, pass_texts,
        pass_us;              /* sums over all passes, texts computed in them, time they took */
    int queued, memo_entries; /* now */
    size_t memo_bytes;        /* vectors, sketches and tokens remembered */
};
void embedder_stats_read(struct embedder *em, struct embedder_stats *out);

#endif
