/* store.h - files and batches as Redis keeps them: a link of their own (their chunks are large; a cache look-up must not wait behind one),
 * calls of the Functions of lua/batch*.lua, and clients' requests that one such call answers. Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_STORE_H
#define DEJA_GATEWAY_STORE_H
#include "gateway/pipeline.h"

struct store;
enum { STORE_ID_BYTES = 40, STORE_ARGS_MAX = 16, STORE_KEY_BYTES = 224 };

/* *out NULL without Redis. */
MUST enum err store_open(struct store **out, struct gateway *gw, struct errmsg *e);
void store_close(struct store *s); /* what is asked ends with ERR_CANCELLED; NULL is fine */
bool store_usable(const struct store *s);

/* FCALL function 1 {ns}:config args... */
void store_call(struct store *s, const char *function, size_t n_args, const struct str *args,
                redis_callback *cb, void *arg);
/* A chunk of a file. */
void store_chunk_get(struct store *s, const char *file, int64_t chunk, redis_callback *cb,
                     void *arg);
/* It is gone in an hour, unless the file is added. */
void store_chunk_put(struct store *s, const char *file, int64_t chunk, struct str bytes,
                     redis_callback *cb, void *arg);
/* "file-" or "batch_" and 24 hex digits. */
void store_new_id(struct gateway *gw, const char *prefix, char out[STORE_ID_BYTES]);
/* Letters, digits, - and _, at most 64: what an id in an address may be. */
bool store_id_ok(struct str id);

/* --- a client's request that waits for Redis */
struct store_job {
    struct exchange *x;                    /* NULL: the client has left */
    void (*gone)(struct store_job *j);     /* that has just happened */
    void (*writable)(struct store_job *j); /* may be NULL */
};
/* Refuses what cannot be served without Redis: true = it has been refused. */
bool store_missing(struct exchange *x);
/* 405, with what is allowed. STEP_DONE. */
enum step store_refuse_method(struct exchange *x, const char *allow);
/* The request is answered by what the Function says. */
enum step store_answer(struct exchange *x, const char *function, size_t n_args,
                       const struct str *args);
/* True: reply is no refusal and no failure. Else x has been refused, and has still to be finished. */
bool store_reply_good(struct exchange *x, enum err code, const struct redis_reply *reply);

#endif
