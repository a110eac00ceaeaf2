/* fuzz_spm.c - SentencePiece's BPE on any bytes and small vocabularies read from the input: what is encoded decodes to the text
 * (a word mark typed by the user becomes a space), short and long words alike. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/text/tokenizer.h"

enum { PIECES = 24, TOKENS = 3 + 256 + PIECES };

/* Pieces of one to four letters, scores and types from the first bytes of the input; a piece seen before is made unique and
 * unreachable. */
static struct tokenizer *open_from(const uint8_t *in)
{
    static char names[256][8], text[PIECES][24];
    struct str tokens[TOKENS] = {STR("<unk>"), STR("<s>"), STR("</s>")};
    int32_t types[TOKENS] = {TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_CONTROL};
    float scores[TOKENS] = {0};
    for (int i = 0; i < 256; i++) {
        snprintf(names[i], sizeof names[i], "<0x%02X>", i);
        tokens[3 + i] = str_of(names[i]);
        types[3 + i] = TOKEN_BYTE;
    }
    for (int i = 0; i < PIECES; i++) {
        static const char *const letters[] = {"a", "b", "\xe2\x96\x81", "\xe4\xbd\xa0"};
        size_t n = 0;
        for (int k = 0; k <= in[2 * i] >> 6; k++)
            n += (size_t)snprintf(text[i] + n, sizeof text[i] - n, "%s",
                                  letters[in[2 * i] >> 2 * (k % 3) & 3]);
        for (int k = 0; k < i; k++)
            if (!strcmp(text[i], text[k])) snprintf(text[i], sizeof text[i], "Z%d", i);
        tokens[3 + 256 + i] = str_of(text[i]);
        types[3 + 256 + i] = in[2 * i + 1] & 0x80 ? TOKEN_UNUSED : TOKEN_NORMAL;
        scores[3 + 256 + i] = (float)(in[2 * i + 1] & 0x0F);
    }
    struct tokenizer_spec spec = {.kind = TOKENIZER_SPM,
                                  .n_tokens = TOKENS,
                                  .tokens = tokens,
                                  .types = types,
                                  .scores = scores,
                                  .bos = 1,
                                  .eos = 2,
                                  .unk = 0,
                                  .pad = -1,
                                  .cls = -1,
                                  .sep = -1};
    struct tokenizer *t = NULL;
    enum err err = tokenizer_new(&t, &spec, NULL);
    ASSERT(err == OK);
    return t;
}

/* The text with each word mark turned into a space. */
static void unmark(struct str text, struct buf *out)
{
    for (size_t i = 0; i < text.n; i++) {
        bool mark = i + 3 <= text.n && !memcmp(text.p + i, "\xe2\x96\x81", 3);
        buf_char(out, mark ? ' ' : text.p[i]);
        i += mark ? 2 : 0;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (n < 2 * PIECES || n > 20000) return 0;
    struct tokenizer *t = open_from(bytes);
    struct str text = {(const char *)bytes + 2 * PIECES, n - 2 * PIECES};
    struct token_list l;
    struct buf want, got;
    buf_init(&want, text.n + 1);
    buf_init(&got, 3 * text.n + 1);
    token_list_init(&l, 3 * n + 1);
    tokenizer_encode(t, text, 0, &l);
    ASSERT(!l.failed);
    for (size_t i = 0; i < l.n; i++)
        buf_str(&got, tokenizer_bytes(t, l.ids[i], true));
    unmark(text, &want);
    /* A mark that is no piece stays the three bytes it was. */
    struct buf got_unmarked;
    buf_init(&got_unmarked, 3 * text.n + 1);
    unmark(buf_view(&got), &got_unmarked);
    ASSERT(str_eq(buf_view(&got_unmarked), buf_view(&want)));
    buf_fini(&got_unmarked);
    buf_fini(&want);
    buf_fini(&got);
    token_list_fini(&l);
    tokenizer_free(t);
    return 0;
}
