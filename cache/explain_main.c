/* explain_main.c - `deja explain A B`: may the answer to A be used for B? Every step's verdict and what decided. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "cache/eval_main.h"
#include "cache/tool.h"

static const char usage[] = "usage: deja explain STORED ASKED [options]\n\n"
                            "May the stored answer to one question be used for another? Every "
                            "step's verdict and what decided.\n";

static const struct conf_row rows[] = {
    {"embed", CONF_STR, "none", 0, 4096, "", 0,
     "GGUF file of the embedding model, or http://host:port/v1#MODEL; none = words alone decide",
     NULL},
    {"net", CONF_STR, "", 0, 4096, "", 0,
     "GGUF file of retrained verifier weights (docs/verifier.md); empty = the shipped ones", NULL},
    {"set", CONF_STR, "", 0, 4096, "", CONF_LIST,
     "NAME=VALUE[,NAME=VALUE...] of knobs (docs/config.md); guards=no switches all guards off",
     NULL},
    {"json", CONF_BOOL, "no", 0, 0, "", 0, "one JSON object", NULL},
};

static void guards_that_fired(struct buf *out, const struct guard_verdict *v, const char *mark)
{
    int n = 0;
    for (int i = 0; guard_names[i]; i++)
        if (v->fired >> i & 1)
            buf_printf(out, "%s%s%s%s", n++ ? (mark[0] ? "," : ", ") : "", mark, guard_names[i],
                       mark);
}

static void as_text(struct buf *out, const struct eval_explained *x)
{
    const struct guard_verdict *v = &x->item.guard;
    buf_printf(out, "%s: %s\n", x->item.hit ? "served" : "refused", x->item.reason);
    buf_printf(out, "  words     %.0f %% of the content in common, %.0f %% of the shorter; %s\n",
               100 * (double)v->shared, 100 * (double)v->contained,
               v->same ? "every word is explained" : "wording differs");
    buf_z(out, "  guards    ");
    guards_that_fired(out, v, "");
    buf_printf(out, "%s%s%s\n", v->fired ? "" : "none refuses", v->detail[0] ? ": " : "",
               v->detail);
    if (x->cosine >= -0.5)
        buf_printf(out, "  vectors   cosine %.4f, topic floor %.2f, threshold %.4f\n", x->cosine,
                   x->floor, x->threshold);
    else
        buf_z(out, "  vectors   no embedding model was given (--embed)\n");
    if (x->item.verifier >= 0) buf_printf(out, "  verifier  %.3f\n", x->item.verifier);
    buf_printf(out, "  decided   %s, held against %.4f\n",
               x->item.hit ? "all steps passed" : chain_step_names[x->item.step],
               x->item.threshold);
}

static void as_json(struct buf *out, const struct eval_explained *x)
{
    const struct guard_verdict *v = &x->item.guard;
    buf_printf(out, "{\"served\":%s,\"reason\":\"%s\",\"step\":\"%s\",\"same_words\":%s,",
               x->item.hit ? "true" : "false", x->item.reason,
               x->item.hit ? "hit" : chain_step_names[x->item.step], v->same ? "true" : "false");
    buf_printf(out, "\"shared\":%.3f,\"contained\":%.3f,\"guards\":[", (double)v->shared,
               (double)v->contained);
    guards_that_fired(out, v, "\"");
    buf_z(out, "],\"detail\":");
    json_write_string(out, str_of(v->detail));
    buf_printf(out, ",\"cosine\":%.5f,\"threshold\":%.5f,\"verifier\":%.5f}\n", x->cosine,
               x->item.threshold, x->item.verifier);
}

int explain_main(int argc, char **argv)
{
    const char *words[TOOL_WORDS_MAX];
    struct conf *c = conf_new(rows, sizeof rows / sizeof *rows);
    struct tool t = {0};
    int n_words, status;
    if (!tool_args(c, usage, argc, argv, words, &n_words, &status)) goto out;
    status = 2;
    struct cache_knobs k = knobs_default();
    struct str sets = str_of(conf_str(c, "set")), set;
    if (n_words != 2) {
        log_error("explain", "expected two questions: deja explain STORED ASKED");
        goto out;
    }
    while (str_next(&sets, '\n', &set))
        if (!tool_knobs(&k, "explain", set)) goto out;
    status = 1;
    if (!tool_open(&t, "explain", conf_str(c, "embed"), conf_str(c, "net"), 1)) goto out;
    struct evaluator ev = {.embedder = t.embedder,
                           .texts = eval_texts_new(t.embedder),
                           .guard = t.guard,
                           .verifier = t.verifier,
                           .shipped = t.shipped,
                           .knobs = k};
    int a = eval_texts_add(ev.texts, str_of(words[0])),
        b = eval_texts_add(ev.texts, str_of(words[1]));
    struct eval_explained x;
    struct buf out;
    buf_init(&out, 1 << 16);
    if (eval_texts_embed(ev.texts, NULL)) {
        eval_explain(&ev, a, b, &x);
        (conf_bool(c, "json") ? as_json : as_text)(&out, &x);
        tool_print(&out);
        status = 0;
    } else {
        log_error("explain", "the embedding model does not answer");
    }
    buf_fini(&out);
    eval_texts_free(ev.texts);
    tool_close(&t);
out:
    conf_free(c);
    return status;
}
