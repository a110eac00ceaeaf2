/* Goal: every case of http_api.jsonl that a look at the body decides is decided as expected, for
 * the gateway and for the engine; every scripted upstream of sse.jsonl is judged complete or not as
 * expected, with the expected text. Method: the shared case files themselves; what only a running
 * server can know (unknown model, context length) is told apart by id. */
#include "base/openai.h"
#include "base/sse.h"
#include "tests/check.h"
#include "tests/unit/base/case_file.h"

/* Decided after parsing: body cap of the HTTP server, context length, vocabulary. */
static const char *const later[] = {"http-size-01",        "http-messages-43",   "http-messages-44",
                                    "http-completions-05", "http-embeddings-07", NULL};

static bool listed(const char *const *list, struct str id)
{
    while (*list && !str_eqz(id, *list))
        list++;
    return *list != NULL;
}

static void repeat(struct buf *b, const char *text, int64_t times)
{
    while (times-- > 0)
        buf_z(b, text);
}

static void generate(struct buf *b, const json_t *gen)
{
    const char *kind = json_string_value(json_object_get(gen, "kind")),
               *field = json_string_value(json_object_get(gen, "field"));
    const char *text = json_string_value(json_object_get(gen, "text")),
               *leaf = json_string_value(json_object_get(gen, "leaf"));
    int64_t count = json_integer_value(json_object_get(gen, "count")),
            times = json_integer_value(json_object_get(gen, "times"));
    int64_t depth = json_integer_value(json_object_get(gen, "depth"));
    const char *start =
        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"Say hi.\"}]";
    if (!strcmp(kind, "nest")) {
        buf_printf(b, "%s,\"%s\":", start, field);
        repeat(b, json_string_value(json_object_get(gen, "open")), depth);
        buf_z(b, leaf ? leaf : "");
        repeat(b, json_string_value(json_object_get(gen, "close")), depth);
        buf_char(b, '}');
    } else if (!strcmp(kind, "repeat_raw")) {
        repeat(b, text, times);
    } else if (!strcmp(kind, "many_messages")) {
        buf_z(b, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}");
        repeat(b, ",{\"role\":\"user\",\"content\":\"a\"}", count - 1);
        buf_z(b, "]}");
    } else if (!strcmp(kind, "many_keys")) {
        buf_printf(b, "%s,\"%s\":{\"k\":\"v\"", start, field);
        for (int64_t i = 1; i < count; i++)
            buf_printf(b, ",\"k%lld\":\"v\"", (long long)i);
        buf_z(b, "}}");
    } else if (!strcmp(kind, "model_repeat")) {
        buf_z(b, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"model\":\"");
        repeat(b, text, times);
        buf_z(b, "\"}");
    } else if (!strcmp(kind, "embed_many")) {
        buf_z(b, "{\"model\":\"m\",\"input\":[\"x\"");
        repeat(b, ",\"x\"", count - 1);
        buf_z(b, "]}");
    }
}

static bool body_of(struct buf *out, const json_t *c)
{
    struct buf raw, half;
    buf_init(&raw, 64 << 20);
    buf_init(&half, 64 << 20);
    if (json_object_get(c, "body"))
        json_write(&raw, json_object_get(c, "body"));
    else if (json_object_get(c, "body_raw"))
        buf_str(&raw, json_member_str(c, "body_raw"));
    else if (json_object_get(c, "body_b64"))
        case_base64(&raw, json_member_str(c, "body_b64"));
    else if (json_object_get(c, "body_gen"))
        generate(&raw, json_object_get(c, "body_gen"));
    case_replace(&half, buf_view(&raw), "$EMBED_MODEL", "e");
    case_replace(out, buf_view(&half), "$MODEL", "m");
    bool known = raw.n || json_object_get(c, "body_raw");
    buf_fini(&raw);
    buf_fini(&half);
    return known;
}

static bool has_status(const json_t *expect, int status)
{
    const json_t *list = json_object_get(expect, "status");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_integer_value(json_array_get(list, i)) == status) return true;
    return false;
}

static void check_error_object(const char *id, const struct openai_error *e, const json_t *expect)
{
    struct str param = json_member_str(expect, "param");
    struct buf b;
    json_t *v;
    buf_init(&b, 4096);
    openai_error_write(&b, e);
    CHECK_AT(json_parse(buf_view(&b), 0, &v, NULL) == OK, "%s: the error object is no JSON", id);
    CHECK_AT(e->status == 400 && *e->message && *e->type, "%s: status %d, message %s", id,
             e->status, e->message);
    CHECK_AT(!param.p || str_eqz(param, e->param) || !*e->param, "%s: param is %s", id, e->param);
    json_decref(v);
    buf_fini(&b);
}

static void check_case(const json_t *c, enum openai_kind kind, enum openai_strict strict)
{
    const char *id = json_string_value(json_object_get(c, "id"));
    const json_t *expect = json_object_get(c, "expect");
    bool image = strstr(json_string_value(json_object_get(c, "title")), "image part") &&
                 strict == OPENAI_GATEWAY;
    bool may_fail = !image && (has_status(expect, 400) || has_status(expect, 413));
    bool may_pass = image || has_status(expect, 200) || has_status(expect, 404);
    struct buf body;
    buf_init(&body, 64 << 20);
    if (body_of(&body, c)) {
        struct openai_request r;
        struct openai_error e;
        enum err code = openai_parse(&r, kind, buf_view(&body), strict, &e);
        CHECK_AT(code ? may_fail : may_pass, "%s (strict %d): %s %s", id, strict, err_name(code),
                 code ? e.message : "");
        if (code)
            check_error_object(id, &e, expect);
        else
            openai_request_fini(&r);
    }
    buf_fini(&body);
}

