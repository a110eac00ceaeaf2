/* knobs.c - see knobs.h. */
#include "cache/knobs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cache/guard.h"

#define AT(field) offsetof(struct cache_knobs, field)
#define BOOL(field, preset, help)                                                                  \
    {                                                                                              \
#field, KNOB_BOOL, 0, 1, preset, "", "", help, AT(field), -1, KNOB_CACHE                   \
    }
#define INT(field, preset, min, max, unit, help)                                                   \
    {                                                                                              \
#field, KNOB_INT, min, max, preset, unit, "", help, AT(field), -1, KNOB_CACHE              \
    }
#define FLOAT(field, preset, min, max, unit, help)                                                 \
    {                                                                                              \
#field, KNOB_FLOAT, min, max, preset, unit, "", help, AT(field), -1, KNOB_CACHE            \
    }
#define CHOICE(field, preset, choices, last, help)                                                 \
    {                                                                                              \
#field, KNOB_CHOICE, 0, last, preset, "", choices, help, AT(field), -1, KNOB_CACHE         \
    }

#define LIMIT(field, type, preset, min, max, unit, help)                                           \
    {                                                                                              \
#field, type, min, max, preset, unit, "", help, AT(field), -1, KNOB_LIMIT                  \
    }

static const struct knob rows[] = {
    BOOL(exact, 1, "answer equal requests from the cache"),
    BOOL(semantic, 1, "answer requests that mean the same from the cache"),
    CHOICE(curated, KNOB_CURATED_PLAIN, "no plain any_system", 2,
           "which single questions deja seed answers: without a system prompt, or under any"),
    FLOAT(temperature_max, 1, 0, 2, "", "no semantic look-up for requests above this temperature"),
    INT(max_age_s, 0, 0, 31536000, "s", "stored answers older than this are not used; 0 = any age"),
    CHOICE(mode, KNOB_MODE_THRESHOLD, "threshold bound", 1,
           "what decides on a similar question: one threshold, or what each entry has learnt"),
    FLOAT(threshold_en, 0, 0, 1, "cosine",
          "least similarity that may count, questions without Chinese; 0 = the embedder's own"),
    FLOAT(threshold_zh, 0, 0, 1, "cosine",
          "least similarity that may count, Chinese questions; 0 = the embedder's own"),
    FLOAT(floor, 0, 0, 1, "cosine",
          "below this similarity it is another topic; 0 = the embedder's own"),
    FLOAT(max_error, 0.02, 0.0001, 0.5, "share",
          "mode bound: largest share of semantic hits that may be wrong"),
    BOOL(verifier, 1, "the trained verifier must agree, where there is one"),
    FLOAT(verifier_en, 0, 0, 1, "probability",
          "what the verifier must give, questions without Chinese; 0 = its own threshold"),
    FLOAT(verifier_zh, 0, 0, 1, "probability",
          "what the verifier must give, Chinese questions; 0 = its own threshold"),
    FLOAT(verifier_bias_en, 0, -100, 100, "logit",
          "added to what the verifier gives, English; deja eval --calibrate fits these"),
    FLOAT(verifier_bias_zh, 0, -100, 100, "logit", "added to what the verifier gives, Chinese"),
    FLOAT(verifier_weight_en, 1, 0, 10, "", "what the verifier's own word counts, English"),
    FLOAT(verifier_weight_zh, 1, 0, 10, "", "what the verifier's own word counts, Chinese"),
    FLOAT(verifier_cosine_en, 0, 0, 10, "logit",
          "what each 0.01 of similarity above 0.90 adds to it, English"),
    FLOAT(verifier_cosine_zh, 0, 0, 10, "logit",
          "what each 0.01 of similarity above 0.90 adds to it, Chinese"),
    BOOL(likeness_refuses, 1,
         "where most words are the same any guard refuses for sure; no: the verifier weighs it"),
    BOOL(verifier_stored, 1,
         "what the verifier needs of a question is put into Redis with the answer, some 4 KB"),
    INT(top_k, 16, 1, 16, "", "nearest stored questions that are considered"),
    INT(verify_top, 3, 1, 16, "",
        "of those no guard refuses, how many the verifier and the threshold are asked about"),
    BOOL(same_words, 1,
         "questions equal but for case, politeness, script, synonyms hit at once (not in mode "
         "bound)"),
    BOOL(vetoes, 1, "judged texts and near questions may forbid an answer"),
    FLOAT(rival_margin, 0, 0, 1, "cosine",
          "how far a question must lead the nearest one with another answer; 0 = not at all"),
    INT(trust_min, 0, 0, 9, "",
        "entries of less trusted writers answer equal requests only; 1 gateway, 5 reviewed, 9 "
        "operator"),
    INT(quarantine_questions, 8, 0, 64, "",
        "questions after which an entry is set aside if most are unlike each other; 0 = never"),
    FLOAT(quarantine_cosine, 0, 0, 1, "cosine",
          "below this similarity such questions are unlike; 0 = the embedder's own"),
    INT(ttl_s, 86400, 1, 31536000, "s", "lifetime given to answers stored from now on"),
    INT(stale_if_error_s, 3600, 0, 31536000, "s",
        "an answer past its lifetime is kept this much longer, for when no upstream answers; 0 = "
        "not"),
    INT(redis_bytes_max, 0, 0, 1e13, "bytes",
        "what entries may take in Redis; 0 = no bound. Set it with deja_config_set, IN ns:NAME "
        "too"),
    FLOAT(shadow_percent, 0, 0, 100, "%",
          "share of semantic hits that the model answers too, afterwards, to see whether they were "
          "right"),
    BOOL(judge, 0, "ask the judge model about near misses, after the client was answered"),
    BOOL(judge_refused, 0, "ask the judge also about near misses that a guard refused"),
    BOOL(judge_hits, 0,
         "ask the judge also about answers given to a question of other words, each text once"),
    INT(judge_top, 8, 1, 16, "",
        "of the nearest stored questions, how many a miss shows to the judge, until it approves "
        "one"),
    FLOAT(judge_band, 0.1, 0, 1, "cosine",
          "how far below the threshold a near miss may be to be judged"),
    FLOAT(judge_yes, 0.96, 0.5, 1, "probability",
          "from this probability of yes on the wording is approved"),
    FLOAT(judge_no, 0.1, 0, 0.5, "probability", "up to this probability of yes the pair is vetoed"),
    INT(judge_per_min, 30, 0, 6000, "calls/min", "most questions the judge is asked"),
    INT(near_misses, 1000, 0, 100000, "", "near misses kept for review; 0 = none"),
    INT(near_miss_top, 3, 1, 16, "",
        "of the nearest stored questions, how many a miss puts on the review list"),
    BOOL(near_miss_text, 0, "keep the text of near misses, not only a hash"),
    CHOICE(
        join_similar, KNOB_JOIN_NO, "no whole live", 2,
        "a question like one being asked waits for that answer: when it is whole, or streams live"),
    BOOL(route_prefix, 1,
         "of several targets prefer the one that holds most of the prompt as KV; off: the least "
         "loaded"),
    BOOL(route_shared, 1,
         "ask Redis what other gateways have sent to targets that tell nothing of their KV"),
    FLOAT(
        route_load_weight, 0.7, 0, 100, "",
        "what a target twice as loaded as the mean loses against one that holds the whole prompt"),
    INT(route_prefill_tokens, 256, 0, 10000000, "tokens",
        "prompt tokens that a decode engine lacks, from which on a prefill engine computes them; 0 "
        "= never"),
    INT(batch_concurrency, 8, 0, 1024, "lines",
        "lines of batches at work in a gateway at a time; 0 = batches pause"),
    INT(batch_minimum, 1, 0, 1024, "lines",
        "of these, how many go on while clients are many or batch_window is shut"),
    INT(batch_yield, 16, 0, 100000, "requests",
        "clients' requests at work in a gateway above which batches yield to them"),
    {"price_prompt", KNOB_FLOAT, 0, 1000000, 0, "per million", "",
     "what a million prompt tokens cost, for the money in reports and budgets", AT(price_prompt),
     -1, KNOB_PRICE},
    {"price_completion", KNOB_FLOAT, 0, 1000000, 0, "per million", "",
     "what a million completion tokens cost, for the money in reports and budgets",
     AT(price_completion), -1, KNOB_PRICE},
    LIMIT(limit_requests_per_min, KNOB_INT, 0, 0, 1e9, "requests/min",
          "most requests of a tenant; 0 = no limit"),
    LIMIT(limit_requests_per_day, KNOB_INT, 0, 0, 1e9, "requests/day",
          "most requests of a tenant; 0 = no limit"),
    LIMIT(limit_tokens_per_min, KNOB_INT, 0, 0, 1e12, "tokens/min",
          "most prompt and completion tokens of a tenant; 0 = no limit"),
    LIMIT(limit_tokens_per_day, KNOB_INT, 0, 0, 1e12, "tokens/day",
          "most prompt and completion tokens of a tenant; 0 = no limit"),
    LIMIT(limit_concurrency, KNOB_INT, 0, 0, 1e6, "requests",
          "most requests of a tenant at work at a time; 0 = no limit"),
    LIMIT(limit_budget_day, KNOB_FLOAT, 0, 0, 1e12, "money/day",
          "most a tenant may spend a UTC day, at the prices set; 0 = no limit"),
    LIMIT(limit_budget_month, KNOB_FLOAT, 0, 0, 1e12, "money/month",
          "most a tenant may spend a UTC month, at the prices set; 0 = no limit"),
    LIMIT(limit_shadow, KNOB_BOOL, 0, 0, 1, "",
          "count and log what the limits would refuse, refuse nothing"),
    LIMIT(limit_hit_tokens, KNOB_BOOL, 0, 0, 1, "",
          "an answer from the cache costs its tokens too, not only a request"),
    LIMIT(limit_stream_usage, KNOB_BOOL, 1, 0, 1, "",
          "ask upstreams for the usage of streams under a limit, so that it is counted exactly"),
    LIMIT(limit_answer_tokens, KNOB_INT, 1024, 1, 10000000, "tokens",
          "reserved for the answer where a request names no max_tokens"),
};
const struct knob_text knob_texts[KNOB_TEXTS] = {
    {"route", "chat when prompt_tokens > 4000 -> chat-long; chat -> chat-small",
     "rules by which another model serves the one asked for; none = no rules"},
    {"fallback", "big=middle,small; *=small",
     "models that answer where one does not; none = no fallbacks"},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static size_t n_guards(void)
{
    size_t n = 0;
    while (guard_names[n])
        n++;
    return n < 64 ? n : 64;
}

size_t knobs_count(void)
{
    return N_ROWS + n_guards();
}

struct knob knob_at(size_t i)
{
    ASSERT(i < knobs_count());
    if (i < N_ROWS) return rows[i];
    struct knob k = {.type = KNOB_BOOL,
                     .max = 1,
                     .preset = 1,
                     .unit = "",
                     .choices = "",
                     .help = "this guard may refuse a similar question",
                     .offset = AT(guards_off),
                     .bit = (int)(i - N_ROWS)};
    snprintf(k.name, sizeof k.name, "guard_%s", guard_names[i - N_ROWS]);
    return k;
}

enum err knob_find(struct str name, struct knob *out, struct errmsg *e)
{
    int best = 1 + (int)(name.n / 3); /* farther than that is no slip of the finger */
    size_t nearest = knobs_count();
    for (size_t i = 0; i < knobs_count(); i++) {
        *out = knob_at(i);
        if (str_ieq(name, str_of(out->name))) return OK;
        int d = str_distance(name, str_of(out->name));
        if (d < best || (d == best && nearest == knobs_count())) best = d, nearest = i;
    }
    struct str shown = str_sub(name, 0, 40);
    if (nearest == knobs_count())
        return err_set(e, ERR_NOT_FOUND, "no knob is called \"" STR_FMT "\"", STR_ARG(shown));
    return err_set(e, ERR_NOT_FOUND, "no knob is called \"" STR_FMT "\": did you mean \"%s\"?",
                   STR_ARG(shown), knob_at(nearest).name);
}

/* --- values. All pass through a double: integers are at most 1e12. */
double knob_get(const struct cache_knobs *k, const struct knob *of)
{
    const char *at = (const char *)k + of->offset;
    if (of->bit >= 0) return !(k->guards_off >> of->bit & 1);
    switch (of->type) {
    case KNOB_BOOL:
        return *(const bool *)at;
    case KNOB_FLOAT:
        return *(const double *)at;
    case KNOB_INT:
    case KNOB_CHOICE:
        break;
    }
    return (double)*(const int64_t *)at;
}

void knob_put(struct cache_knobs *k, const struct knob *of, double v)
{
    char *at = (char *)k + of->offset;
    if (of->bit >= 0) {
        uint64_t bit = UINT64_C(1) << of->bit;
        k->guards_off = v != 0 ? k->guards_off & ~bit : k->guards_off | bit;
        return;
    }
    switch (of->type) {
    case KNOB_BOOL:
        *(bool *)at = v != 0;
        break;
    case KNOB_FLOAT:
        *(double *)at = v;
        break;
    case KNOB_INT:
    case KNOB_CHOICE:
        *(int64_t *)at = (int64_t)v;
        break;
    }
}

struct cache_knobs knobs_default(void)
{
    struct cache_knobs k = {0};
    for (size_t i = 0; i < knobs_count(); i++) {
        struct knob of = knob_at(i);
        knob_put(&k, &of, of.preset);
    }
    return k;
}

static bool read_bool(struct str s, double *out)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
    for (int i = 0; i < 8; i++)
        if (str_ieq(s, str_of(words[i]))) {
            *out = i % 2;
            return true;
        }
    return false;
}

