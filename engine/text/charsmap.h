/* charsmap.h - SentencePiece's precompiled normaliser: a double-array trie from byte sequences to replacement strings.
 * Every index read from it is checked, as it comes from a model file. Immutable; any thread.
 * Source: layout as in SentencePiece and Darts-clone (u32 size of the trie, trie units, NUL-terminated strings). */
#ifndef DEJA_ENGINE_TEXT_CHARSMAP_H
#define DEJA_ENGINE_TEXT_CHARSMAP_H
#include "base/buf.h"

struct charsmap;
MUST enum err charsmap_new(struct charsmap **out, struct str bytes,
                           struct errmsg *e); /* bytes are copied */
void charsmap_free(struct charsmap *c);
/* Appends the normalised text: the longest key at each place is replaced; other characters are copied, stray bytes
 * become U+FFFD. */
void charsmap_apply(const struct charsmap *c, struct str text, struct buf *out);

#endif
