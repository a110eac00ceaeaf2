/* model_check.h - is this model file sound, and can this program run it? Judges metadata, tensors, tokenizer and chat
 * template without loading the weights. Any thread. */
#ifndef DEJA_ENGINE_MODEL_MODEL_CHECK_H
#define DEJA_ENGINE_MODEL_MODEL_CHECK_H
#include "base/buf.h"

/* A decoder (see arch.c) or an encoder (bert). On OK appends one line that describes the file to summary (may be NULL). */
MUST enum err model_check(const char *path, struct buf *summary, struct errmsg *e);

#endif
