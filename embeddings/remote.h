/* remote.h - vectors from an OpenAI-compatible server's /v1/embeddings. Blocking: one POST for a batch, on the caller's thread, which
 * must always be the same one after remote_open (it runs a loop of its own inside). Deadlines of single texts are the embedder's.
 * Source: the public OpenAI API reference, "Create embeddings". */
#ifndef DEJA_EMBEDDINGS_REMOTE_H
#define DEJA_EMBEDDINGS_REMOTE_H
#include "base/str.h"

struct remote;
/* url: "http://host:port/v1#model" (http or https; "/v1" may be left out). key: bearer token or NULL. Asks for one vector to learn
 * their length. ERR_INVALID: not such a URL; ERR_UNAVAILABLE, ERR_CORRUPT: the server's answer, in *e. */
MUST enum err remote_open(struct remote **out, const char *url, const char *key, struct errmsg *e);
void remote_close(struct remote *r); /* NULL is fine */
int remote_dim(const struct remote *r);
const char *remote_id(const struct remote *r); /* borrowed until remote_close */
/* out f32[n][dim], made unit length; status[n]: OK, or ERR_UNAVAILABLE / ERR_CORRUPT for all. n in 1..1024. */
void remote_embed(struct remote *r, const struct str *texts, int n, float *out, enum err *status);

#endif