static bool read_choice(const char *choices, struct str s, double *out)
{
    struct str words = str_of(choices), word;
    for (int i = 0; str_next(&words, ' ', &word); i++)
        if (str_ieq(s, word)) {
            *out = i;
            return true;
        }
    return false;
}

/* "1 to 16", "0 to 31536000 s" */
static void range_text(const struct knob *of, char *out, size_t cap)
{
    snprintf(out, cap, "%.15g to %.15g%s%s", of->min, of->max, of->unit[0] ? " " : "", of->unit);
}

static enum err read_number(const struct knob *of, struct str value, double *out, struct errmsg *e)
{
    char range[96];
    struct str shown = str_sub(value, 0, 40);
    range_text(of, range, sizeof range);
    if (str_to_f64(value, out) != OK)
        return err_set(e, ERR_INVALID, "%s: expected a %snumber from %s, not \"" STR_FMT "\"",
                       of->name, of->type == KNOB_INT ? "whole " : "", range, STR_ARG(shown));
    if (of->type == KNOB_INT && *out != floor(*out))
        return err_set(e, ERR_INVALID, "%s: expected a whole number from %s, not " STR_FMT,
                       of->name, range, STR_ARG(shown));
    if (*out < of->min || *out > of->max)
        return err_set(e, ERR_RANGE, "%s: " STR_FMT " is %s; it may be %s", of->name,
                       STR_ARG(shown), *out < of->min ? "too low" : "too high", range);
    return OK;
}

