/* Goal: a model file's metadata alone leads to the same prompt tokens as the file, and messages in any form clients use mean the same.
 * Method: the tiny generated model; ids compared. */
#include "base/json.h"
#include "base/mem.h"
#include "engine/model/gguf.h"
#include "engine/model/tokenizer_load.h"
#include "engine/text/chat_prompt.h"
#include "tests/check.h"

struct reader {
    struct gguf *file;
    struct tokenizer *tokenizer;
    struct chat_template *template;
    struct chat_reader text;
};

static bool reader_open(struct reader *r, struct gguf *file)
{
    struct errmsg e = {0};
    *r = (struct reader){.file = file};
    enum err code = chat_reader_from_gguf(&r->tokenizer, &r->template, &r->text, file, &e);
    CHECK_AT(code == OK && r->template, "%s", e.text);
    return code == OK && r->template;
}

static void reader_close(struct reader *r)
{
    tokenizer_free(r->tokenizer);
    chat_template_free(r->template);
    gguf_close(r->file);
}

static struct token_list ids_of(const struct reader *r, const char *messages, const char *tools)
{
    struct token_list l;
    struct errmsg e = {0};
    json_t *m = NULL, *t = NULL;
    token_list_init(&l, 100000);
    CHECK(json_parse(str_of(messages), 0, &m, NULL) == OK);
    if (tools) CHECK(json_parse(str_of(tools), 0, &t, NULL) == OK);
    struct chat_prompt p = {.messages = m, .tools = t};
    CHECK_AT(chat_prompt_encode(&r->text, &p, &l, &e) == OK, "%s", e.text);
    CHECK(l.n > 0 && !l.failed);
    json_decref(m);
    json_decref(t);
    return l;
}

static bool same(struct token_list a, struct token_list b)
{
    bool equal = a.n == b.n && !memcmp(a.ids, b.ids, a.n * sizeof *a.ids);
    token_list_fini(&a);
    token_list_fini(&b);
    return equal;
}

static const char plain[] = "[{\"role\":\"system\",\"content\":\"Be "
                            "brief.\"},{\"role\":\"user\",\"content\":\"one\\ntwo <|im_end|>\"}]";
static const char parts[] =
    "[{\"role\":\"developer\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":"
    "[{\"type\":\"text\",\"text\":\"one\"},"
    "{\"type\":\"text\",\"text\":\"two <|im_end|>\"}]}]";

TEST(metadata_alone_gives_the_same_prompt)
{
    struct gguf *file, *copy;
    struct reader a, b;
    struct buf bytes;
    REQUIRE(gguf_open(&file, TEST_DATA "/tiny-llama-mixed.gguf", NULL) == OK);
    buf_init(&bytes, 64 << 20);
    gguf_write_metadata(file, &bytes);
    CHECK(bytes.n < gguf_file_bytes(file).n);
    REQUIRE(gguf_from_bytes(&copy, bytes.p, bytes.n, NULL) == OK);
    CHECK(!memcmp(bytes.p + 16, gguf_file_bytes(file).p + 16, 8)); /* as many keys */
    CHECK_INT(gguf_n_tensors(copy), 0);
    REQUIRE(reader_open(&a, file) && reader_open(&b, copy));
    CHECK(same(ids_of(&a, plain, NULL), ids_of(&b, plain, NULL)));
    reader_close(&a);
    reader_close(&b);
    buf_fini(&bytes);
}

TEST(content_parts_and_old_role_names_mean_the_plain_form)
{
    struct gguf *file;
    struct reader r;
    REQUIRE(gguf_open(&file, TEST_DATA "/tiny-llama-mixed.gguf", NULL) == OK);
    REQUIRE(reader_open(&r, file));
    CHECK(same(ids_of(&r, plain, NULL), ids_of(&r, parts, NULL)));
    reader_close(&r);
}

TEST(tools_are_told_in_words_where_the_template_knows_none)
{
    static const char tools[] =
        "[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{}}}]";
    struct gguf *file;
    struct reader r;
    REQUIRE(gguf_open(&file, TEST_DATA "/tiny-llama-mixed.gguf", NULL) == OK);
    REQUIRE(reader_open(&r, file));
    CHECK(same(ids_of(&r, plain, tools), ids_of(&r, plain, NULL)));
    r.text.tools_in_words = true;
    struct token_list with = ids_of(&r, plain, tools), without = ids_of(&r, plain, NULL);
    CHECK(with.n > without.n + 20);
    CHECK(!same(with, without));
    r.text.template = NULL;
    struct token_list none;
    struct errmsg e;
    token_list_init(&none, 10);
    CHECK(chat_prompt_encode(&r.text, &(struct chat_prompt){0}, &none, &e) == ERR_UNSUPPORTED);
    reader_close(&r);
}

TEST_MAIN()
