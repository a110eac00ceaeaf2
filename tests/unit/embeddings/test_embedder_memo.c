/* test_embedder_memo.c - goal: the memo returns what was put and forgets the least recently used first. Method: random puts and
 * gets against a plain array that keeps the order of use. */
#include "embeddings/embedder_memo.h"

#include "base/rng.h"
#include "tests/check.h"

enum { ENTRIES = 20, TEXTS = 60, STEPS = 20000 };

static struct str text_of(int n, char out[16])
{
    snprintf(out, 16, "text %d", n);
    return str_of(out);
}

TEST(random_use_agrees_with_an_ordered_array)
{
    struct embedder_memo *m = embedder_memo_new(ENTRIES);
    struct rng rng;
    int order[ENTRIES], n = 0; /* most recently used first */
    char text[16];
    rng_seed(&rng, 7);
    for (int step = 0; step < STEPS; step++) {
        int t = (int)rng_below(&rng, TEXTS), at = 0;
        float vector[2] = {(float)t, 1};
        while (at < n && order[at] != t)
            at++;
        if (rng_below(&rng, 2)) {
            const float *got = embedder_memo_get(m, text_of(t, text));
            CHECK((got != NULL) == (at < n));
            if (got) CHECK(got[0] == (float)t);
            if (!got) continue;
        } else {
            embedder_memo_put(m, text_of(t, text), vector, sizeof vector);
            if (at < n) continue; /* putting what is there is no use of it */
            if (n < ENTRIES) n++;
            at = n - 1;
        }
        for (; at > 0; at--)
            order[at] = order[at - 1];
        order[0] = t;
        CHECK_INT(embedder_memo_entries(m), n);
    }
    embedder_memo_free(m);
}

TEST(long_texts_and_a_memo_of_none_remember_nothing)
{
    static char big[EMBEDDER_MEMO_TEXT_MAX + 1];
    float v[1] = {1};
    struct embedder_memo *m = embedder_memo_new(0);
    embedder_memo_put(m, STR("a"), v, sizeof v);
    CHECK(!embedder_memo_get(m, STR("a")));
    embedder_memo_free(m);
    m = embedder_memo_new(4);
    embedder_memo_put(m, (struct str){big, sizeof big}, v, sizeof v);
    CHECK(!embedder_memo_get(m, (struct str){big, sizeof big}));
    embedder_memo_put(m, (struct str){NULL, 0}, v, sizeof v);
    CHECK(embedder_memo_get(m, STR("")));
    embedder_memo_free(m);
}

TEST_MAIN()