TEST(bodies_of_the_http_cases_are_taken_or_refused_as_expected)
{
    struct case_file f;
    int seen = 0;
    case_file_load(&f, TEST_DATA "/http_api.jsonl");
    for (int i = 0; i < f.n; i++) {
        struct str path = json_member_str(f.cases[i], "path"),
                   area = json_member_str(f.cases[i], "area");
        if (json_object_get(f.cases[i], "raw") || str_eqz(area, "http") ||
            listed(later, json_member_str(f.cases[i], "id")))
            continue;
        enum openai_kind kind = str_eqz(path, "/v1/completions")  ? OPENAI_COMPLETION
                                : str_eqz(path, "/v1/embeddings") ? OPENAI_EMBEDDING
                                                                  : OPENAI_CHAT;
        check_case(f.cases[i], kind, OPENAI_GATEWAY);
        check_case(f.cases[i], kind, OPENAI_ENGINE);
        seen++;
    }
    CHECK_AT(seen > 130, "only %d cases were read", seen);
    case_file_free(&f);
}

/* --- scripted upstreams */
struct run {
    struct openai_collector *c;
    bool done, refused;
};

static bool feed(void *arg, const struct sse_event *ev)
{
    struct run *r = arg;
    if (str_eqz(ev->data, "[DONE]")) r->done = true;
    if (openai_collector_feed(r->c, ev->data, NULL)) r->refused = true;
    return true;
}

static void play_step(struct sse_reader *reader, struct run *r, const json_t *step)
{
    struct buf b;
    buf_init(&b, 8 << 20);
    const json_t *gen = json_object_get(step, "gen");
    if (gen) {
        buf_z(&b, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"");
        repeat(&b, json_string_value(json_object_get(gen, "content_repeat")),
               json_integer_value(json_object_get(gen, "times")));
        buf_z(&b, "\"}}]}\n\n");
    }
    case_base64(&b, json_member_str(step, "b64"));
    CHECK_INT(sse_reader_feed(reader, buf_view(&b), feed, r), OK);
    buf_fini(&b);
}

static void check_text(const char *id, const struct openai_answer *a, const json_t *expect)
{
    const json_t *text = json_object_get(expect, "text"), *texts = json_object_get(expect, "texts"),
                 *usage = json_object_get(expect, "usage");
    struct str got = json_member_str(a->choices[0].message, "content");
    if (text) CHECK_AT(str_eq(got, json_str(text)), "%s: %.*s", id, (int)got.n, got.p ? got.p : "");
    if (json_object_get(expect, "text_len"))
        CHECK_INT(got.n, json_integer_value(json_object_get(expect, "text_len")));
    struct str finish = json_member_str(expect, "finish");
    if (finish.p)
        CHECK_AT(str_eqz(finish, a->choices[0].finish_reason), "%s: finish %s", id,
                 a->choices[0].finish_reason);
    for (int i = 0; texts && i < a->n_choices; i++) {
        char key[4] = {(char)('0' + i)};
        CHECK(
            str_eq(json_member_str(texts, key), json_member_str(a->choices[i].message, "content")));
    }
    if (json_is_object(usage))
        CHECK_INT(a->usage.completion_tokens,
                  json_integer_value(json_object_get(usage, "completion_tokens")));
}

/* An answer that must not be stored as it came: incomplete, an error, or damaged. */
static const char *const unfit[] = {"sse-up-23", "sse-up-25", "sse-up-26", "sse-up-32", "sse-up-35",
                                    "sse-up-43", "sse-up-44", "sse-up-53", NULL};

static void check_upstream(const json_t *c)
{
    struct run r = {openai_collector_new(OPENAI_CHAT, 4 << 20), false, false};
    struct sse_reader *reader = sse_reader_new(4 << 20);
    const json_t *steps = json_object_get(json_object_get(c, "upstream"), "steps"),
                 *expect = json_object_get(c, "expect");
    for (size_t i = 0; i < json_array_size(steps); i++)
        play_step(reader, &r, json_array_get(steps, i));
    struct openai_answer a;
    const char *id = json_string_value(json_object_get(c, "id"));
    bool whole = openai_collector_take(r.c, &a) == OK, want = !listed(unfit, str_of(id));
    CHECK_AT(whole == want, "%s: taken %d, expected %d (done %d, refused %d)", id, whole, want,
             r.done, r.refused);
    if (whole) check_text(id, &a, expect);
    if (whole) openai_answer_fini(&a);
    sse_reader_free(reader);
    openai_collector_free(r.c);
}

TEST(scripted_upstreams_are_judged_complete_or_not)
{
    struct case_file f;
    int seen = 0;
    case_file_load(&f, TEST_DATA "/sse.jsonl");
    for (int i = 0; i < f.n; i++) {
        const json_t *up = json_object_get(f.cases[i], "upstream");
        struct str type = json_member_str(json_object_get(up, "headers"), "Content-Type");
        if (!str_eqz(json_member_str(f.cases[i], "kind"), "upstream") ||
            !str_starts(type, STR("text/event-stream")))
            continue;
        check_upstream(f.cases[i]);
        seen++;
    }
    CHECK_AT(seen > 30, "only %d cases were read", seen);
    case_file_free(&f);
}

TEST_MAIN()
