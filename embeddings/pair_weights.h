/* pair_weights.h - the shipped weights of the pair net, as they lie in embeddings/pair_weights.gguf, inside the executable. */
#ifndef DEJA_EMBEDDINGS_PAIR_WEIGHTS_H
#define DEJA_EMBEDDINGS_PAIR_WEIGHTS_H
#include "base/str.h"

struct str pair_weights(void); /* at an address that is a multiple of 8; lives for ever */

#endif
