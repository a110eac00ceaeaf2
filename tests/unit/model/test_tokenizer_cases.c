/* test_tokenizer_cases.c - the tokenizers read from real model files give the ids of independent references
 * (tests/data/tokenizer.jsonl), and bytes survive a round trip. Skips where the model files are not there. */
#include "engine/model/gguf.h"
#include "engine/model/tokenizer_load.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "tests/check.h"
#include "tests/unit/model/case_files.h"

static struct gguf *open_model(const char *file)
{
    char path[600];
    const char *cache = getenv("DEJA_CACHE"), *home = getenv("HOME");
    if (cache)
        snprintf(path, sizeof path, "%s/models/%s", cache, file);
    else
        snprintf(path, sizeof path, "%s/.cache/deja/models/%s", home ? home : "", file);
    struct gguf *g = NULL;
    struct errmsg e = {0};
    return gguf_open(&g, path, &e) ? NULL : g;
}

static const struct {
    const char *family, *file;
} families[] = {{"smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"},
                {"qwen2.5", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"},
                {"gemma3", "gemma-3-270m-q4_k_m.gguf"}};

static struct tokenizer *open_family(const char *family)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        if (strcmp(family, families[i].family)) continue;
        struct gguf *g = open_model(families[i].file);
        if (!g) return NULL;
        struct tokenizer *t = NULL;
        struct errmsg e = {0};
        enum err err = tokenizer_from_gguf(&t, g, &e);
        CHECK_AT(err == OK, "%s: %s", family, e.text);
        gguf_close(g);
        return t;
    }
    return NULL;
}

static void check_ids(const json_t *c, const char *key, const struct token_list *got)
{
    const json_t *want = json_object_get(c, key);
    bool same = json_array_size(want) == got->n && !got->failed;
    for (size_t i = 0; same && i < got->n; i++)
        same = json_integer_value(json_array_get(want, i)) == got->ids[i];
    if (same) return;
    char *w = json_dumps(want, JSON_COMPACT);
    CHECK_AT(false, "%s: expected %s", case_text(c, "id"), w);
    free(w);
    for (size_t i = 0; i < got->n; i++)
        printf("%d ", got->ids[i]);
    printf("\n");
}

static struct str decode(const struct tokenizer *t, const struct token_list *l, struct buf *out)
{
    for (size_t i = 0; i < l->n; i++)
        buf_str(out, tokenizer_bytes(t, l->ids[i], true));
    return buf_view(out);
}

static struct str json_bytes(const json_t *v)
{
    return (struct str){json_string_value(v), json_string_length(v)};
}

/* One line of the file on one tokenizer: ids equal the reference's, and decode to the text or the stated form. */
static void check_text_case(const struct tokenizer *t, const json_t *c)
{
    struct str text = json_bytes(json_object_get(c, "text"));
    struct token_list ids;
    struct buf back;
    buf_init(&back, 1 << 20);
    token_list_init(&ids, 100000);
    tokenizer_encode(t, text,
                     json_is_true(json_object_get(c, "parse_special")) ? TOKENIZE_PARSE_SPECIAL : 0,
                     &ids);
    check_ids(c, "ids", &ids);
    const json_t *stated = json_object_get(c, "decode");
    struct str want = stated ? json_bytes(stated) : text;
    CHECK_AT(str_eq(decode(t, &ids, &back), want), "%s does not decode to its text",
             case_text(c, "id"));
    buf_fini(&back);
    token_list_fini(&ids);
}

static void run_family(const char *family)
{
    struct tokenizer *t = open_family(family);
    if (!t) SKIP("the model file is not in the cache folder");
    struct buf file;
    buf_init(&file, 1 << 20);
    REQUIRE(case_read_file(TEST_DATA "/tokenizer.jsonl", &file));
    struct str text = buf_view(&file), line;
    int n = 0;
    while (str_next(&text, '\n', &line)) {
        json_t *c = json_loadb(line.p, line.n, JSON_ALLOW_NUL, NULL);
        if (c && !strcmp(case_text(c, "family"), family) && json_object_get(c, "text")) {
            check_text_case(t, c);
            n++;
        }
        json_decref(c);
    }
    CHECK(n > 40);
    buf_fini(&file);
    tokenizer_free(t);
}

