/* test_admin_args.c - goal: an admin request becomes the very call it says, or is refused with the member that is wrong. Tables. */
#include "gateway/admin_args.h"

#include <string.h>

#include "base/mem.h"
#include "tests/check.h"

static enum err make(const char *method, const char *target, const char *body, char *out,
                     size_t cap, struct openai_error *e, const char **allow)
{
    struct admin_call c;
    struct str path, query = str_of(target);
    json_t *doc = NULL;
    str_next(&query, '?', &path);
    if (body) CHECK(json_parse(str_of(body), 0, &doc, NULL) == OK);
    enum err code = admin_call_make(&c, str_of(method), path, query, doc, "admin", allow, e);
    json_decref(doc);
    out[0] = 0;
    if (code != OK) return code;
    int n = snprintf(out, cap, "%s", c.function);
    const char *at = c.args.p;
    for (size_t i = 0; i < c.n_args; i++, at += strlen(at) + 1)
        n += snprintf(out + n, cap - (size_t)n, "|%s", at);
    admin_call_fini(&c);
    return OK;
}

TEST(a_request_becomes_the_call_it_says)
{
    static const struct {
        const char *method, *target, *body, *call;
    } t[] = {
        {"GET", "/admin/config", NULL, "deja_config_get|JSON"},
        {"GET", "/admin/config?ns=faq", NULL, "deja_config_get|JSON"},
        {"PUT", "/admin/config", "{\"name\":\"threshold_en\",\"value\":0.95}",
         "deja_config_set|threshold_en|0.95|BY|admin"},
        {"PUT", "/admin/config",
         "{\"value\":true,\"name\":\"judge\",\"scope\":\"ns:faq\",\"who\":\"ana\",\"note\":\"a "
         "b\"}",
         "deja_config_set|judge|yes|IN|ns:faq|BY|ana|NOTE|a b"},
        {"PUT", "/admin/config", "{\"name\":\"ttl_s\",\"value\":null}",
         "deja_config_set|ttl_s|unset|BY|admin"},
        {"GET", "/admin/history?count=5", NULL, "deja_config_history|5|JSON"},
        {"POST", "/admin/rollback", "{\"to\":3}", "deja_config_rollback|TO|3|BY|admin"},
        {"POST", "/admin/rollback", "{}", "deja_config_rollback|BY|admin"},
        {"POST", "/admin/forget", "{\"by\":\"tag\",\"value\":\"faq\",\"dry_run\":true}",
         "deja_forget|tag|faq|dry"},
        {"POST", "/admin/forget", "{\"by\":\"all\",\"dry_run\":false}", "deja_forget|all"},
        {"GET", "/admin/stats?hours=3&ns=f%61q+x", NULL, "deja_stats|HOURS|3|IN|faq x|JSON"},
        {"GET", "/admin/limits", NULL, "deja_limit_status|JSON"},
        {"GET", "/admin/limits?bucket=tenant:a", NULL, "deja_limit_status|tenant:a|JSON"},
        {"POST", "/admin/limits", "{\"bucket\":\"tenant:a\",\"money\":true}",
         "deja_limit_reset|tenant:a|MONEY"},
        {"GET", "/admin/experiments", NULL, "deja_experiment_report|JSON"},
        {"DELETE", "/admin/experiments?note=done", NULL,
         "deja_experiment_stop|BY|admin|NOTE|done|JSON"},
        {"POST", "/admin/experiments",
         "{\"name\":\"e\",\"split\":\"user\",\"arms\":[{\"name\":\"a\"},{\"name\":\"b\","
         "\"percent\":10,"
         "\"knobs\":{\"threshold_en\":0.97,\"judge\":false}}]}",
         "deja_experiment_start|e|SPLIT|user|BY|admin|ARM|a|ARM|b|PERCENT|10|threshold_en|0.97|"
         "judge|no"},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        char got[400];
        const char *allow;
        struct openai_error e = {0};
        CHECK(make(t[i].method, t[i].target, t[i].body, got, sizeof got, &e, &allow) == OK);
        CHECK_Z(got, t[i].call);
    }
}

TEST(what_is_wrong_is_refused_with_its_member)
{
    static const struct {
        const char *method, *target, *body, *param;
    } t[] = {
        {"PUT", "/admin/config", "{\"value\":1}", "name"},
        {"PUT", "/admin/config", "{\"name\":\"ttl_s\"}", "value"},
        {"PUT", "/admin/config", "{\"name\":7,\"value\":1}", "name"},
        {"PUT", "/admin/config", "{\"name\":\"ttl_s\",\"value\":[1]}", "value"},
        {"PUT", "/admin/config", "{\"name\":\"ttl_s\",\"value\":1,\"scoop\":\"global\"}", "scoop"},
        {"PUT", "/admin/config", "{\"name\":\"ttl_s\",\"value\":\"a\\u0000b\"}", "value"},
        {"PUT", "/admin/config", "[1]", "body"},
        {"POST", "/admin/forget", "{\"by\":\"all\",\"dry_run\":\"maybe\"}", "dry_run"},
        {"POST", "/admin/experiments", "{\"name\":\"e\"}", "arms"},
        {"POST", "/admin/experiments", "{\"name\":\"e\",\"arms\":[{\"name\":\"a\"},7]}",
         "arms[1].name"},
        {"POST", "/admin/experiments",
         "{\"name\":\"e\",\"arms\":[{\"name\":\"a\",\"percent\":\"9\"}]}", "arms[0].percent"},
        {"POST", "/admin/experiments",
         "{\"name\":\"e\",\"arms\":[{\"name\":\"a\",\"knobs\":{\"ttl_s\":{}}}]}",
         "arms[0].knobs.ttl_s"},
        {"GET", "/admin/stats?hours=%zz", NULL, "query"},
        {"GET", "/admin/stats?hours=%4", NULL, "query"},
        {"GET", "/admin/stats?hours=%00", NULL, "query"},
        {"GET", "/admin/stats?hors=1", NULL, "hors"},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        char got[400];
        const char *allow;
        struct openai_error e = {0};
        CHECK(make(t[i].method, t[i].target, t[i].body, got, sizeof got, &e, &allow) ==
              ERR_INVALID);
        CHECK_Z(e.param, t[i].param);
        CHECK(e.status == 400 && e.message[0]);
    }
}

TEST(an_unknown_path_and_a_wrong_method_are_told_apart)
{
    char got[400];
    const char *allow;
    struct openai_error e = {0};
    CHECK(make("GET", "/admin/konfig", NULL, got, sizeof got, &e, &allow) == ERR_NOT_FOUND);
    CHECK(make("POST", "/admin/config", NULL, got, sizeof got, &e, &allow) == ERR_UNSUPPORTED);
    CHECK_Z(allow, "GET, PUT");
    CHECK(make("GET", "/admin/forget", NULL, got, sizeof got, &e, &allow) == ERR_UNSUPPORTED);
    CHECK_Z(allow, "POST");
}

TEST_MAIN()
