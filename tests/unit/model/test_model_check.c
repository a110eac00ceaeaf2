/* test_model_check.c - goal: damaged and dishonest model files are refused with a reason, sound ones are not. Method: a committed
 * collection of small files, each broken in one way, written to disk and judged; those that may be loaded or refused
 * only have to be survived. What is judged sound must also open. */
#include "engine/model/model_check.h"

#include <unistd.h>

#include "engine/model/model.h"
#include "tests/check.h"
#include "tests/unit/model/case_files.h"

/* Judges bytes as a file; *e says why not. */
static enum err judge(struct str bytes, struct errmsg *e)
{
    char path[] = "/tmp/deja-check-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0) abort();
    close(fd);
    if (!case_write_file(path, bytes.p, bytes.n)) abort();
    memset(e, 0, sizeof *e);
    enum err code = model_check(path, NULL, e);
    if (code == OK) { /* what is judged sound must open */
        struct model *m;
        struct model_options o = {
            .n_threads = 1, .block_tokens = 8, .n_blocks = 4, .max_batch_tokens = 8, .max_seqs = 2};
        struct errmsg why = {0};
        enum err opened = model_open(&m, path, &o, &why);
        CHECK_AT(opened == OK, "judged sound, but does not open: %s", why.text);
        model_close(m);
    }
    unlink(path);
    return code;
}

TEST(each_damaged_file_is_refused_with_a_reason)
{
    struct buf file;
    int n = 0, loaded = 0;
    buf_init(&file, 1 << 20);
    REQUIRE(case_read_file(TEST_DATA "/gguf_bad.jsonl", &file));
    struct str text = buf_view(&file);
    for (json_t *v; (v = case_next_json(&text)); json_decref(v)) {
        struct buf packed, bytes;
        struct errmsg e;
        buf_init(&packed, 1 << 20);
        buf_init(&bytes, 1 << 20);
        case_base64(case_text(v, "zlib_b64"), &packed);
        case_unzlib(buf_view(&packed), &bytes);
        CHECK_INT(bytes.n, json_integer_value(json_object_get(v, "size")));
        enum err code = judge(buf_view(&bytes), &e);
        const char *expect = case_text(v, "expect"), *id = case_text(v, "id"),
                   *title = case_text(v, "title");
        if (!strcmp(expect, "load"))
            CHECK_AT(code == OK, "%s (%s) was refused: %s", id, title, e.text);
        if (!strcmp(expect, "reject")) CHECK_AT(code != OK, "%s (%s) was accepted", id, title);
        CHECK_AT(code == OK || strlen(e.text) > 30, "%s (%s): no reason given", id, title);
        loaded += code == OK;
        n++;
        buf_fini(&packed);
        buf_fini(&bytes);
    }
    printf("    %d files, %d of them judged sound\n", n, loaded);
    CHECK_INT(n, 72);
    buf_fini(&file);
}

TEST(the_tiny_models_are_sound)
{
    static const struct {
        const char *path, *want;
    } cases[] = {
        {TEST_DATA "/tiny-llama-f32.gguf",
         "llama decoder: 2 layers, width 64, 4/2 heads of 16, feed-forward 64"},
        {TEST_DATA "/tiny-llama-mixed.gguf", "llama decoder: 3 layers"},
        {TEST_DATA "/tiny-qwen2-k.gguf", "qwen2 decoder: 1 layers, width 256"},
        {TEST_DATA "/tiny-bert.gguf", "bert encoder: 2 layers, width 64, 4 heads"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct errmsg e = {0};
        struct buf summary;
        buf_init(&summary, 1000);
        CHECK_AT(model_check(cases[i].path, &summary, &e) == OK, "%s", e.text);
        CHECK_AT(summary.n && strstr(summary.p, cases[i].want), "summary is \"%s\"",
                 summary.n ? summary.p : "");
        buf_fini(&summary);
    }
}

TEST_MAIN()
