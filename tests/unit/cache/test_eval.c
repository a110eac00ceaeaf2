/* test_eval.c - goal: an evaluation counts what look-ups would do: same and different pairs, an FAQ on both pairings and with everything
 * stored, a stream as it goes; files that are none are refused with file and line. Method: small files, a tiny encoder or none. */
#include "cache/eval.h"

#include <unistd.h>

#include "cache/eval_main.h"
#include "tests/check.h"

struct rig {
    struct evaluator ev;
    struct eval_file file;
    char path[64];
};

static bool write_file(struct rig *r, const char *text)
{
    memcpy(r->path, "/tmp/deja_eval_XXXXXX", 22);
    int fd = mkstemp(r->path);
    bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) close(fd);
    return ok;
}

static bool open_rig(struct rig *r, const char *text, bool embed)
{
    struct embedder_options o = {0};
    struct errmsg e = {0};
    memset(r, 0, sizeof *r);
    if (embed && embedder_open(&r->ev.embedder, TEST_DATA "/tiny-bert.gguf", &o, &e) != OK)
        return false;
    r->ev.texts = eval_texts_new(r->ev.embedder);
    r->ev.guard = guard_new();
    r->ev.shipped = policy_for(STR("tiny"));
    r->ev.knobs = knobs_default();
    bool ok = write_file(r, text) && eval_read(&r->file, r->path, r->ev.texts, &e) == OK;
    if (e.code) printf("    %s\n", e.text);
    return ok && eval_texts_embed(r->ev.texts, NULL);
}

static void close_rig(struct rig *r)
{
    eval_file_fini(&r->file);
    eval_texts_free(r->ev.texts);
    guard_free((struct guard *)(uintptr_t)r->ev.guard);
    embedder_close(r->ev.embedder);
    unlink(r->path);
}

static const char *const pairs =
    "# a comment\n"
    "{\"a\":\"How do I reset my password?\",\"b\":\"how can i reset my password "
    "please\",\"same\":true,"
    "\"category\":\"surface\"}\n"
    "{\"a\":\"How do I pay 5 euros?\",\"b\":\"How do I pay 6 euros?\",\"same\":false,\"category\":"
    "\"number\"}\n"
    "{\"a\":\"\xe6\x80\x8e\xe4\xb9\x88\xe9\x80\x80\xe8\xb4\xa7\",\"b\":\"\xe6\x80\x8e\xe4\xb9\x88"
    "\xe6\x8d\xa2\xe8\xb4\xa7\",\"same\":false,\"category\":\"verb\"}\n"
    "{\"a\":[1],\"b\":\"x\",\"same\":true}\n";

TEST(pairs_are_counted_by_category_and_language)
{
    struct rig r;
    static struct eval_result out;
    struct buf text;
    REQUIRE(open_rig(&r, pairs, false));
    CHECK(r.file.kind == EVAL_PAIRS && r.file.n == 3 && r.file.skipped == 1);
    eval_run(&r.ev, &r.file, &out);
    CHECK(out.same.n == 1 && out.same.hits == 1 && out.differ.n == 2 && out.differ.hits == 0);
    CHECK_INT(out.n_categories, 3);
    CHECK(out.categories[2].language == 'z' && out.categories[2].differ.n == 1);
    buf_init(&text, 1 << 16);
    eval_report_text(&text, &r.file, &out, "as shipped");
    CHECK(str_find(buf_view(&text), STR("1 of     1")) > 0);
    buf_clear(&text);
    eval_report_json(&text, &r.file, &out, "as shipped");
    CHECK(str_find(buf_view(&text), STR("\"differ\":{\"hits\":0,\"n\":2")) > 0);
    buf_fini(&text);
    close_rig(&r);
}

TEST(an_faq_is_asked_on_both_pairings_and_with_everything_stored)
{
    struct rig r;
    static struct eval_result out;
    REQUIRE(
        open_rig(&r,
                 "{\"q\":\"How do I reset my password?\",\"same\":[\"how can i reset my password\","
                 "\"please, how do I reset my password\"],\"near\":[\"How do I reset my "
                 "username?\"]}\n"
                 "{\"q\":\"Where is my parcel?\",\"same\":[\"where is my parcel\"],\"differ\":"
                 "[{\"q\":\"Where is my refund?\",\"why\":\"entity\"}]}\n",
                 true));
    eval_run(&r.ev, &r.file, &out);
    CHECK(out.same.n == 3 && out.same.hits == 3);
    CHECK(out.differ.n == 2 && !out.differ.hits && out.near_wording.n == 3 &&
          !out.near_wording.hits);
    CHECK(out.right.n == 3 && out.right.hits == 3 && !out.wrong.hits);
    CHECK(out.wrong_alone.n == 3 && !out.wrong_alone.hits);
    CHECK_NEAR(out.precision[0], -1, 1e-9); /* 5 % of three requests is none */
    CHECK_NEAR(out.precision[3], 1, 1e-9);
    close_rig(&r);
}

TEST(a_stream_serves_what_was_answered_before_and_learns)
{
    struct rig r;
    static struct eval_result out;
    REQUIRE(open_rig(&r,
                     "{\"q\":\"How do I reset my password?\",\"answer\":\"forgot\"}\n"
                     "{\"q\":\"Where is my parcel?\",\"answer\":\"there\"}\n"
                     "{\"q\":\"how can i reset my password\",\"answer\":\"forgot\"}\n"
                     "{\"q\":\"where is my parcel please\",\"answer\":\"elsewhere\"}\n",
                     true));
    CHECK_INT(r.file.kind, EVAL_STREAM);
    eval_run(&r.ev, &r.file, &out);
    CHECK(out.served.n == 4 && out.served.hits == 2);
    CHECK(out.wrong_served.n == 2 && out.wrong_served.hits == 1);
    close_rig(&r);
}

TEST(a_pair_is_explained_step_by_step)
{
    struct rig r;
    struct eval_explained x;
    REQUIRE(open_rig(&r, pairs, true));
    eval_explain(&r.ev, r.file.pairs[1].a, r.file.pairs[1].b, &x);
    CHECK(!x.item.hit && x.cosine > -1 && x.item.guard.fired);
    eval_explain(&r.ev, r.file.pairs[0].a, r.file.pairs[0].b, &x);
    CHECK(x.item.hit);
    CHECK_Z(x.item.reason, "semantic:same");
    close_rig(&r);
}

TEST(files_that_are_none_are_refused_with_their_line)
{
    static const struct {
        const char *text, *says;
    } cases[] = {{"{\"a\":\"x\",\"b\":\"y\"}\n", ":1: \"same\""},
                 {"{\"a\":\"x\",\"b\":\"y\",\"same\":true}\n{broken\n", ":2:"},
                 {"[1]\n", ":1: expected an object"},
                 {"{\"q\":\"x\",\"same\":[1]}\n", "\"same\"[0]"},
                 {"{\"q\":\"x\"}\n", "\"answer\""},
                 {"\n# nothing\n", "holds no questions"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rig r = {0};
        struct eval_texts *t = eval_texts_new(NULL);
        struct errmsg e = {0};
        REQUIRE(write_file(&r, cases[i].text));
        CHECK(eval_read(&r.file, r.path, t, &e) != OK);
        CHECK_AT(strstr(e.text, cases[i].says), "\"%s\"", e.text);
        unlink(r.path);
        eval_texts_free(t);
    }
    char *none[] = {"eval"}, *one[] = {"explain", "A"};
    CHECK_INT(eval_main(1, none), 2);
    CHECK_INT(explain_main(2, one), 2);
}

TEST_MAIN()
