/* embedder_memo.h - the vectors of recently embedded texts, least recently used out first. A hit compares the whole text, not
 * only its hash. Bounded in entries and in text length. Private to the embedder.
 * Threading: none of its own; the embedder's lock is held. */
#ifndef DEJA_EMBEDDINGS_EMBEDDER_MEMO_H
#define DEJA_EMBEDDINGS_EMBEDDER_MEMO_H
#include "base/str.h"

enum { EMBEDDER_MEMO_TEXT_MAX = 4096 }; /* longer texts are rare and seldom come twice */

struct embedder_memo;
struct embedder_memo *embedder_memo_new(int entries_max,
                                        int dim); /* entries_max >= 0; 0 = remembers nothing */
void embedder_memo_free(struct embedder_memo *m);
/* f32[dim], borrowed until the next put; NULL when the text is not there. */
const float *embedder_memo_get(struct embedder_memo *m, struct str text);
void embedder_memo_put(struct embedder_memo *m, struct str text, const float *vector);
int embedder_memo_entries(const struct embedder_memo *m);

#endif