TEST(smollm2_ids_equal_the_reference)
{
    run_family("smollm2");
}
TEST(qwen2_ids_equal_the_reference)
{
    run_family("qwen2.5");
}

TEST(gemma3_ids_equal_the_reference)
{
    run_family("gemma3");
}

TEST(end_tokens_are_those_that_close_a_turn)
{
    struct tokenizer *t = open_family("smollm2");
    if (!t) SKIP("the model file is not in the cache folder");
    CHECK(tokenizer_is_end(t, 2));  /* <|im_end|>, the file's eos */
    CHECK(tokenizer_is_end(t, 0));  /* <|endoftext|> */
    CHECK(!tokenizer_is_end(t, 1)); /* <|im_start|> */
    CHECK(!tokenizer_is_end(t, 500));
    CHECK_STR(tokenizer_bytes(t, 2, true), "<|im_end|>");
    CHECK_STR(tokenizer_bytes(t, 2, false), "");
    CHECK_INT(tokenizer_id_of(t, STR("<|im_start|>")), 1);
    tokenizer_free(t);
}

/* One chat: the file's template renders the reference's text, and its tokens are the reference's: what a user wrote
 * never becomes a control token, while words run across the borders of messages as in the plain text. */
static void check_chat_case(const struct tokenizer *t, const struct chat_template *template,
                            const json_t *c)
{
    struct chat_render_options opt = {.messages = json_object_get(c, "messages"),
                                      .add_generation_prompt =
                                          json_is_true(json_object_get(c, "add_generation_prompt")),
                                      .bos_token = "<|im_start|>",
                                      .eos_token = "<|im_end|>",
                                      .text_max = 1 << 20,
                                      .steps_max = 100000};
    struct chat_rendering r;
    struct errmsg e = {0};
    struct token_list ids;
    enum err err = chat_template_render(template, &opt, &r, &e);
    CHECK_AT(!err, "%s: %s", case_text(c, "id"), e.text);
    if (err) return;
    CHECK_STR(buf_view(&r.text), case_text(c, "rendered"));
    token_list_init(&ids, 100000);
    tokenizer_encode_segments(t, buf_view(&r.text), r.segments, r.n_segments, 0, &ids);
    check_ids(c, "ids", &ids);
    token_list_fini(&ids);
    chat_rendering_fini(&r);
}

TEST(chats_become_the_reference_ids)
{
    struct gguf *g = open_model(families[0].file);
    if (!g) SKIP("the model file is not in the cache folder");
    struct tokenizer *t = open_family("smollm2");
    struct chat_template *template;
    struct errmsg e = {0};
    struct buf file;
    buf_init(&file, 1 << 20);
    REQUIRE(t && chat_template_from_gguf(&template, g, NULL, &e) == OK);
    REQUIRE(case_read_file(TEST_DATA "/tokenizer.jsonl", &file));
    struct str text = buf_view(&file), line;
    int n = 0;
    while (str_next(&text, '\n', &line)) {
        json_t *c = json_loadb(line.p, line.n, JSON_ALLOW_NUL, NULL);
        if (c && json_object_get(c, "messages")) {
            check_chat_case(t, template, c);
            n++;
        }
        json_decref(c);
    }
    CHECK(n >= 6);
    char eos[64];
    tokenizer_token_text(g, "tokenizer.ggml.eos_token_id", eos, sizeof eos);
    CHECK_Z(eos, "<|im_end|>");
    buf_fini(&file);
    chat_template_free(template);
    tokenizer_free(t);
    gguf_close(g);
}

TEST_MAIN()
