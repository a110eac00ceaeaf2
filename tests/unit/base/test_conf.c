/* Goal: a wrong value never passes and its message says where and what would be right; higher places win whatever order they are read in.
 * Method: one table of every type; tables of (text, expected value or message). */
#include "base/conf.h"

#include <unistd.h>

#include "tests/check.h"

static const struct conf_row rows[] = {
    {"cache_ttl_s", CONF_INT, "3600", 1, 86400, "s", 0, "how long an answer is kept", NULL},
    {"memory", CONF_INT, "64M", 0, 1099511627776.0, "bytes", 0, "bytes to use", "m mem"},
    {"score", CONF_FLOAT, "0.9", 0.5, 1, "", 0, "lowest cosine", NULL},
    {"prefix_caching", CONF_BOOL, "true", 0, 0, "", 0, "share prefixes", "enable-prefix-caching"},
    {"verbose", CONF_BOOL, "no", 0, 0, "", 0, "say more", "v"},
    {"upstream", CONF_STR, "", 0, 0, "", CONF_LIST, "name=url of a server", "u"},
    {"api_key", CONF_STR, "", 16, 16, "", CONF_SECRET, "a | key", NULL},
    {"offset", CONF_INT, "0", 0, 0, "", 0, "any number", NULL},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static enum err read_args(struct conf *c, struct errmsg *e, const char *line)
{
    char copy[256], *argv[32] = {"deja"};
    int argc = 1;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = copy; *word && argc < 32;) {
        char *end = word + strcspn(word, " ");
        argv[argc++] = word;
        if (!*end) break;
        *end = 0;
        word = end + 1;
    }
    return conf_read_args(c, argc, argv, e);
}

TEST(defaults_stand_until_something_is_set)
{
    struct conf *c = conf_new(rows, N_ROWS);
    CHECK_INT(conf_int(c, "cache_ttl_s"), 3600);
    CHECK_INT(conf_int(c, "memory"), 64 << 20);
    CHECK_NEAR(conf_float(c, "score"), 0.9, 0);
    CHECK(conf_bool(c, "prefix_caching") && !conf_bool(c, "verbose"));
    CHECK_Z(conf_str(c, "upstream"), "");
    CHECK(!conf_is_set(c, "memory"));
    conf_free(c);
}

TEST(values_are_checked_and_the_message_says_what_is_right)
{
    static const struct {
        const char *name, *value, *message;
    } bad[] = {
        {"cache_ttl_s", "0", "option cache_ttl_s: 0 is below 1 s"},
        {"cache-ttl-s", "86401", "option cache_ttl_s: 86401 is above 86400 s"},
        {"cache_ttl_s", "1.5", "option cache_ttl_s: expected a whole number, got \"1.5\""},
        {"cache_ttl_s", "", "option cache_ttl_s: expected a whole number, got \"\""},
        {"cache_ttl_s", "1K", "option cache_ttl_s: expected a whole number, got \"1K\""},
        {"memory", "-1", "option memory: -1 is below 0 bytes"},
        {"memory", "9223372036854775807K",
         "option memory: expected bytes like 1048576 or 1M, got \"9223372036854775807K\""},
        {"mem", "K", "option memory: expected bytes like 1048576 or 1M, got \"K\""},
        {"score", "nan", "option score: expected a number, got \"nan\""},
        {"score", "1.01", "option score: 1.01 is above 1"},
        {"verbose", "maybe", "option verbose: expected true or false, got \"maybe\""},
        {"api_key", "01234567890123456", "option api_key: 17 bytes long: expected at most 16"},
        {"cache_tll_s", "5", "unknown option \"cache_tll_s\": did you mean \"cache_ttl_s\"?"},
        {"enable-prefix-cachng", "1",
         "unknown option \"enable-prefix-cachng\": did you mean \"enable-prefix-caching\"?"},
        {"zzz", "5", "unknown option \"zzz\""},
        {"upstream", "\xff", "option upstream: expected UTF-8 text without NUL"},
    };
    struct conf *c = conf_new(rows, N_ROWS);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct errmsg e = {0};
        CHECK(conf_set(c, str_of(bad[i].name), str_of(bad[i].value), NULL, &e) != OK);
        CHECK(conf_set(c, str_of(bad[i].name), str_of(bad[i].value), "x", NULL) != OK);
        CHECK_Z(e.text, bad[i].message);
    }
    CHECK(!conf_is_set(c, "memory") && !conf_is_set(c, "cache_ttl_s"));
    struct errmsg e = {0};
    CHECK_INT(conf_set(c, STR("score"), STR("2"), "redis", &e), ERR_RANGE);
    CHECK_Z(e.text, "redis: option score: 2 is above 1");
    conf_free(c);
}

