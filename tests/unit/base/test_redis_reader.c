/* Goal: any bytes a peer sends become replies or a refusal, never a crash or memory without bound; commands and URLs are exact.
 * Method: each stream of replies fed whole, cut in two at every place, and byte by byte; the logs must be equal. */
#include "base/redis_reader.h"

#include "base/mem.h"
#include "base/redis_conn.h"
#include "tests/check.h"

static void note(struct buf *log, const struct redis_reply *v)
{
    switch (v->kind) {
    case REDIS_NIL:
        buf_z(log, "nil");
        break;
    case REDIS_INTEGER:
        buf_printf(log, "%lld", (long long)v->integer);
        break;
    case REDIS_ARRAY:
        buf_char(log, '[');
        for (size_t i = 0; i < v->n_items; i++) {
            if (i) buf_char(log, ' ');
            note(log, &v->items[i]);
        }
        buf_char(log, ']');
        break;
    default:
        buf_char(log, v->kind == REDIS_STATUS ? '+' : v->kind == REDIS_ERROR ? '-' : '\'');
        buf_str(log, v->text);
    }
}

static bool on_reply(void *arg, const struct redis_reply *v)
{
    note(arg, v);
    buf_char(arg, ';');
    return true;
}

static enum err feed(struct redis_reader *r, struct str s, struct buf *log)
{
    struct errmsg e = {0};
    char *exact = xmalloc(s.n);
    if (s.n) memcpy(exact, s.p, s.n);
    enum err code = redis_reader_feed(r, (struct str){exact, s.n}, on_reply, log, &e);
    CHECK(!code || *e.text);
    mem_free(exact);
    return code;
}

TEST(replies_come_out_the_same_however_the_bytes_are_cut)
{
    struct str in = STR("+OK\r\n-ERR "
                        "no\r\n:-42\r\n$5\r\na\0b\r\n\r\n$0\r\n\r\n$-1\r\n*-1\r\n*0\r\n*3\r\n$"
                        "1\r\na\r\n*2\r\n:1\r\n$-1\r\n+x\r\n");
    struct str want = STR("+OK;-ERR no;-42;'a\0b\r\n;';nil;nil;[];['a [1 nil] +x];");
    for (size_t cut = 0; cut <= in.n + 1; cut++) {
        struct buf log;
        buf_init(&log, 10000);
        struct redis_reader *r = redis_reader_new(1000, 100);
        if (cut <= in.n) {
            CHECK_INT(feed(r, str_sub(in, 0, cut), &log), OK);
            CHECK_INT(feed(r, str_sub(in, cut, in.n), &log), OK);
        } else {
            for (size_t i = 0; i < in.n; i++)
                CHECK_INT(feed(r, str_sub(in, i, 1), &log), OK);
        }
        CHECK_AT(str_eq(buf_view(&log), want), "cut %zu: %.*s", cut, (int)log.n, log.p);
        redis_reader_free(r);
        buf_fini(&log);
    }
}

TEST(what_is_no_reply_is_refused)
{
    static const char *const bad[] = {
        "HTTP/1.1 400\r\n",
        "%1\r\n+a\r\n+b\r\n",
        "*1152921504606846976\r\n",
        "*101\r\n",
        "*9223372036854775807\r\n",
        "*-2\r\n",
        "$-2\r\n",
        "$x\r\n",
        "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n",
        "*60\r\n*60\r\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct buf log;
        buf_init(&log, 1000);
        struct redis_reader *r = redis_reader_new(1000, 100);
        CHECK_AT(feed(r, str_of(bad[i]), &log) == ERR_CORRUPT, "%s passed", bad[i]);
        redis_reader_free(r);
        buf_fini(&log);
    }
}

TEST(an_endless_reply_is_cut_off)
{
    struct buf log;
    char zeros[500] = {0};
    buf_init(&log, 1000);
    struct redis_reader *r = redis_reader_new(1000, 100);
    CHECK_INT(feed(r, STR("$9223372036854775807\r\n"), &log), OK);
    CHECK_INT(feed(r, (struct str){zeros, sizeof zeros}, &log), OK);
    CHECK_INT(feed(r, (struct str){zeros, sizeof zeros}, &log), ERR_CORRUPT);
    redis_reader_free(r);
    buf_fini(&log);
}

