/* Goal: options that do not fit together are refused with what to do, and aliases resolve. */
#include "gateway/options.h"
#include "tests/check.h"

static enum err read_with(const char *const *pairs, struct gateway_options *o, struct conf **conf,
                          struct errmsg *e)
{
    size_t n;
    const struct conf_row *rows = gateway_option_rows(&n);
    *conf = conf_new(rows, n);
    for (; pairs[0]; pairs += 2) {
        enum err code = conf_set(*conf, str_of(pairs[0]), str_of(pairs[1]), "test", e);
        if (code != OK) return code;
    }
    return gateway_options_read(o, *conf, e);
}

TEST(gateway_without_anything_to_ask_says_what_to_give)
{
    struct gateway_options o;
    struct conf *c;
    struct errmsg e = {0};
    CHECK_INT(read_with((const char *const[]){NULL}, &o, &c, &e), ERR_INVALID);
    CHECK_AT(strstr(e.text, "--upstream"), "%s", e.text);
    conf_free(c);
}

TEST(open_mode_beyond_loopback_is_refused)
{
    struct gateway_options o;
    struct conf *c;
    struct errmsg e = {0};
    CHECK_INT(
        read_with((const char *const[]){"upstream", "http://127.0.0.1:1", "host", "0.0.0.0", NULL},
                  &o, &c, &e),
        ERR_INVALID);
    CHECK_AT(strstr(e.text, "--api-keys"), "%s", e.text);
    conf_free(c);
    CHECK_INT(read_with((const char *const[]){"upstream", "http://127.0.0.1:1", "host", "0.0.0.0",
                                              "api_keys", "f", NULL},
                        &o, &c, &e),
              OK);
    conf_free(c);
}

TEST(defaults_are_usable_with_one_upstream)
{
    struct gateway_options o;
    struct conf *c;
    struct errmsg e = {0};
    CHECK_INT(read_with((const char *const[]){"upstream", "http://127.0.0.1:1", NULL}, &o, &c, &e),
              OK);
    CHECK_INT(o.port, 8080);
    CHECK(o.cache_exact && o.coalesce_max > 0 && o.keep_after_gone_ms == 10000);
    conf_free(c);
}

TEST(aliases_resolve_once_and_bad_ones_are_refused)
{
    CHECK_STR(gateway_alias("gpt-4 = qwen\nfast=tiny", STR("gpt-4")), "qwen");
    CHECK_STR(gateway_alias("gpt-4=qwen\nqwen=tiny", STR("gpt-4")), "qwen");
    CHECK_STR(gateway_alias("gpt-4=qwen", STR("other")), "other");
    CHECK_STR(gateway_alias("", STR("other")), "other");
    struct gateway_options o;
    struct conf *c;
    struct errmsg e = {0};
    CHECK_INT(read_with((const char *const[]){"upstream", "http://127.0.0.1:1", "model_alias",
                                              "nonsense", NULL},
                        &o, &c, &e),
              ERR_INVALID);
    conf_free(c);
}

TEST_MAIN()
