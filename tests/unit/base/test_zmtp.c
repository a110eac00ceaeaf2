/* Goal: messages come out whole however the bytes arrive, and what is no ZMTP ends the connection. Method: a conversation by the
 * specification, fed in pieces of every size. A real publisher: tests/integration/test_vllm_events.py. */
#include "base/zmtp.h"
#include "tests/check.h"

static char seen[4096];

static void note(void *arg, const struct str *parts, size_t n)
{
    size_t at = strlen(seen);
    (void)arg;
    for (size_t i = 0; i < n; i++)
        at += (size_t)snprintf(seen + at, sizeof seen - at, "%s%zu:%.*s", i ? "," : "", parts[i].n,
                               (int)(parts[i].n > 9 ? 9 : parts[i].n), parts[i].p);
    snprintf(seen + at, sizeof seen - at, ";");
}

static void server_greeting(struct buf *b, int version, const char *mechanism)
{
    char g[64] = {0};
    g[0] = (char)0xff;
    g[9] = 0x7f;
    g[10] = (char)version;
    memcpy(g + 12, mechanism, strlen(mechanism));
    buf_add(b, g, 64);
}

static enum err talk(struct str server, size_t piece, struct buf *out, bool *open)
{
    struct zmtp *z = zmtp_new(ZMTP_SUB, 1000);
    enum err code = OK;
    seen[0] = 0;
    for (size_t at = 0; at < server.n && code == OK; at += piece)
        code = zmtp_feed(z, str_sub(server, at, piece), out, note, NULL);
    *open = zmtp_is_open(z);
    zmtp_free(z);
    return code;
}

TEST(messages_come_whole_in_pieces_of_any_size)
{
    struct buf b, out;
    bool open;
    char big[300];
    memset(big, 'b', sizeof big);
    buf_init(&b, 10000);
    server_greeting(&b, 3, "NULL");
    buf_str(&b, (struct str){"\4\x19\5READY\13Socket-Type\0\0\0\3PUB", 27});
    zmtp_write(&b, (struct str[]){{"kv", 2}, {"", 0}, {big, sizeof big}}, 3);
    zmtp_write(&b, (struct str[]){{"x", 1}}, 1);
    for (size_t piece = 1; piece <= b.n; piece++) {
        buf_init(&out, 1000);
        CHECK(talk(buf_view(&b), piece, &out, &open) == OK && open);
        CHECK_AT(!strcmp(seen, "2:kv,0:,300:bbbbbbbbb;1:x;"), "%s", seen);
        /* READY, then a subscription to everything */
        CHECK(str_starts(buf_view(&out), STR("\4\x19\5READY")));
        CHECK(out.n >= 3 && !memcmp(out.p + out.n - 3, "\0\1\1", 3));
        buf_fini(&out);
    }
    buf_fini(&b);
}

TEST(other_versions_mechanisms_and_nonsense_are_refused)
{
    static const struct {
        int version;
        const char *mechanism, *rest;
        size_t n;
        enum err want;
    } cases[] = {{2, "NULL", "", 0, ERR_UNSUPPORTED},
                 {3, "PLAIN", "", 0, ERR_UNSUPPORTED},
                 {3, "NULL", "\0\1x", 3, ERR_CORRUPT},
                 {3, "NULL", "\xf0\1x", 3, ERR_CORRUPT},
                 {3, "NULL", "\4\7\5ERROR\0", 9, ERR_UNSUPPORTED},
                 {3, "NULL", "\2\0\0\0\0\0\1\0\0", 9, ERR_TOO_LARGE}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf b, out;
        bool open;
        buf_init(&b, 1000);
        buf_init(&out, 1000);
        server_greeting(&b, cases[i].version, cases[i].mechanism);
        buf_add(&b, cases[i].rest, cases[i].n);
        CHECK_AT(talk(buf_view(&b), 7, &out, &open) == cases[i].want && !open, "case %zu", i);
        buf_fini(&b);
        buf_fini(&out);
    }
}

TEST_MAIN()