static bool stop(void *arg, const struct redis_reply *v)
{
    (void)v;
    redis_reader_free(arg); /* as a connection closed in a callback would */
    return false;
}

TEST(the_reader_may_go_in_the_callback)
{
    struct redis_reader *r = redis_reader_new(1000, 100);
    CHECK_INT(redis_reader_feed(r, STR("+a\r\n+b\r\n"), stop, r, NULL), ERR_CANCELLED);
}

TEST(commands_are_written_binary_safe)
{
    struct buf b;
    buf_init(&b, 1000);
    redis_write_command(&b, 3, (struct str[]){STR("SET"), STR("a\0b"), STR("")});
    CHECK(str_eq(buf_view(&b), STR("*3\r\n$3\r\nSET\r\n$3\r\na\0b\r\n$0\r\n\r\n")));
    buf_fini(&b);
}

TEST(stream_ids_are_compared_as_numbers)
{
    struct redis_id a, b;
    CHECK_INT(redis_id_parse(STR("9-18446744073709551615"), &a), OK);
    CHECK_INT(redis_id_parse(STR("10-0"), &b), OK);
    CHECK(redis_id_compare(a, b) < 0 && redis_id_compare(b, a) > 0 && redis_id_compare(a, a) == 0 &&
          a.seq == UINT64_MAX);
    static const char *const bad[] = {
        "", "-", "1", "1-", "-1", "1-x", "1-18446744073709551616", "+1-1", "1- 1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_AT(redis_id_parse(str_of(bad[i]), &a) == ERR_INVALID, "%s passed", bad[i]);
}

TEST(urls_are_read_or_refused_with_a_reason)
{
    static const struct {
        const char *url, *path, *host;
        int port;
        const char *user, *password;
        int db;
    } good[] = {
        {"unix:/tmp/x.sock", "/tmp/x.sock", "", 6379, "", "", 0},
        {"unix:///tmp/x.sock", "/tmp/x.sock", "", 6379, "", "", 0},
        {"redis://localhost", "", "localhost", 6379, "", "", 0},
        {"redis://h:7000/3", "", "h", 7000, "", "", 3},
        {"redis://:p%40w@10.0.0.1:1/", "", "10.0.0.1", 1, "", "p@w", 0},
        {"redis://u:p:w@[::1]:6380/15", "", "::1", 6380, "u", "p:w", 15},
        {"redis://pw@h", "", "h", 6379, "", "pw", 0},
        {"redis://:a@b@h", "", "h", 6379, "", "a@b", 0},
        {"redis://", "", "127.0.0.1", 6379, "", "", 0},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct redis_address a;
        struct errmsg e = {0};
        CHECK_AT(redis_address_parse(good[i].url, &a, &e) == OK, "%s: %s", good[i].url, e.text);
        CHECK_Z(a.path, good[i].path);
        CHECK_Z(a.host, good[i].host);
        CHECK_Z(a.user, good[i].user);
        CHECK_Z(a.password, good[i].password);
        CHECK(a.port == good[i].port && a.db == good[i].db);
    }
    static const char *const bad[] = {"",
                                      "localhost:6379",
                                      "http://h",
                                      "rediss://h",
                                      "unix:",
                                      "redis://h:0",
                                      "redis://h:65536",
                                      "redis://h:",
                                      "redis://[::1",
                                      "redis://[::1]x",
                                      "redis://h/x",
                                      "redis://:%zz@h",
                                      "redis://:%00@h",
                                      "redis://:%4@h"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct redis_address a;
        struct errmsg e = {0};
        CHECK_AT(redis_address_parse(bad[i], &a, &e) != OK &&
                     str_starts(str_of(e.text), STR("redis url: ")),
                 "%s: %s", bad[i], e.text);
    }
}

TEST_MAIN()
