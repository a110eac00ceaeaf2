/* fuzz_wordpiece.c - WordPiece and unigram on any bytes: ids stay in range, the token count within the text's size; and any
 * bytes as a precompiled character map. The first byte says which. */
#include "base/mem.h"
#include "engine/text/charsmap.h"
#include "engine/text/tokenizer.h"

#define B "\xe2\x96\x81"
static const struct str words[] = {STR("[UNK]"), STR("[CLS]"), STR("[SEP]"), STR("a"),
                                   STR("##a"),   STR("ab"),    STR("##b"),   STR("\xe4\xbd\xa0"),
                                   STR("."),     STR("e"),     STR("##e"),   STR("1")};
static const struct str pieces[] = {STR("<unk>"),        STR("<s>"), STR("</s>"), STR(B),
                                    STR(B "a"),          STR("a"),   STR("ab"),   STR("b"),
                                    STR("\xe4\xbd\xa0"), STR("."),   STR("e"),    STR("1")};
static const int32_t types[] = {2, 3, 3, 1, 1, 1, 1, 1, 1, 1, 4, 1};
static const float scores[] = {0, 0, 0, -2, -3, -3, -4, -3, -5, -3, -3, -6};
enum { N = 12 };

static struct tokenizer *open_kind(enum tokenizer_kind kind, struct str map)
{
    struct tokenizer_spec spec = {.kind = kind,
                                  .n_tokens = N,
                                  .tokens = kind == TOKENIZER_UNIGRAM ? pieces : words,
                                  .types = types,
                                  .scores = scores,
                                  .bos = 1,
                                  .eos = 2,
                                  .unk = 0,
                                  .pad = -1,
                                  .cls = 1,
                                  .sep = 2,
                                  .add_bos = true,
                                  .add_eos = true,
                                  .lowercase = true,
                                  .charsmap = map};
    struct tokenizer *t = NULL;
    return tokenizer_new(&t, &spec, NULL) ? NULL : t;
}

static void check_text(const struct tokenizer *t, struct str text)
{
    struct token_list l;
    token_list_init(&l, text.n * 24 + 16);
    tokenizer_encode(t, text, TOKENIZE_ADD_SPECIAL, &l);
    ASSERT(!l.failed && l.n >= 2 && l.ids[0] == 1 && l.ids[l.n - 1] == 2);
    for (size_t i = 0; i < l.n; i++)
        ASSERT(l.ids[i] >= 0 && l.ids[i] < N);
    token_list_fini(&l);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static struct tokenizer *wordpiece, *unigram;
    if (n < 1 || n > 20000) return 0;
    if (!wordpiece) wordpiece = open_kind(TOKENIZER_WORDPIECE, (struct str){NULL, 0});
    if (!unigram) unigram = open_kind(TOKENIZER_UNIGRAM, (struct str){NULL, 0});
    struct str text = {(const char *)bytes + 1, n - 1};
    if (bytes[0] % 3 == 0) check_text(wordpiece, text);
    if (bytes[0] % 3 == 1) check_text(unigram, text);
    if (bytes[0] % 3 == 2) {
        struct tokenizer *mapped = open_kind(TOKENIZER_UNIGRAM, text);
        struct token_list l;
        token_list_init(&l, 10000);
        if (mapped)
            tokenizer_encode(mapped,
                             STR("ab \xe4\xbd\xa0.\xff"
                                 "e1"),
                             0, &l);
        token_list_fini(&l);
        tokenizer_free(mapped);
    }
    return 0;
}
