/* test_shadow_compare.c - goal: two answers that tell the same are not called different, and no pair that differs is called the same,
 * as far as anything is said. Method: hand-written pairs of answers (tests/data/answer_pairs.jsonl), with the real encoder when its
 * file is there. */
#include "gateway/shadow_compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "embeddings/embedder.h"
#include "tests/check.h"
#include "tests/unit/cache/faq_rig.h"

static struct embedder *open_embedder(void)
{
    char path[600];
    struct errmsg e = {0};
    struct embedder *em = NULL;
    struct embedder_options o = {.deadline_ms = 60000};
    const char *cache = getenv("DEJA_CACHE"), *home = getenv("HOME");
    snprintf(path, sizeof path, "%s%s/models/multilingual-e5-small-q4.gguf",
             cache  ? cache
             : home ? home
                    : "",
             cache ? "" : "/.cache/deja");
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fclose(f);
    return embedder_open(&em, path, &o, &e) == OK ? em : NULL;
}

struct tally {
    struct guard *guard;
    struct embedder *embedder;
    struct shadow_scale scale;
    int n[2], verdicts[2][3]; /* [same] */
};

static double cosine(struct embedder *em, struct str a, struct str b)
{
    float x[2048], y[2048];
    double sum = 0;
    int dim = embedder_dim(em);
    if (embedder_embed_sketch_sync(em, a, x, NULL) != OK ||
        embedder_embed_sketch_sync(em, b, y, NULL) != OK)
        return -1;
    for (int i = 0; i < dim; i++)
        sum += (double)x[i] * (double)y[i];
    return sum;
}

static void compare(void *arg, const json_t *line)
{
    struct tally *c = arg;
    struct str a = json_member_str(line, "a"), b = json_member_str(line, "b");
    int same = json_is_true(json_object_get(line, "same"));
    double cos = cosine(c->embedder, a, b);
    enum shadow_verdict v = shadow_compare(c->guard, &c->scale, a, b, cos),
                        w = shadow_compare(c->guard, &c->scale, b, a, cos);
    CHECK(v == w);
    c->n[same]++;
    c->verdicts[same][v]++;
    if (getenv("SHADOW_SHOW"))
        printf("    %s %.3f %d  " STR_FMT " / " STR_FMT "\n", same ? "same  " : "differ", cos, v,
               STR_ARG(a), STR_ARG(b));
}

TEST(pairs_of_answers_are_told_apart_or_nothing_is_said)
{
    struct tally c = {.guard = guard_new(), .embedder = open_embedder()};
    if (!c.embedder) {
        printf("    the embedder's file is not there: nothing was compared\n");
    } else {
        c.scale = shadow_scale_for(str_of(embedder_id(c.embedder)));
        REQUIRE(rig_each_line(TEST_DATA "/answer_pairs.jsonl", compare, &c));
        for (int s = 1; s >= 0; s--)
            printf("    %s: %d same, %d different, %d not said, of %d\n", s ? "same  " : "differ",
                   c.verdicts[s][0], c.verdicts[s][1], c.verdicts[s][2], c.n[s]);
        CHECK(c.n[0] >= 16 && c.n[1] >= 16);
        CHECK(!c.verdicts[0][SHADOW_SAME]);        /* none that differs is taken for the same */
        CHECK(c.verdicts[1][SHADOW_DIFFERS] <= 1); /* "9 to 18 o'clock" and "9:00" */
        CHECK(c.verdicts[1][SHADOW_SAME] >= c.n[1] / 4);
        CHECK(c.verdicts[0][SHADOW_DIFFERS] >= c.n[0] / 2);
    }
    embedder_close(c.embedder);
    guard_free(c.guard);
}

TEST(equal_answers_need_no_vector_and_without_one_nothing_else_is_said)
{
    struct guard *g = guard_new();
    struct shadow_scale s = shadow_scale_for(STR("who-knows"));
    CHECK(shadow_compare(g, &s, STR("Press it. "), STR("Press it."), -1) == SHADOW_SAME);
    CHECK(shadow_compare(g, &s, STR("Press it."), STR("Pull it."), -1) == SHADOW_UNCLEAR);
    CHECK(shadow_compare(g, &s, STR("It takes 3 days."), STR("It takes 5 days."), 0.99) ==
          SHADOW_DIFFERS);
    guard_free(g);
}

TEST_MAIN()