enum err knob_parse(const struct knob *of, struct str value, double *out, struct errmsg *e)
{
    value = str_trim(value);
    struct str shown = str_sub(value, 0, 40);
    if (str_ieq(value, STR("default"))) return *out = of->preset, OK;
    if (of->type == KNOB_BOOL)
        return read_bool(value, out)
                   ? OK
                   : err_set(e, ERR_INVALID, "%s: expected yes or no, not \"" STR_FMT "\"",
                             of->name, STR_ARG(shown));
    if (of->type == KNOB_CHOICE)
        return read_choice(of->choices, value, out)
                   ? OK
                   : err_set(e, ERR_INVALID, "%s: expected one of %s, not \"" STR_FMT "\"",
                             of->name, of->choices, STR_ARG(shown));
    return read_number(of, value, out, e);
}

enum err knobs_set(struct cache_knobs *k, struct str name, struct str value, struct errmsg *e)
{
    struct knob of;
    double v;
    enum err code = knob_find(name, &of, e);
    if (code == OK) code = knob_parse(&of, value, &v, e);
    if (code == OK) knob_put(k, &of, v);
    return code;
}

static void value_text(const struct knob *of, double v, char out[KNOB_TEXT_BYTES])
{
    if (of->type == KNOB_BOOL) {
        snprintf(out, KNOB_TEXT_BYTES, "%s", v != 0 ? "yes" : "no");
    } else if (of->type == KNOB_CHOICE) {
        struct str words = str_of(of->choices), word = {"", 0};
        for (int i = 0; i <= (int)v && str_next(&words, ' ', &word); i++)
            continue;
        snprintf(out, KNOB_TEXT_BYTES, STR_FMT, STR_ARG(word));
    } else {
        snprintf(out, KNOB_TEXT_BYTES, "%.15g", v);
    }
}

