/* pretokenize.h - cuts text into the words that byte-level BPE never merges across. One hand-written scanner a family, equal to
 * the regular expression that the family's models were trained with; no regular expression engine. Bytes that are not
 * UTF-8 count as symbols. Pure; any thread. */
#ifndef DEJA_ENGINE_TEXT_PRETOKENIZE_H
#define DEJA_ENGINE_TEXT_PRETOKENIZE_H
#include "base/str.h"

enum pretokenize_family {
    PRETOKENIZE_GPT2,
    PRETOKENIZE_DIGITS, /* every number character alone, then as GPT-2 */
    PRETOKENIZE_LLAMA3,
    PRETOKENIZE_QWEN2,  /* as LLAMA3 with single digits */
    PRETOKENIZE_QWEN35, /* as QWEN2, marks belong to letters */
    PRETOKENIZE_GPT4O,  /* words also end where lower case is followed by upper case */
    PRETOKENIZE_TEKKEN  /* as GPT4O, single digits, no contractions */
};
struct pretokenize_rule {
    enum pretokenize_family family;
    bool nfc; /* the family's models saw text in Unicode normal form C */
};

/* name as in tokenizer.ggml.pre ("smollm", "qwen2", "llama-bpe", ..). ERR_UNSUPPORTED when we have no scanner for it. */
MUST enum err pretokenize_rule_of(const char *name, struct pretokenize_rule *out);
/* End of the word that starts at `from` (< text.n); always > from. Words are adjacent and cover the text. */
size_t pretokenize_word(enum pretokenize_family family, struct str text, size_t from);

#endif
