/* seed_main.c - see seed_main.h. The file is checked whole before anything is sent (gateway/seed_run.h). */
#include "gateway/seed_main.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/redis.h"
#include "base/rng.h"
#include "cache/library.h"
#include "cache/tool.h"
#include "gateway/secret.h"
#include "gateway/seed_run.h"

enum { FILE_BYTES_MAX = 256 << 20, CALL_TIMEOUT_MS = 10000, CONNECT_MS = 5000 };

static const char usage[] =
    "usage: deja seed FILE --redis URL [options]\n\n"
    "Loads answers written by people, as entries that never leave and are served before anything a "
    "model said. JSON lines or CSV:\n"
    "  "
    "{\"question\",\"answer\",\"wordings\":[..],\"near\":[..],\"tags\":[..],\"lang\",\"namespace\","
    "\"tenant\",\"model\",\"ttl\"}\n"
    "The file is a set: what it does not hold any more is taken away. See docs/seed.md.\n";

static const struct conf_row rows[] = {
    {"redis", CONF_STR, "", 0, 4096, "", CONF_SECRET,
     "the gateways' Redis: unix:/path.sock or redis://host:port", NULL},
    {"ns", CONF_STR, "deja", 0, 63, "", 0, "key space in Redis, as the gateways have it", NULL},
    {"cache_secret", CONF_STR, "", 0, 512, "", CONF_SECRET, "only where the gateways are given one",
     NULL},
    {"set", CONF_STR, "", 0, 128, "", 0, "name of the set; empty = the file's name", NULL},
    {"namespace", CONF_STR, "", 0, 63, "", 0, "of answers that name none", NULL},
    {"tenant", CONF_STR, "*", 0, 512, "", 0, "of answers that name none; * = of all", NULL},
    {"model", CONF_STR, "", 0, 127, "", 0, "of answers that name none; empty = for any", NULL},
    {"ttl", CONF_INT, "0", 0, INT32_MAX, "s", 0, "of answers that name none; 0 = never ends", NULL},
    {"dry_run", CONF_BOOL, "no", 0, 0, "", 0, "say what would be done, change nothing", NULL},
    {"remove", CONF_BOOL, "no", 0, 0, "", 0, "take the whole set away (the file need not be there)",
     NULL},
};

struct run {
    struct conf *conf;
    struct loop *loop;
    struct redis *redis;
    struct loop_timer *patience;
    const char *path, *set;
    char tag[80];
    bool dry, remove, connected;
    struct buf text;
    struct seed_file file;
    struct seed_counts counts;
    struct errmsg why;
    enum err code;
};

static void stop(struct run *r, enum err code)
{
    if (r->code == OK) r->code = code;
    loop_stop(r->loop);
}

static void refused(void *arg, int line, const char *text)
{
    const struct run *r = arg;
    log_warn("seed", "%s:%d: %s", r->path, line, text);
}

static void done(void *arg, enum err code, const struct seed_counts *n, const struct errmsg *why)
{
    struct run *r = arg;
    r->counts = *n;
    if (code != OK) r->why = *why;
    stop(r, code);
}

static void begin(struct run *r, uint64_t secret)
{
    struct seed_run_options o = {.redis = r->redis,
                                 .tag = r->tag,
                                 .set = r->set,
                                 .dry = r->dry,
                                 .secret = secret,
                                 .refused = refused,
                                 .done = done,
                                 .arg = r};
    seed_run_start(&o, &r->file);
}

/* --- starting */
static void got_secret(void *arg, enum err code, const struct redis_reply *reply)
{
    struct run *r = arg;
    if (code != OK || reply->kind == REDIS_ERROR)
        stop(r, err_set(&r->why, code != OK ? code : ERR_INVALID, "Redis: " STR_FMT,
                        STR_ARG(code != OK ? str_of(err_text(code)) : reply->text)));
    else
        begin(r, secret_of_text(reply->kind == REDIS_STRING ? reply->text : (struct str){"", 0}));
}

static void on_connect(void *arg)
{
    struct run *r = arg;
    char key[128], made[40];
    if (r->connected) return;
    r->connected = true;
    loop_timer_stop(r->patience);
    if (r->remove || conf_str(r->conf, "cache_secret")[0]) {
        begin(r, secret_of_text(str_of(conf_str(r->conf, "cache_secret"))));
        return;
    }
    snprintf(key, sizeof key, "deja:{%s}:secret", conf_str(r->conf, "ns"));
    snprintf(made, sizeof made, "%016llx%016llx", (unsigned long long)rng_entropy(),
             (unsigned long long)rng_entropy());
    if (!r->dry) redis_commandf(r->redis, CALL_TIMEOUT_MS, NULL, NULL, "SET %s %s NX", key, made);
    redis_commandf(r->redis, CALL_TIMEOUT_MS, got_secret, r, "GET %s", key);
}

