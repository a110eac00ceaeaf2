/* normalise.h - Unicode normal forms over UTF-8: NFC and NFKC of a text, and single decompositions for WordPiece.
 * Bytes that are not UTF-8 pass unchanged. Pure; any thread. A run of more than 250 combining marks on one letter is cut
 * into several, so that hostile text cannot make sorting them slow.
 * Source: UAX #15. */
#ifndef DEJA_ENGINE_TEXT_NORMALISE_H
#define DEJA_ENGINE_TEXT_NORMALISE_H
#include "base/buf.h"

enum normal_form { NORMAL_NFC, NORMAL_NFKC };

/* False: the text is in NFC for sure (a quick look; true may be a false alarm). */
bool normalise_may_change_nfc(struct str text);
void normalise(enum normal_form form, struct str text, struct buf *out); /* appends */

#define DECOMPOSED_MAX 18 /* code points; the longest is U+FDFA */
/* Full decomposition of one code point (compatibility when compat), in storage order. Returns how many, at least 1. */
int normalise_decompose(uint32_t code, bool compat, uint32_t out[DECOMPOSED_MAX]);

#endif
