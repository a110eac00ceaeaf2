/* fuzz_openai.c - the first byte chooses: a request of each kind and strictness, a JSON answer, or a stream (one frame a line). What is
 * taken as an answer survives being written as JSON and as a stream; a glance takes nothing that the parser does not take, and who only
 * watches a stream comes to the same. */
#include "base/openai.h"
#include "base/openai_glance.h"
#include "base/sse.h"

static void check_request(struct str text, unsigned choice)
{
    struct openai_request r;
    struct openai_error e;
    struct buf b;
    buf_init(&b, 1 << 20);
    enum err code = openai_parse(&r, (enum openai_kind)(choice % 3), text,
                                 (enum openai_strict)(choice / 3 % 2), &e);
    if (code) {
        json_t *v;
        ASSERT(e.status == 400 && *e.message);
        openai_error_write(&b, &e);
        ASSERT(json_parse(buf_view(&b), 0, &v, NULL) == OK);
        json_decref(v);
    } else {
        ASSERT(r.n >= 1 && r.model.n && !json_object_get(r.body, "cache"));
        (void)openai_last_user_text(&r, &b);
        openai_request_fini(&r);
    }
    buf_fini(&b);
}

static bool collect(void *arg, const struct sse_event *ev)
{
    enum err code = openai_collector_feed(arg, ev->data, NULL);
    ASSERT(code == OK);
    return true;
}

static bool finished(const struct openai_answer *a)
{
    for (int i = 0; i < a->n_choices; i++)
        if (!*a->choices[i].finish_reason) return false;
    return true;
}

static void check_answer(const struct openai_answer *a)
{
    struct openai_answer b;
    struct errmsg e = {0};
    struct buf out;
    buf_init(&out, 1 << 24);
    openai_answer_write_json(&out, a);
    ASSERT(openai_answer_parse(&b, a->kind, buf_view(&out), &e) == OK &&
           b.n_choices == a->n_choices);
    for (int i = 0; i < a->n_choices; i++)
        ASSERT(json_equal(a->choices[i].message, b.choices[i].message));
    openai_answer_fini(&b);
    buf_clear(&out);
    openai_answer_write_sse(&out, a, true, 3);
    struct openai_collector *c = openai_collector_new(a->kind, 1 << 24);
    struct sse_reader *r = sse_reader_new(1 << 24);
    ASSERT(sse_reader_feed(r, buf_view(&out), collect, c) == OK && !sse_reader_pending(r));
    enum err code = openai_collector_take(c, &b);
    ASSERT(code == (finished(a) ? OK : ERR_AGAIN));
    if (!code) openai_answer_fini(&b);
    sse_reader_free(r);
    openai_collector_free(c);
    buf_fini(&out);
}

static void check_stream(struct str text, enum openai_kind kind)
{
    struct openai_collector *c = openai_collector_new(kind, 1 << 20),
                            *watch = openai_collector_new(kind, 1 << 20);
    struct openai_answer a;
    struct str line;
    openai_collector_only_watch(watch);
    while (str_next(&text, '\n', &line)) {
        enum err code = openai_collector_feed(c, line, NULL);
        ASSERT(code == openai_collector_feed(watch, line, NULL));
        if (code) ASSERT(openai_collector_take(c, &a) == ERR_CORRUPT);
    }
    ASSERT(openai_collector_whole(c) == openai_collector_whole(watch));
    openai_collector_free(watch);
    bool complete = openai_collector_complete(c);
    if (openai_collector_take(c, &a) == OK) {
        ASSERT(complete);
        check_answer(&a);
        openai_answer_fini(&a);
    }
    openai_collector_free(c);
}

static void check_whole(struct str text, enum openai_kind kind)
{
    struct openai_answer a;
    struct openai_usage u;
    bool glanced = openai_glance(text, kind, &u),
         parsed = openai_answer_parse(&a, kind, text, NULL) == OK;
    ASSERT(parsed || !glanced);
    if (!parsed) return;
    ASSERT(!glanced || (u.known == a.usage.known && u.prompt_tokens == a.usage.prompt_tokens &&
                        u.completion_tokens == a.usage.completion_tokens &&
                        u.cached_tokens == a.usage.cached_tokens));
    check_answer(&a);
    openai_answer_fini(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (!n) return 0;
    struct str text = {(const char *)bytes + 1, n - 1};
    unsigned choice = bytes[0] % 10;
    enum openai_kind kind = choice % 2 ? OPENAI_COMPLETION : OPENAI_CHAT;
    if (choice < 6) {
        check_request(text, choice);
    } else if (choice < 8) {
        check_stream(text, kind);
    } else {
        check_whole(text, kind);
    }
    return 0;
}
