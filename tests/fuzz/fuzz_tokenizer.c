/* fuzz_tokenizer.c - byte-level BPE on any bytes: decode(encode(x)) is x for every family that does not normalise, whatever the
 * template segments are; the first byte picks the family, the second where the segments are cut. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"

static const char *const families[] = {
    "gpt-2",    "smollm",       "llama-bpe",      "qwen2",    "qwen35",      "gpt-4o",
    "tekken",   "jais-2",       "ufakzeka",       "laguna",   "seed-coder",  "minicpm5",
    "tiny_aya", "exaone-moe",   "youtu",          "spark2_5", "deepseek-v3", "afmoe",
    "falcon",   "deepseek-llm", "deepseek-coder", "bloom",    "viking"};
enum { FAMILIES = sizeof families / sizeof families[0], TOKENS = 256 + 8 + 3 };

static struct tokenizer *open_family(const char *pre)
{
    static const char *const merges[] = {
        "a b", "ab c", "b c", "\xc4\xa0 a", "a a", "aa aa", "\xc3\xa4 \xc2\xbd", "1 1"};
    static char text[TOKENS][16];
    struct str tokens[TOKENS], lines[8];
    int32_t types[TOKENS];
    int n = 0;
    uint32_t extra = 256;
    for (uint32_t b = 0; b < 256; b++, n++) {
        bool shown = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        tokens[n] = (struct str){text[n], utf8_encode(shown ? b : extra++, text[n])};
    }
    for (int i = 0; i < 8; i++, n++) {
        const char *space = strchr(merges[i] + 1, ' ');
        snprintf(text[n], sizeof text[n], "%.*s%s", (int)(space - merges[i]), merges[i], space + 1);
        tokens[n] = str_of(text[n]);
        lines[i] = str_of(merges[i]);
    }
    tokens[n++] = STR("<|end|>");
    tokens[n++] = STR("<|end|>>");
    tokens[n++] = STR("<tool>");
    for (int i = 0; i < TOKENS; i++)
        types[i] = i < TOKENS - 3   ? TOKEN_NORMAL
                   : i < TOKENS - 1 ? TOKEN_CONTROL
                                    : TOKEN_USER_DEFINED;
    struct tokenizer_spec spec = {.kind = TOKENIZER_BPE,
                                  .pre = pre,
                                  .n_tokens = TOKENS,
                                  .tokens = tokens,
                                  .types = types,
                                  .n_merges = 8,
                                  .merges = lines,
                                  .bos = -1,
                                  .eos = 264,
                                  .unk = -1,
                                  .pad = -1,
                                  .cls = -1,
                                  .sep = -1};
    struct tokenizer *t = NULL;
    enum err err = tokenizer_new(&t, &spec, NULL);
    ASSERT(err == OK);
    return t;
}

static void check_round_trip(const struct tokenizer *t, struct str text, const struct token_list *l,
                             bool exact)
{
    struct buf back;
    buf_init(&back, text.n * 4 + 64);
    for (size_t i = 0; i < l->n; i++) {
        ASSERT(l->ids[i] >= 0 && l->ids[i] < TOKENS);
        buf_str(&back, tokenizer_bytes(t, l->ids[i], true));
    }
    ASSERT(!exact || str_eq(buf_view(&back), text));
    buf_fini(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static struct tokenizer *t[FAMILIES];
    if (n < 2 || n > 20000) return 0;
    int family = bytes[0] % FAMILIES;
    if (!t[family]) t[family] = open_family(families[family]);
    struct str text = {(const char *)bytes + 2, n - 2};
    bool exact = family != 3 && family != 4; /* these two normalise */
    struct token_list l;
    token_list_init(&l, n);
    tokenizer_encode(t[family], text, bytes[1] & 1 ? TOKENIZE_PARSE_SPECIAL : 0, &l);
    ASSERT(!l.failed || !exact);
    check_round_trip(t[family], text, &l, exact);
    token_list_fini(&l);
    size_t cut = text.n ? bytes[1] % (text.n + 1) : 0;
    struct chat_segment segments[2] = {{0, cut, bytes[1] & 1},
                                       {cut, text.n - cut, !(bytes[1] & 1)}};
    token_list_init(&l, n);
    tokenizer_encode_segments(t[family], text, segments, 2, 0, &l);
    check_round_trip(t[family], text, &l, exact);
    token_list_fini(&l);
    return 0;
}