TEST(bytes_take_suffixes_and_booleans_take_words)
{
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"10", 10},      {"1k", 1024},      {"2KiB", 2048}, {"3MB", 3 << 20},
                {"1g", 1 << 30}, {"1T", 1LL << 40}, {"7b", 7}};
    struct conf *c = conf_new(rows, N_ROWS);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECK_INT(conf_set(c, STR("memory"), str_of(good[i].text), NULL, NULL), OK);
        CHECK_INT(conf_int(c, "memory"), good[i].value);
    }
    CHECK_INT(conf_set(c, STR("verbose"), STR("ON"), NULL, NULL), OK);
    CHECK(conf_bool(c, "verbose"));
    CHECK_INT(conf_set(c, STR("offset"), STR("-9223372036854775808"), NULL, NULL), OK);
    CHECK_INT(conf_int(c, "offset"), INT64_MIN);
    conf_free(c);
}

TEST(a_file_is_read_with_comments_and_quotes)
{
    struct conf *c = conf_new(rows, N_ROWS);
    struct errmsg e = {0};
    struct str text = STR("# head\r\n\n  cache-ttl-s 60 # a minute\r\nscore = 0.75\nupstream "
                          "a=http://h/#x\nupstream \"b = \\\"# "
                          "\\\\\" # c\nverbose yes\napi_key=\n");
    CHECK_AT(conf_read_text(c, "f", text, &e) == OK, "%s", e.text);
    CHECK_INT(conf_int(c, "cache_ttl_s"), 60);
    CHECK_NEAR(conf_float(c, "score"), 0.75, 0);
    CHECK_Z(conf_str(c, "upstream"), "a=http://h/#x\nb = \"# \\");
    CHECK(conf_bool(c, "verbose"));
    static const struct {
        struct str text;
        const char *message;
    } bad[] = {
        {STR("\nscore 5\n"), "f:2: option score: 5 is above 1"},
        {STR("score"), "f:1: option score: expected a value after the name"},
        {STR("api_key \"a"),
         "f:1: option api_key: expected the value to end with its closing quote"},
        {STR("api_key \"a\" b"),
         "f:1: option api_key: expected the value to end with its closing quote"},
        {STR("=5"), "f:1: unknown option \"\""},
        {STR("scor 0.6"), "f:1: unknown option \"scor\": did you mean \"score\"?"},
        {STR("verbose a\0b"), NULL},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(conf_read_text(c, "f", bad[i].text, &e) != OK);
        CHECK(conf_read_text(c, "f", bad[i].text, NULL) != OK);
        if (bad[i].message) CHECK_Z(e.text, bad[i].message);
    }
    CHECK_INT(conf_read_file(c, "/nonexistent/deja.conf", &e), ERR_NOT_FOUND);
    CHECK_Z(e.text, "/nonexistent/deja.conf: cannot be opened: No such file or directory");
    conf_free(c);
}

TEST(higher_places_win_in_any_order)
{
    struct conf *c = conf_new(rows, N_ROWS);
    struct errmsg e = {0};
    CHECK_INT(read_args(c, &e, "--score 0.8 -u x=1 -u y=2"), OK);
    setenv("DEJA_SCORE", "0.7", 1);
    setenv("DEJA_UPSTREAM", "e=1 e=2", 1);
    setenv("DEJA_CACHE_TTL_S", "5", 1);
    setenv("DEJA_MEMORY", "", 1);
    CHECK_INT(conf_read_env(c, &e), OK);
    CHECK_INT(conf_read_text(c, "f", STR("score 0.6\ncache_ttl_s 7\nupstream f=1\nmemory 1K"), &e),
              OK);
    CHECK_NEAR(conf_float(c, "score"), 0.8, 0);
    CHECK_INT(conf_int(c, "cache_ttl_s"), 5);
    CHECK_INT(conf_int(c, "memory"), 1024);
    CHECK_Z(conf_str(c, "upstream"), "x=1\ny=2");
    CHECK_INT(conf_set(c, STR("upstream"), STR("s=1"), NULL, &e), OK);
    CHECK_INT(conf_set(c, STR("upstream"), STR("s=2\ns=3"), NULL, &e), OK);
    CHECK_Z(conf_str(c, "upstream"), "s=2\ns=3");
    conf_free(c);
    c = conf_new(rows, N_ROWS);
    CHECK_INT(conf_read_env(c, &e), OK);
    CHECK_Z(conf_str(c, "upstream"), "e=1\ne=2");
    setenv("DEJA_SCORE", "x", 1);
    CHECK(conf_read_env(c, &e) != OK);
    CHECK_Z(e.text, "DEJA_SCORE: option score: expected a number, got \"x\"");
    unsetenv("DEJA_SCORE");
    unsetenv("DEJA_UPSTREAM");
    unsetenv("DEJA_CACHE_TTL_S");
    unsetenv("DEJA_MEMORY");
    conf_free(c);
}

