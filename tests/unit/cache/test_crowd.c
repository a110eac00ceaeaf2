/* test_crowd.c - goal: an entry is a crowd's once enough different questions hit it that are mostly unlike each other, never for other
 * wordings of one question, for one text or one asker over and over, or below the bound; memory stays fixed. Method: made vectors. */
#include "cache/crowd.h"

#include <math.h>
#include <stdio.h>

#include "base/rng.h"
#include "tests/check.h"

enum { DIM = 32 };
static const struct hash128 ENTRY = {7, 9};

/* A unit vector near the axis, as near as spread is small. */
static void near_axis(struct rng *r, int axis, float spread, float out[DIM])
{
    double sum = 0;
    for (int i = 0; i < DIM; i++) {
        out[i] = (i == axis ? 1.0f : 0.0f) + spread * (float)(rng_f64(r) - 0.5);
        sum += (double)out[i] * (double)out[i];
    }
    for (int i = 0; i < DIM; i++)
        out[i] /= (float)sqrt(sum);
}

static struct crowd_count note(struct crowds *c, struct hash128 entry, int text, uint64_t asker,
                               const float *vec)
{
    char words[32];
    snprintf(words, sizeof words, "question %d", text);
    struct crowd_question q = {.text = str_of(words), .asker = asker, .vec = vec, .unlike = 0.5};
    return crowds_note(c, entry, &q);
}

TEST(questions_unlike_each_other_make_a_crowd_and_rewordings_never_do)
{
    struct crowds *c = crowds_new(DIM);
    struct rng r;
    float v[DIM];
    rng_seed(&r, 1);
    CHECK_INT(crowds_bytes(c), 0);
    int needed = 0;
    for (int i = 0; i < 20 && !needed; i++) {
        near_axis(&r, i, 0.1f, v);
        if (crowd_is_one(note(c, ENTRY, i, 0, v), 8)) needed = i + 1;
    }
    CHECK_INT(needed, 8);
    for (int i = 0; i < 500; i++) { /* one question in many words */
        near_axis(&r, 3, 0.3f, v);
        CHECK(!crowd_is_one(note(c, (struct hash128){1, 2}, i, 0, v), 8));
    }
    for (int i = 0; i < 500; i++) { /* a third of it is something else */
        near_axis(&r, i % 3 ? 3 : 4 + i / 3 % 20, 0.2f, v);
        CHECK(!crowd_is_one(note(c, (struct hash128){3, 4}, i, 0, v), 8));
    }
    crowds_free(c);
}

TEST(a_text_counts_once_and_so_does_whoever_is_known_to_ask)
{
    struct crowds *c = crowds_new(DIM);
    struct rng r;
    float v[DIM];
    rng_seed(&r, 2);
    struct crowd_count n = {0};
    for (int i = 0; i < 100; i++) {
        near_axis(&r, i % DIM, 0.1f, v);
        n = note(c, ENTRY, 5, 0, v);
    }
    CHECK_INT(n.questions, 1);
    for (int i = 0; i < 100; i++) {
        near_axis(&r, i % DIM, 0.1f, v);
        n = note(c, (struct hash128){1, 1}, i, 77, v);
    }
    CHECK_INT(n.questions, 1);
    CHECK(!crowd_is_one(n, 1));
    crowds_forget(c, ENTRY);
    n = note(c, ENTRY, 5, 0, v);
    CHECK_INT(n.questions, 1);
    crowds_forget(c, (struct hash128){8, 8}); /* not there: nothing happens */
    crowds_free(c);
}

TEST(a_share_is_held_against_its_lower_bound_and_zero_switches_it_off)
{
    CHECK(!crowd_is_one((struct crowd_count){5, 4}, 8)); /* too few */
    CHECK(crowd_is_one((struct crowd_count){8, 7}, 8));
    CHECK(crowd_is_one((struct crowd_count){8, 7}, 5));
    CHECK(!crowd_is_one((struct crowd_count){9, 5}, 8)); /* 5 of 8 might be half */
    CHECK(!crowd_is_one((struct crowd_count){64, 32}, 8));
    CHECK(crowd_is_one((struct crowd_count){64, 40}, 8));
    CHECK(!crowd_is_one((struct crowd_count){64, 63}, 0));
    CHECK(!crowd_is_one((struct crowd_count){1, 0}, 1));
}

TEST(memory_is_fixed_whatever_is_hit_and_old_counts_fade)
{
    struct crowds *c = crowds_new(DIM), *none = crowds_new(0), *wide = crowds_new(4096);
    struct rng r;
    float v[DIM];
    rng_seed(&r, 3);
    near_axis(&r, 1, 0.1f, v);
    for (uint64_t i = 1; i <= 3 * CROWDS_MAX; i++)
        (void)note(c, (struct hash128){rng_u64(&r), i}, 1, 0, v);
    CHECK(crowds_bytes(c) <= CROWDS_BYTES);
    struct crowd_count n = {0};
    for (int i = 0; i < 1000; i++) {
        n = note(c, ENTRY, i, 0, v);
        CHECK(n.questions <= CROWD_AGE && n.unlike <= n.questions);
    }
    CHECK_INT(n.unlike, 0);
    CHECK_INT(note(none, ENTRY, 1, 0, v).questions, 0); /* no vectors, nothing to compare */
    CHECK_INT(crowds_bytes(wide), 0);
    crowds_free(wide);
    crowds_free(none);
    crowds_free(c);
}

TEST_MAIN()
