/* tool.c - see tool.h. */
#include "cache/tool.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"

void tool_print(struct buf *b)
{
    if (b->n) (void)fwrite(b->p, 1, b->n, stdout);
    (void)fflush(stdout);
    buf_clear(b);
}

static bool is_option(const char *word)
{
    return word[0] == '-' && word[1] == '-' && word[2];
}

/* "--compare A B" as the options' table can read it. */
static int unfold_compare(int argc, char **argv, const char **out, int max)
{
    int n = 0;
    for (int i = 0; i < argc && n < max - 4; i++) {
        out[n++] = argv[i];
        if (strcmp(argv[i], "--compare") || i + 2 >= argc) continue;
        out[n++] = argv[++i];
        out[n++] = "--to";
        out[n++] = argv[++i];
    }
    return n;
}

static bool takes_value(const struct conf *c, const char *word)
{
    static const char *const flags[] = {"--json", "--help", "--dry-run", "--remove",
                                        "--help-markdown"};
    (void)c;
    if (strchr(word, '=')) return false;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (!strcmp(word, flags[i])) return false;
    return true;
}

bool tool_args(struct conf *c, const char *usage, int argc, char **argv, const char **words,
               int *n_words, int *status)
{
    enum { ARGS_MAX = 256 };
    const char *flat[ARGS_MAX];
    char *options[ARGS_MAX];
    int n_flat = unfold_compare(argc, argv, flat, ARGS_MAX), n = 0;
    struct errmsg e = {0};
    *n_words = 0;
    *status = 2;
    for (int i = 0; i < n_flat; i++) {
        if (i && !is_option(flat[i])) {
            if (*n_words == TOOL_WORDS_MAX) {
                log_error("deja", "too many arguments: at most %d", TOOL_WORDS_MAX);
                return false;
            }
            words[(*n_words)++] = flat[i];
            continue;
        }
        options[n++] = (char *)(uintptr_t)flat[i];
        if (i && takes_value(c, flat[i]) && i + 1 < n_flat)
            options[n++] = (char *)(uintptr_t)flat[++i];
    }
    enum err code = conf_read_args(c, n, options, &e);
    if (code == OK) return true;
    if (code != ERR_CANCELLED) {
        log_error("deja", "%s", e.text);
        return false;
    }
    struct buf help;
    buf_init(&help, 1 << 16);
    buf_printf(&help, "%s\n", usage);
    conf_help(c, &help);
    tool_print(&help);
    buf_fini(&help);
    *status = 0;
    return false;
}

bool tool_open(struct tool *t, const char *name, const char *model, const char *net, int threads)
{
    struct embedder_options o = {
        .n_threads = threads, .batch_tokens_max = 1024, .pair_net = net[0] ? net : NULL};
    struct errmsg e = {0};
    *t = (struct tool){.guard = guard_new()};
    if (model[0] && strcmp(model, "none") && embedder_open(&t->embedder, model, &o, &e) != OK) {
        log_error(name, "%s", e.text);
        tool_close(t);
        return false;
    }
    t->shipped = policy_for(str_of(t->embedder ? embedder_id(t->embedder) : ""));
    if (!t->embedder) return true;
    if (!embedder_can_compare(t->embedder)) return true;
    if (verifier_new(&t->verifier, embedder_calibration(t->embedder), &e) != OK)
        log_warn(name, "there is no verifier: %s", e.text);
    for (int i = 0; t->verifier && i < 2; i++)
        t->shipped.verifier[i] = verifier_thresholds_of(t->verifier, i ? 'z' : 'e')->hit;
    return true;
}

void tool_close(struct tool *t)
{
    verifier_free(t->verifier);
    guard_free(t->guard);
    embedder_close(t->embedder);
}

static bool all_guards_off(struct cache_knobs *k, struct str value)
{
    struct errmsg e = {0};
    for (size_t i = 0; i < knobs_count(); i++)
        if (knob_at(i).bit >= 0 && knobs_set(k, str_of(knob_at(i).name), value, &e) != OK)
            return false;
    return true;
}

bool tool_knobs(struct cache_knobs *k, const char *name, struct str settings)
{
    struct str item;
    struct errmsg e = {0};
    while (str_next(&settings, ',', &item)) {
        struct str knob;
        if (!str_trim(item).n) continue;
        if (!str_next(&item, '=', &knob) || !item.n) {
            log_error(name, "expected NAME=VALUE[,NAME=VALUE...], not \"" STR_FMT "\"",
                      STR_ARG(knob));
            return false;
        }
        knob = str_trim(knob);
        bool ok =
            str_eqz(knob, "guards") ? all_guards_off(k, item) : knobs_set(k, knob, item, &e) == OK;
        if (!ok) {
            log_error(name, "%s", e.text[0] ? e.text : "guards: expected yes or no");
            return false;
        }
    }
    return true;
}
