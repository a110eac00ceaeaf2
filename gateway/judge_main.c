/* judge_main.c - see judge_main.h. One pair a line, {"a","b","lang"?,"same"?}, asked one after the other with the very prompt the gateway
 * uses. Prints each pair's probability, and where pairs are labelled the table for --judge-table. */
#include "gateway/judge_main.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/http_client.h"
#include "base/log.h"
#include "base/mem.h"
#include "cache/guard.h"
#include "cache/tool.h"
#include "gateway/judge_prompt.h"
#include "gateway/judge_table.h"

enum {
    LINE_BYTES_MAX = 64 * 1024,
    LABELS_MAX = 100000,
    CALL_TIMEOUT_MS = 60000,
    REPLY_BYTES_MAX = 1 << 20
};

static const struct conf_row rows[] = {
    {"url", CONF_STR, "", 0, 4096, "", 0, "base URL of the judge: any OpenAI-compatible server",
     NULL},
    {"key", CONF_STR, "", 0, 512, "", CONF_SECRET, "bearer token", NULL},
    {"model", CONF_STR, "", 0, 256, "", 0, "model that judges", NULL},
    {"pairs", CONF_STR, "", 0, 4096, "", 0,
     "file of JSON lines {\"a\",\"b\",\"lang\"?,\"same\"?}: a stored and a new question, and "
     "whether one answer fits both",
     NULL},
    {"embed", CONF_STR, "", 0, 4096, "", 0,
     "embedding model of the gateway: what its verifier says of each pair is weighed too", NULL},
    {"task", CONF_STR, "questions", 0, 16, "", 0, "questions, or answers", NULL},
};

struct run {
    struct conf *conf;
    struct loop *loop;
    struct http_client *client;
    struct http_origin origin;
    FILE *file;
    struct judge_label *labels[2];
    size_t n_labels[2];
    struct tool tool; /* its embedder is NULL: without a verifier */
    struct guard *guard;
    struct buf reply;
    int status;
    enum err code;
};

static void say(const struct buf *text)
{
    for (size_t at = 0; at < text->n;) {
        ssize_t n = write(STDOUT_FILENO, text->p + at, text->n - at);
        if (n <= 0) return;
        at += (size_t)n;
    }
}

static void on_head(void *arg, const struct http_reply_head *head)
{
    ((struct run *)arg)->status = head->status;
}

static void on_body(void *arg, struct str bytes)
{
    buf_str(&((struct run *)arg)->reply, bytes);
}

static void on_done(void *arg, enum err code, const struct errmsg *e)
{
    struct run *r = arg;
    if (code != OK) log_error("judge", "%s", e->text);
    r->code = code;
    loop_stop(r->loop);
}

/* Asks about one pair and waits. */
static enum err ask(struct run *r, char language, struct str a, struct str b, double *yes,
                    struct errmsg *e)
{
    char bearer[600];
    struct buf body, stored, asked;
    json_t *doc = NULL;
    bool answers = !strcmp(conf_str(r->conf, "task"), "answers");
    struct http_header h[2] = {{STR("content-type"), STR("application/json")}};
    snprintf(bearer, sizeof bearer, "Bearer %s", conf_str(r->conf, "key"));
    h[1] = (struct http_header){STR("authorization"), str_of(bearer)};
    buf_init(&body, LINE_BYTES_MAX * 4);
    buf_init(&r->reply, REPLY_BYTES_MAX);
    buf_init(&stored, LINE_BYTES_MAX);
    buf_init(&asked, LINE_BYTES_MAX);
    guard_simplify(r->guard, a, &stored);
    guard_simplify(r->guard, b, &asked);
    judge_prompt_write(&body, answers ? JUDGE_ANSWERS : JUDGE_QUESTIONS, language,
                       str_of(conf_str(r->conf, "model")), buf_view(&stored), buf_view(&asked));
    buf_fini(&stored);
    buf_fini(&asked);
    struct http_call_options o = {.origin = &r->origin,
                                  .method = "POST",
                                  .path = r->origin.base_path[0] ? "/chat/completions"
                                                                 : "/v1/chat/completions",
                                  .headers = h,
                                  .n_headers = conf_str(r->conf, "key")[0] ? 2 : 1,
                                  .body = buf_view(&body),
                                  .first_byte_timeout_ms = CALL_TIMEOUT_MS,
                                  .body_max = REPLY_BYTES_MAX,
                                  .retry_stale = true};
    struct http_call_handler handler = {on_head, on_body, on_done, r};
    (void)http_call(r->client, &o, &handler);
    loop_run(r->loop);
    enum err code = r->code;
    if (code == OK && r->status != 200)
        code = err_set(e, ERR_UNAVAILABLE, "status %d: " STR_FMT, r->status,
                       STR_ARG(str_sub(buf_view(&r->reply), 0, 160)));
    if (code == OK) code = json_parse(buf_view(&r->reply), 0, &doc, e);
    if (code == OK) code = judge_prompt_read(doc, yes, e);
    json_decref(doc);
    buf_fini(&body);
    buf_fini(&r->reply);
    return code;
}