void knob_format(const struct cache_knobs *k, const struct knob *of, char out[KNOB_TEXT_BYTES])
{
    value_text(of, knob_get(k, of), out);
}

/* --- the table elsewhere */
static const char *type_name(enum knob_type t)
{
    static const char *const names[] = {"bool", "int", "float", "choice"};
    return names[t];
}

static const char *family_name(enum knob_family f)
{
    static const char *const names[] = {"cache", "limit", "price"};
    return names[f];
}

void knobs_write_lua(struct buf *out)
{
    char preset[KNOB_TEXT_BYTES];
    buf_z(out, "knobs({\n");
    for (size_t i = 0; i < knobs_count(); i++) {
        struct knob k = knob_at(i);
        value_text(&k, k.preset, preset);
        buf_printf(out,
                   "  {name='%s', type='%s', min=%.15g, max=%.15g, preset='%s', unit='%s', "
                   "choices='%s', family='%s', help=\"%s\"},\n",
                   k.name, type_name(k.type), k.min, k.max, preset, k.unit, k.choices,
                   family_name(k.family), k.help);
    }
    for (size_t i = 0; i < KNOB_TEXTS; i++)
        buf_printf(out,
                   "  {name='%s', type='text', min=0, max=0, preset='none', unit='', choices='%s', "
                   "family='text', help=\"%s\"},\n",
                   knob_texts[i].name, knob_texts[i].example, knob_texts[i].help);
    buf_z(out, "})\n");
}

void knobs_write_markdown(struct buf *out)
{
    char preset[KNOB_TEXT_BYTES], range[96];
    buf_z(out, "| knob | default | may be | what |\n| --- | --- | --- | --- |\n");
    for (size_t i = 0; i < knobs_count(); i++) {
        struct knob k = knob_at(i);
        value_text(&k, k.preset, preset);
        if (k.type == KNOB_BOOL)
            snprintf(range, sizeof range, "yes, no");
        else if (k.type == KNOB_CHOICE)
            snprintf(range, sizeof range, "%s", k.choices);
        else
            range_text(&k, range, sizeof range);
        buf_printf(out, "| `%s` | `%s` | %s | %s |\n", k.name, preset, range, k.help);
    }
    for (size_t i = 0; i < KNOB_TEXTS; i++)
        buf_printf(out, "| `%s` | start option | `%s` | %s |\n", knob_texts[i].name,
                   knob_texts[i].example, knob_texts[i].help);
}
