/* embedder_memo.h - what was computed for recent texts, least recently used out first. A hit compares the whole text, not
 * only its hash. Bounded in entries and in text length. Private to this room.
 * Threading: none of its own; the embedder's lock is held, or the compute thread owns it. */
#ifndef DEJA_EMBEDDINGS_EMBEDDER_MEMO_H
#define DEJA_EMBEDDINGS_EMBEDDER_MEMO_H
#include "base/str.h"

enum { EMBEDDER_MEMO_TEXT_MAX = 4096 }; /* longer texts are rare and seldom come twice */

struct embedder_memo;
struct embedder_memo *embedder_memo_new(int entries_max); /* >= 0; 0 = remembers nothing */
void embedder_memo_free(struct embedder_memo *m);         /* NULL is fine */
/* The bytes put for it, aligned for any type, borrowed until the next put; NULL when the text is not there. */
const void *embedder_memo_get(struct embedder_memo *m, struct str text);
/* Copies both. A text that is there already keeps what it has. */
void embedder_memo_put(struct embedder_memo *m, struct str text, const void *bytes, size_t n_bytes);
int embedder_memo_entries(const struct embedder_memo *m);
size_t embedder_memo_bytes(const struct embedder_memo *m); /* held in all */

#endif
