/* test_guard_pairs.c - goal: of pairs in many trades that differ in one thing (a number, a unit, a small word, a name...) none is a
 * hit with the shipped policy, and close rewordings are hits. Method: tests/data/guard_pairs.jsonl, partly from the head, partly
 * aimed at what the word lists could confuse. A pair the guards explain counts as a hit whatever the vectors say; what they only
 * allow is held against the embedder's cosine where its file is there, else it is no hit. Prints the shares by kind. */
#include "cache/guard.h"
#include "cache/policy.h"
#include "embeddings/embedder.h"
#include "tests/unit/cache/faq_rig.h"

enum { KINDS_MAX = 32, DIM_MAX = 1024 };

struct tally {
    struct guard *guard;
    struct embedder *embedder; /* NULL: not on this machine */
    struct policy policy;
    int different[2], wrong[2], same[2], hit[2], allowed[2]; /* by language: English, Chinese */
    char kinds[KINDS_MAX][24];
    int by_kind[KINDS_MAX], n_kinds;
};

static struct embedder *open_embedder(void)
{
    const char *cache = getenv("DEJA_CACHE"), *home = getenv("HOME");
    char path[512];
    struct embedder *em = NULL;
    struct embedder_options o = {0};
    struct errmsg e = {0};
    if (cache)
        snprintf(path, sizeof path, "%s/models/multilingual-e5-small-q4.gguf", cache);
    else
        snprintf(path, sizeof path, "%s/.cache/deja/models/multilingual-e5-small-q4.gguf",
                 home ? home : "");
    if (embedder_open(&em, path, &o, &e) == OK && embedder_dim(em) <= DIM_MAX) return em;
    embedder_close(em);
    return NULL;
}

static double cosine(struct embedder *em, struct str a, struct str b)
{
    static float va[DIM_MAX], vb[DIM_MAX];
    double sum = 0;
    if (embedder_embed_sketch_sync(em, a, va, NULL) != OK ||
        embedder_embed_sketch_sync(em, b, vb, NULL) != OK)
        return -1;
    for (int i = 0; i < embedder_dim(em); i++)
        sum += (double)va[i] * (double)vb[i];
    return sum;
}

static bool is_hit(const struct tally *t, struct str a, struct str b, const struct guard_verdict *v)
{
    if (v->same) return true;
    if (!v->allowed || !t->embedder) return false;
    struct policy_view view = {cosine(t->embedder, a, b), -1, v->language, 0};
    return policy_decide(&t->policy, &view).hit;
}

static void count_kind(struct tally *t, struct str kind)
{
    int k = 0;
    while (k < t->n_kinds && !str_eqz(kind, t->kinds[k]))
        k++;
    if (k == KINDS_MAX) return;
    if (k == t->n_kinds)
        snprintf(t->kinds[t->n_kinds++], sizeof t->kinds[0], STR_FMT, STR_ARG(kind));
    t->by_kind[k]++;
}

static void judge(void *arg, const json_t *line)
{
    struct tally *t = arg;
    struct str a = json_member_str(line, "a"), b = json_member_str(line, "b"),
               kind = json_member_str(line, "kind");
    int z = str_eqz(json_member_str(line, "lang"), "zh");
    struct guard_verdict v, w;
    guard_check(t->guard, a, b, &v);
    guard_check(t->guard, b, a, &w);
    CHECK_AT(v.allowed == w.allowed && v.same == w.same,
             "not symmetric: \"" STR_FMT "\" / \"" STR_FMT "\"", STR_ARG(a), STR_ARG(b));
    bool hit = is_hit(t, a, b, &v);
    if (json_is_true(json_object_get(line, "same"))) {
        t->same[z]++;
        t->hit[z] += hit;
        if (!hit)
            printf("    missed: \"" STR_FMT "\" / \"" STR_FMT "\": %s\n", STR_ARG(a), STR_ARG(b),
                   v.refused_by);
        return;
    }
    count_kind(t, kind);
    t->different[z]++;
    t->wrong[z] += hit;
    t->allowed[z] += v.allowed;
    CHECK_AT(!hit, STR_FMT ": \"" STR_FMT "\" / \"" STR_FMT "\" is a hit", STR_ARG(kind),
             STR_ARG(a), STR_ARG(b));
}

TEST(no_pair_that_differs_in_one_thing_is_a_hit_and_close_rewordings_are)
{
    static struct tally t;
    t.guard = guard_new();
    t.embedder = open_embedder();
    t.policy = policy_for(STR("multilingual-e5-small"));
    REQUIRE(rig_each_line(TEST_DATA "/guard_pairs.jsonl", judge, &t));
    printf("    judged with %s\n",
           t.embedder ? "guards and embedder" : "guards alone: the embedder's file is not there");
    for (int z = 0; z < 2; z++)
        printf("    %s: %d different, %d hits, %d more allowed; %d close rewordings, %d hits\n",
               z ? "zh" : "en", t.different[z], t.wrong[z], t.allowed[z] - t.wrong[z], t.same[z],
               t.hit[z]);
    printf("    different:");
    for (int k = 0; k < t.n_kinds; k++)
        printf(" %s %d", t.kinds[k], t.by_kind[k]);
    printf("\n");
    CHECK(t.different[0] >= 400 && t.different[1] >= 350 && t.same[0] >= 100 && t.same[1] >= 100);
    CHECK(t.hit[0] * 100 >= t.same[0] * 93 && t.hit[1] * 100 >= t.same[1] * 91);
    embedder_close(t.embedder);
    guard_free(t.guard);
}

TEST_MAIN()