TEST(arguments_have_the_usual_forms)
{
    struct conf *c = conf_new(rows, N_ROWS);
    struct errmsg e = {0};
    CHECK_AT(
        read_args(c, &e,
                  "-m 1K --cache-ttl-s=9 --no-prefix-caching --verbose --offset -5 --score=0.6") ==
            OK,
        "%s", e.text);
    CHECK(conf_int(c, "memory") == 1024 && conf_int(c, "cache_ttl_s") == 9 &&
          !conf_bool(c, "prefix_caching") && conf_bool(c, "verbose"));
    CHECK_INT(conf_int(c, "offset"), -5);
    CHECK_INT(read_args(c, &e, "--verbose false --enable-prefix-caching"), OK);
    CHECK(!conf_bool(c, "verbose") && conf_bool(c, "prefix_caching"));
    CHECK_INT(read_args(c, &e, "--verbose=yes --no-enable-prefix-caching"), OK);
    CHECK(conf_bool(c, "verbose") && !conf_bool(c, "prefix_caching"));
    static const struct {
        const char *line;
        enum err code;
        const char *message;
    } bad[] = {
        {"--help", ERR_CANCELLED, "help was asked for"},
        {"-h", ERR_CANCELLED, "help was asked for"},
        {"serve", ERR_INVALID, "unexpected argument \"serve\": options look like --name value"},
        {"--score", ERR_INVALID, "option score: expected a value after --score"},
        {"--score --verbose", ERR_INVALID, "option score: expected a value after --score"},
        {"--no-score", ERR_NOT_FOUND, "unknown option \"no-score\": did you mean \"score\"?"},
        {"--no-verbose=1", ERR_INVALID, "option verbose: --no-... takes no value"},
        {"--config", ERR_INVALID, "option config: expected a file name after --config"},
        {"-x", ERR_NOT_FOUND, "unknown option \"x\""},
        {"--", ERR_INVALID, "unexpected argument \"--\": options look like --name value"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_INT(read_args(c, &e, bad[i].line), bad[i].code);
        CHECK_Z(e.text, bad[i].message);
    }
    conf_free(c);
}

TEST(config_names_a_file)
{
    char path[] = "/tmp/deja_conf_XXXXXX", line[64];
    int fd = mkstemp(path);
    REQUIRE(fd >= 0);
    REQUIRE(write(fd, "score 0.55\n", 11) == 11);
    close(fd);
    struct conf *c = conf_new(rows, N_ROWS);
    struct errmsg e = {0};
    snprintf(line, sizeof line, "--config %s", path);
    CHECK_AT(read_args(c, &e, line) == OK, "%s", e.text);
    CHECK_NEAR(conf_float(c, "score"), 0.55, 0);
    unlink(path);
    conf_free(c);
}

TEST(help_and_markdown_hold_every_option_and_no_secret)
{
    struct conf *c = conf_new(rows, N_ROWS);
    struct buf b;
    buf_init(&b, 1 << 16);
    CHECK_INT(conf_set(c, STR("api_key"), STR("hush"), NULL, NULL), OK);
    conf_help(c, &b);
    CHECK(str_find(buf_view(&b), STR("  --cache-ttl-s N                 how long an answer is kept "
                                     "(default 3600 s; 1..86400)\n")) >= 0);
    CHECK(str_find(buf_view(&b), STR("  --memory, -m, --mem N           bytes to use")) >= 0);
    CHECK(str_find(buf_view(&b), STR("--no-prefix-caching, --enable-prefix-caching\n")) >= 0);
    buf_clear(&b);
    conf_markdown(c, &b);
    CHECK(str_find(buf_view(&b), STR("| `--cache-ttl-s` | `3600` | 1..86400 | s | "
                                     "`DEJA_CACHE_TTL_S` | how long an answer is kept |\n")) >= 0);
    CHECK(str_find(buf_view(&b), STR("| `DEJA_API_KEY` | a \\| key |")) >= 0);
    CHECK(str_find(buf_view(&b), STR("hush")) < 0);
    buf_fini(&b);
    conf_free(c);
}

TEST_MAIN()