/* -1: it says nothing, or there is none. */
static double ask_verifier(struct run *r, struct str a, struct str b)
{
    if (!r->tool.verifier) return -1;
    struct eval_explained x = {.item.verifier = -1};
    struct evaluator ev = {.embedder = r->tool.embedder,
                           .texts = eval_texts_new(r->tool.embedder),
                           .guard = r->tool.guard,
                           .verifier = r->tool.verifier,
                           .shipped = r->tool.shipped,
                           .knobs = knobs_default()};
    ev.knobs.same_words = false;
    int stored = eval_texts_add(ev.texts, a), asked = eval_texts_add(ev.texts, b);
    if (eval_texts_embed(ev.texts, NULL)) eval_explain(&ev, stored, asked, &x);
    eval_texts_free(ev.texts);
    return x.item.verifier;
}

static enum err one_line(struct run *r, struct str line, int line_no, struct errmsg *e)
{
    json_t *doc = NULL;
    double yes = 0;
    enum err code = json_parse(line, 0, &doc, e);
    struct str a = json_member_str(doc, "a"), b = json_member_str(doc, "b");
    if (code == OK && (!a.p || !b.p))
        code = err_set(e, ERR_INVALID, "expected {\"a\":\"...\",\"b\":\"...\"}");
    struct str lang = json_member_str(doc, "lang");
    char language = lang.n ? (str_eqz(lang, "zh") ? 'z' : 'e') : guard_language(b);
    int z = language == 'z';
    if (code == OK) code = ask(r, language, a, b, &yes, e);
    const json_t *same = json_object_get(doc, "same");
    if (code == OK) {
        struct buf out;
        buf_init(&out, LINE_BYTES_MAX * 4);
        double verifier = ask_verifier(r, a, b);
        buf_printf(&out, "{\"yes\":%.4f,", yes);
        if (verifier >= 0) buf_printf(&out, "\"verifier\":%.4f,", verifier);
        buf_printf(&out, "\"same\":%s,\"a\":",
                   json_is_boolean(same) ? json_is_true(same) ? "true" : "false" : "null");
        json_write_string(&out, a);
        buf_z(&out, ",\"b\":");
        json_write_string(&out, b);
        buf_z(&out, "}\n");
        say(&out);
        buf_fini(&out);
        if (json_is_boolean(same) && r->n_labels[z] < LABELS_MAX)
            r->labels[z][r->n_labels[z]++] =
                (struct judge_label){yes, verifier, json_is_true(same)};
    }
    json_decref(doc);
    return code == OK ? OK : err_prefix(e, code, "%s:%d", conf_str(r->conf, "pairs"), line_no);
}

/* Share of (same, different) pairs that the judge puts in the right order. */
static double order_share(const struct judge_label *l, size_t n)
{
    double right = 0, all = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n && l[i].same; k++) {
            if (l[k].same) continue;
            all++;
            right += l[i].yes > l[k].yes ? 1 : l[i].yes == l[k].yes ? 0.5 : 0;
        }
    return all > 0 ? right / all : 0.5;
}

