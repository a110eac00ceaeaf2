/* verifier.c - logistic regression over few readable features, one set of weights per language and look. See verifier.h.
 * Calibration: {"en": {"first", "alone", "hit", "looks": [{"bias", "cosine", .., "guards": {name: weight}} x 2]}, "zh": ..} */
#include "cache/verifier.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

enum { LOOKS = 2, LANGUAGES = 2, GUARDS_MAX = 32 };
enum feature { BIAS, COSINE, ALONE, JOINT, SHARED, CONTAINED, ASKS_ALIKE, SAME, N_FEATURES };
static const char *const feature_names[N_FEATURES] = {"bias",   "cosine",    "alone",      "joint",
                                                      "shared", "contained", "asks_alike", "same"};

struct look {
    double weight[N_FEATURES];
    double guard[GUARDS_MAX]; /* by place in guard_names */
};
struct verifier {
    struct look looks[LANGUAGES][LOOKS];
    struct verifier_thresholds thresholds[LANGUAGES];
};

/* ---- reading ---- */

static enum err read_number(const json_t *object, const char *name, double *out, struct errmsg *e)
{
    const json_t *v = json_object_get(object, name);
    if (!json_is_number(v))
        return err_set(e, ERR_CORRUPT, "%s: must be a number, not %s", name, json_kind(v));
    *out = json_number_value(v);
    return OK;
}

/* A guard without a weight was added later: it has no say here, though it may still be hard. */
static enum err read_guards(struct look *l, json_t *guards, struct errmsg *e)
{
    const char *name;
    json_t *v;
    if (!json_is_object(guards))
        return err_set(e, ERR_CORRUPT, "guards: must be an object, not %s", json_kind(guards));
    json_object_foreach(guards, name, v)
    {
        int i = 0;
        while (guard_names[i] && strcmp(guard_names[i], name) != 0)
            i++;
        ASSERT(i < GUARDS_MAX);
        if (!guard_names[i])
            return err_set(e, ERR_CORRUPT, "guards: this program has no guard \"%.40s\"", name);
        if (!json_is_number(v))
            return err_set(e, ERR_CORRUPT, "guards.%s: must be a number, not %s", name,
                           json_kind(v));
        l->guard[i] = json_number_value(v);
    }
    return OK;
}

static enum err read_look(struct look *l, const json_t *v, bool joint, struct errmsg *e)
{
    for (int i = 0; i < N_FEATURES; i++) {
        if (i == JOINT && !joint) continue;
        enum err code = read_number(v, feature_names[i], &l->weight[i], e);
        if (code) return code;
    }
    return read_guards(l, json_object_get(v, "guards"), e);
}

static enum err read_language(struct verifier *vf, int language, const json_t *v, struct errmsg *e)
{
    struct verifier_thresholds *t = &vf->thresholds[language];
    const json_t *looks = json_object_get(v, "looks");
    enum err code;
    if ((code = read_number(v, "first", &t->first, e)) ||
        (code = read_number(v, "alone", &t->alone, e)) ||
        (code = read_number(v, "hit", &t->hit, e)))
        return code;
    if (json_array_size(looks) != LOOKS)
        return err_set(e, ERR_CORRUPT, "looks: must be an array of %d", LOOKS);
    for (size_t i = 0; i < LOOKS; i++)
        if ((code = read_look(&vf->looks[language][i], json_array_get(looks, i), i > 0, e)))
            return err_prefix(e, code, "looks[%zu]", i);
    return OK;
}

enum err verifier_new(struct verifier **out, struct str calibration, struct errmsg *e)
{
    static const char *const languages[LANGUAGES] = {"en", "zh"};
    json_t *root = NULL;
    *out = NULL;
    if (!calibration.n)
        return err_set(e, ERR_UNSUPPORTED, "the embedder comes without a calibration");
    if (json_parse(calibration, 0, &root, e) != OK)
        return err_prefix(e, ERR_CORRUPT, "calibration");
    struct verifier *vf = xcalloc(1, sizeof *vf);
    enum err code = OK;
    for (int i = 0; i < LANGUAGES && !code; i++) {
        code = read_language(vf, i, json_object_get(root, languages[i]), e);
        if (code) (void)err_prefix(e, code, "calibration: %s", languages[i]);
    }
    json_decref(root);
    if (code)
        mem_free(vf);
    else
        *out = vf;
    return code;
}

void verifier_free(struct verifier *vf)
{
    mem_free(vf);
}

/* ---- judging ---- */

const char *verifier_refuses(const struct guard_verdict *v, bool likeness)
{
    uint32_t hard = likeness ? v->hard : v->hard & ~v->hard_by_likeness;
    for (int i = 0; guard_names[i]; i++)
        if (hard & 1u << i) return guard_names[i];
    return NULL;
}

double verifier_probability(const struct verifier *vf, const struct verifier_view *x)
{
    const struct guard_verdict *v = x->guard;
    const struct look *l = &vf->looks[v->language == 'z'][x->has_joint];
    const double value[N_FEATURES] = {1,
                                      x->cosine - 0.9,
                                      (double)x->alone,
                                      x->has_joint ? (double)x->joint : 0,
                                      (double)v->shared,
                                      (double)v->contained,
                                      v->asks_alike,
                                      v->same};
    double z = 0;
    for (int i = 0; i < N_FEATURES; i++)
        z += l->weight[i] * value[i];
    for (int i = 0; guard_names[i]; i++)
        if (v->fired & 1u << i) z += l->guard[i];
    return isfinite(z) ? 1 / (1 + exp(-z)) : 0;
}

static double first_look(const struct verifier *vf, const struct verifier_view *x)
{
    struct verifier_view first = *x;
    first.has_joint = false;
    return verifier_probability(vf, &first);
}

bool verifier_is_hopeless(const struct verifier *vf, const struct verifier_view *x)
{
    return first_look(vf, x) < verifier_thresholds_of(vf, x->guard->language)->first;
}

double verifier_judge(const struct verifier *vf, const struct verifier_view *x)
{
    return verifier_is_hopeless(vf, x) ? first_look(vf, x) : verifier_probability(vf, x);
}

const struct verifier_thresholds *verifier_thresholds_of(const struct verifier *vf, char language)
{
    return &vf->thresholds[language == 'z'];
}
