/* pretokenize.h - cuts text into the words that byte-level BPE never merges across. Hand-written scanners, equal to the regular
 * expressions that a family's models were trained with; no regular expression engine, and linear in the text. Bytes that are
 * not UTF-8 count as characters of no class. Pure; any thread. */
#ifndef DEJA_ENGINE_TEXT_PRETOKENIZE_H
#define DEJA_ENGINE_TEXT_PRETOKENIZE_H
#include "base/str.h"

struct pretokenize_family; /* constant */
struct pretokenize_rule {
    const struct pretokenize_family *family;
    bool nfc;         /* the family's models saw text in Unicode normal form C */
    bool whole_words; /* a word that is a token stays whole, whatever the merges say */
    bool bos;         /* text starts with the bos token unless the file says otherwise */
};

/* name as in tokenizer.ggml.pre ("smollm", "qwen2", "llama-bpe", ..). ERR_UNSUPPORTED when we have no scanner for it. */
MUST enum err pretokenize_rule_of(const char *name, struct pretokenize_rule *out);

/* A family cuts in passes, each inside the pieces that the one before has left. */
enum { PRETOKENIZE_PASSES_MAX = 6 };
struct pretokenize_walk {
    const struct pretokenize_family *family;
    struct str text; /* borrowed */
    size_t at;
    struct {
        size_t from, end;
    } piece[PRETOKENIZE_PASSES_MAX]; /* that each pass is in */
};
void pretokenize_start(struct pretokenize_walk *w, const struct pretokenize_family *family,
                       struct str text);
/* The next word; false at the end. Words are adjacent, not empty, and cover the text. */
bool pretokenize_next(struct pretokenize_walk *w, struct str *word);

size_t pretokenize_names(void); /* how many names are known */

#endif