/* One for both languages: what two words are worth beside each other depends little on it, and twice the pairs tell more. */
static struct judge_weights weights_of_both(const struct run *r)
{
    size_t n = r->n_labels[0] + r->n_labels[1];
    struct judge_label *all = xcalloc(n, sizeof *all);
    memcpy(all, r->labels[0], r->n_labels[0] * sizeof *all);
    memcpy(all + r->n_labels[0], r->labels[1], r->n_labels[1] * sizeof *all);
    struct judge_weights w = judge_weights_fit(all, n);
    mem_free(all);
    return w;
}

static void report(struct run *r)
{
    struct judge_tables t = judge_tables_for(STR(""));
    struct buf out;
    buf_init(&out, 4096);
    if (!r->n_labels[0] && !r->n_labels[1]) return;
    for (int z = 0; z < 2; z++) {
        buf_printf(&out, "# %s: %zu pairs, a same one above a different one in %.3f of cases\n",
                   z ? "zh" : "en", r->n_labels[z], order_share(r->labels[z], r->n_labels[z]));
        judge_table_fit(r->labels[z], r->n_labels[z], t.at[z]);
    }
    t.beside[0] = t.beside[1] = weights_of_both(r);
    buf_printf(&out, "# %s\n", conf_str(r->conf, "model"));
    judge_tables_write(&out, &t);
    say(&out);
    buf_fini(&out);
}

static enum err run(struct run *r, int argc, char **argv, struct errmsg *e)
{
    enum err code = conf_read_env(r->conf, e);
    if (code == OK) code = conf_read_args(r->conf, argc, argv, e);
    if (code == ERR_CANCELLED) {
        struct buf help;
        buf_init(&help, 64 * 1024);
        conf_help(r->conf, &help);
        say(&help);
        buf_fini(&help);
    }
    if (code != OK) return code;
    if (!conf_str(r->conf, "url")[0] || !conf_str(r->conf, "model")[0] ||
        !conf_str(r->conf, "pairs")[0])
        return err_set(e, ERR_INVALID, "--url, --model and --pairs are needed");
    r->guard = guard_new();
    const char *embed = conf_str(r->conf, "embed");
    if (embed[0] && !tool_open(&r->tool, "judge", embed, "", 1)) {
        r->tool = (struct tool){0};
        return err_set(e, ERR_INVALID, "--embed %.200s cannot be used", embed);
    }
    code = http_origin_parse(str_of(conf_str(r->conf, "url")), &r->origin, e);
    if (code == OK) code = loop_new(&r->loop, e);
    if (code != OK) return code;
    r->client = http_client_new(r->loop, &(struct http_client_options){0});
    r->file = fopen(conf_str(r->conf, "pairs"), "r");
    if (!r->file)
        return err_set(e, ERR_NOT_FOUND, "cannot read %.200s", conf_str(r->conf, "pairs"));
    for (int z = 0; z < 2; z++)
        r->labels[z] = xcalloc(LABELS_MAX, sizeof *r->labels[z]);
    char *line = xmalloc(LINE_BYTES_MAX);
    for (int n = 1; code == OK && fgets(line, LINE_BYTES_MAX, r->file); n++)
        if (str_trim(str_of(line)).n) code = one_line(r, str_trim(str_of(line)), n, e);
    mem_free(line);
    if (code == OK) report(r);
    return code;
}

int judge_main(int argc, char **argv)
{
    struct run *r = xcalloc(1, sizeof *r);
    struct errmsg e = {0};
    r->conf = conf_new(rows, sizeof rows / sizeof *rows);
    enum err code = run(r, argc, argv, &e);
    if (code != OK && code != ERR_CANCELLED)
        log_error("judge", "%s", e.text[0] ? e.text : err_text(code));
    if (r->file) fclose(r->file);
    if (r->client) http_client_free(r->client);
    if (r->loop) loop_free(r->loop);
    for (int z = 0; z < 2; z++)
        mem_free(r->labels[z]);
    if (r->tool.guard) tool_close(&r->tool);
    if (r->guard) guard_free(r->guard);
    conf_free(r->conf);
    mem_free(r);
    return code == OK || code == ERR_CANCELLED ? 0 : 1;
}
