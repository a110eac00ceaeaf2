/* eval_main.c - `deja eval FILE...`: what a policy would have served, and what of that would have been wrong. */
#include "cache/eval_main.h"

#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "cache/tool.h"

static const char usage[] =
    "usage: deja eval FILE... [options]\n\n"
    "Replays question files against a policy, without a server. One JSON object a line:\n"
    "  {\"a\",\"b\",\"same\":true|false,\"lang\"?,\"category\"?}       pairs\n"
    "  {\"q\",\"same\":[...],\"near\":[...]}                      an FAQ: other wordings, near "
    "questions\n"
    "  {\"q\",\"answer\"}                                      a stream of requests, in order\n";

static const struct conf_row rows[] = {
    {"embed", CONF_STR, "none", 0, 4096, "", 0,
     "GGUF file of the embedding model, or http://host:port/v1#MODEL; none = words alone decide",
     NULL},
    {"net", CONF_STR, "", 0, 4096, "", 0,
     "GGUF file of retrained verifier weights (docs/verifier.md); empty = the shipped ones", NULL},
    {"set", CONF_STR, "", 0, 4096, "", CONF_LIST,
     "NAME=VALUE[,NAME=VALUE...] of knobs (docs/config.md); guards=no switches all guards off",
     NULL},
    {"compare", CONF_STR, "", 0, 4096, "", 0,
     "two policies, as in --compare mode=threshold mode=bound; \"\" = as shipped", NULL},
    {"to", CONF_STR, "", 0, 4096, "", 0, "the second of --compare", NULL},
    {"threads", CONF_INT, "1", 1, 64, "", 0, "threads of the embedding model", NULL},
    {"seed", CONF_INT, "1", 0, 1e15, "", 0, "of a stream's shadow samples", NULL},
    {"calibrate", CONF_INT, "0", 0, CALIBRATE_PAIRS_MAX, "pairs", 0,
     "weigh the verifier anew from each file's pairs, told with so many of them judged by the "
     "rest; "
     "0 = half",
     NULL},
    {"splits", CONF_INT, "20", 0, 1000, "", 0, "how often --calibrate draws those pairs", NULL},
    {"json", CONF_BOOL, "no", 0, 0, "", 0, "one JSON object a file and policy", NULL},
};

static void told(size_t done, size_t of)
{
    if (isatty(2)) fprintf(stderr, "\r%zu of %zu texts", done, of);
}

struct job {
    struct evaluator ev;
    struct eval_file *files;
    int n_files;
    const struct conf *conf;
};

static bool read_files(struct job *j, const char **words)
{
    struct errmsg e = {0};
    for (int i = 0; i < j->n_files; i++)
        if (eval_read(&j->files[i], words[i], j->ev.texts, &e) != OK) {
            log_error("eval", "%s", e.text);
            j->n_files = i;
            return false;
        }
    if (eval_texts_embed(j->ev.texts, told)) return true;
    log_error("eval", "the embedding model does not answer");
    return false;
}

static bool knobs_of(const struct job *j, const char *policy, struct cache_knobs *out)
{
    struct str sets = str_of(conf_str(j->conf, "set")), set;
    *out = knobs_default();
    while (str_next(&sets, '\n', &set))
        if (!tool_knobs(out, "eval", set)) return false;
    return tool_knobs(out, "eval", str_of(policy));
}

static void report(const struct job *j, struct buf *out, const struct eval_file *f,
                   const struct eval_result *r, const char *policy)
{
    (conf_bool(j->conf, "json") ? eval_report_json : eval_report_text)(out, f, r, policy);
    tool_print(out);
}

static int calibrate_files(struct job *j)
{
    struct eval_calibrated found[2];
    struct errmsg e = {0};
    struct buf out;
    int status = knobs_of(j, "", &j->ev.knobs) ? 0 : 2;
    buf_init(&out, 1 << 20);
    for (int i = 0; i < j->n_files && !status; i++) {
        if (eval_calibrate(&j->ev, &j->files[i], (size_t)conf_int(j->conf, "calibrate"),
                           (size_t)conf_int(j->conf, "splits"), found, &e) != OK) {
            log_error("eval", "%s", e.text);
            status = 1;
            break;
        }
        if (!conf_bool(j->conf, "json")) buf_printf(&out, "%s\n", j->files[i].name);
        (conf_bool(j->conf, "json") ? eval_calibrated_json : eval_calibrated_text)(&out, found);
        tool_print(&out);
    }
    buf_fini(&out);
    return status;
}

static int run(struct job *j)
{
    bool two = conf_is_set(j->conf, "compare") || conf_is_set(j->conf, "to");
    const char *policies[2] = {conf_str(j->conf, "compare"), conf_str(j->conf, "to")};
    struct eval_result *results = xcalloc(2, sizeof *results);
    struct buf out;
    int status = 0;
    buf_init(&out, 1 << 22);
    for (int i = 0; i < j->n_files && !status; i++) {
        for (int p = 0; p < (two ? 2 : 1) && !status; p++) {
            status = knobs_of(j, policies[p], &j->ev.knobs) ? 0 : 2;
            if (status) break;
            eval_run(&j->ev, &j->files[i], &results[p]);
            report(j, &out, &j->files[i], &results[p],
                   policies[p][0]                ? policies[p]
                   : conf_is_set(j->conf, "set") ? conf_str(j->conf, "set")
                                                 : "as shipped");
        }
        if (two && !status && !conf_bool(j->conf, "json"))
            eval_report_compared(&out, &j->files[i], &results[0], &results[1]);
        tool_print(&out);
    }
    buf_fini(&out);
    mem_free(results);
    return status;
}

int eval_main(int argc, char **argv)
{
    const char *words[TOOL_WORDS_MAX];
    struct conf *c = conf_new(rows, sizeof rows / sizeof *rows);
    struct job j = {.conf = c};
    struct tool t = {0};
    int status = 2;
    if (!tool_args(c, usage, argc, argv, words, &j.n_files, &status)) goto out;
    if (!j.n_files) {
        log_error("eval", "which files? `deja eval --help` tells what they hold");
        status = 2;
        goto out;
    }
    status = 1;
    if (!tool_open(&t, "eval", conf_str(c, "embed"), conf_str(c, "net"),
                   (int)conf_int(c, "threads")))
        goto out;
    j.ev = (struct evaluator){.embedder = t.embedder,
                              .texts = eval_texts_new(t.embedder),
                              .guard = t.guard,
                              .verifier = t.verifier,
                              .shipped = t.shipped,
                              .seed = (uint64_t)conf_int(c, "seed")};
    j.files = xcalloc((size_t)j.n_files, sizeof *j.files);
    if (read_files(&j, words)) status = conf_is_set(c, "calibrate") ? calibrate_files(&j) : run(&j);
    for (int i = 0; i < j.n_files; i++)
        eval_file_fini(&j.files[i]);
    mem_free(j.files);
    eval_texts_free(j.ev.texts);
    tool_close(&t);
out:
    conf_free(c);
    return status;
}