static void on_late(void *arg)
{
    struct run *r = arg;
    stop(r, err_set(&r->why, ERR_UNAVAILABLE, "Redis does not answer: is --redis right?"));
}

static void talk(struct run *r, struct errmsg *e)
{
    struct redis_options o = {.url = conf_str(r->conf, "redis"),
                              .command_timeout_ms = CALL_TIMEOUT_MS};
    struct buf code;
    if ((r->code = loop_new(&r->loop, e)) != OK ||
        (r->code = redis_open(&r->redis, r->loop, &o, e)) != OK)
        return;
    buf_init(&code, 1 << 20);
    library_write(&code);
    redis_use_library(r->redis, buf_view(&code));
    buf_fini(&code);
    r->patience = loop_timer_new(r->loop, on_late, r);
    loop_timer_arm(r->patience, CONNECT_MS);
    redis_on_connect(r->redis, on_connect, r);
    loop_run(r->loop);
    *e = r->why;
}

static enum err read_file(struct run *r, struct errmsg *e)
{
    FILE *f = fopen(r->path, "rb");
    char chunk[16384];
    size_t n;
    if (!f) return err_set(e, ERR_NOT_FOUND, "cannot read %.200s", r->path);
    while ((n = fread(chunk, 1, sizeof chunk, f)) > 0)
        buf_add(&r->text, chunk, n);
    fclose(f);
    if (buf_failed(&r->text))
        return err_set(e, ERR_TOO_LARGE, "%.200s: over %d MiB", r->path, FILE_BYTES_MAX >> 20);
    struct seed_defaults d = {str_of(conf_str(r->conf, "namespace")),
                              str_of(conf_str(r->conf, "tenant")),
                              str_of(conf_str(r->conf, "model")), conf_int(r->conf, "ttl")};
    seed_file_read(&r->file, buf_view(&r->text), &d);
    struct str lines = buf_view(&r->file.problems), line;
    while (str_next(&lines, '\n', &line))
        log_error("seed", "%s:" STR_FMT, r->path, STR_ARG(line));
    if (r->file.n_problems)
        return err_set(e, ERR_INVALID, "%zu mistakes in %.100s: nothing was loaded",
                       r->file.n_problems, r->path);
    return OK;
}

static enum err run(struct run *r, struct errmsg *e)
{
    const char *slash = strrchr(r->path, '/');
    r->set = conf_str(r->conf, "set")[0] ? conf_str(r->conf, "set") : slash ? slash + 1 : r->path;
    r->dry = conf_bool(r->conf, "dry_run");
    r->remove = conf_bool(r->conf, "remove");
    snprintf(r->tag, sizeof r->tag, "{%s}", conf_str(r->conf, "ns"));
    if (!conf_str(r->conf, "redis")[0])
        return err_set(e, ERR_INVALID,
                       "--redis is needed, as in --redis redis://127.0.0.1:6379 (of ./dev up: "
                       "unix:$HOME/.local/share/deja/redis.sock)");
    if (!r->remove) r->code = read_file(r, e);
    if (r->code == OK) talk(r, e);
    if (r->code != OK) return r->code;
    struct buf out;
    buf_init(&out, 1024);
    buf_printf(&out, "%s%s: new %zu, changed %zu, same %zu, removed %zu, refused %zu\n",
               r->dry ? "would be: " : "", r->set, r->counts.fresh, r->counts.changed,
               r->counts.same, r->counts.removed, r->counts.refused);
    tool_print(&out);
    buf_fini(&out);
    return r->counts.refused ? ERR_INVALID : OK;
}

int seed_main(int argc, char **argv)
{
    const char *words[TOOL_WORDS_MAX];
    struct run r = {.conf = conf_new(rows, sizeof rows / sizeof *rows)};
    struct errmsg e = {0};
    int n_words = 0, status = 2;
    buf_init(&r.text, FILE_BYTES_MAX);
    if (tool_args(r.conf, usage, argc, argv, words, &n_words, &status)) {
        r.path = n_words ? words[0] : "";
        enum err code = n_words == 1 ? run(&r, &e)
                                     : err_set(&e, ERR_INVALID,
                                               "expected one file: deja seed FILE --redis URL");
        if (code != OK && e.text[0]) log_error("seed", "%s", e.text);
        status = code != OK;
    }
    if (r.redis) redis_close(r.redis);
    loop_timer_free(r.patience);
    if (r.loop) loop_free(r.loop);
    seed_file_fini(&r.file);
    buf_fini(&r.text);
    conf_free(r.conf);
    return status;
}
