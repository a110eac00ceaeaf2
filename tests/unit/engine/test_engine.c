/* Goal: engine.h's promises about text, ends, cancels and limits, whatever the batch, the cache,
 * the pool. Method: the real step thread over a pretended model (pretend.h). */
#include <pthread.h>

#include "tests/unit/engine/pretend.h"

TEST(text_is_the_same_alone_in_a_batch_from_the_cache_and_in_chunks)
{
    struct pretend p;
    struct engine *g = open_engine(&p, (struct engine_sizes){.prefix_caching = false});
    int32_t prompt[16][120];
    static struct client alone[16], other[16];
    memset(alone, 0, sizeof alone);
    for (int i = 0; i < 16; i++) {
        make_prompt(prompt[i], 40 + 5 * i, 30, (uint64_t)i);
        REQUIRE(ask(g, &alone[i], prompt[i], 40 + 5 * i, GENERATED) == OK);
        REQUIRE(wait_ended(&alone[i]));
        CHECK_INT(alone[i].choice[0].n, GENERATED);
        CHECK_INT(alone[i].choice[0].end.finish, ENGINE_LENGTH);
        CHECK_INT(alone[i].choice[0].end.cached_tokens, 0);
    }
    shut(g, &p);
    static const struct {
        struct engine_sizes s;
        const char *how;
    } ways[] = {
        {{.max_num_seqs = 16, .max_batch = 400}, "a batch of 16"},
        {{.max_num_seqs = 16, .max_batch = 16, .prefix_caching = true}, "small chunks"},
        {{.max_num_seqs = 16,
          .max_batch = 64,
          .prefix_caching = true,
          .block_size = 16,
          .n_blocks = 200},
         "blocks of 16"},
        {{.max_num_seqs = 16, .max_batch = 64, .prefix_caching = true, .n_blocks = 60},
         "a tiny pool"},
        {{.max_num_seqs = 3, .max_batch = 33, .prefix_caching = true, .prompt_rows = 5},
         "few slots"},
        {{.max_num_seqs = 8, .max_batch = 100, .prefix_caching = true, .draft_rows = 40}, "drafts"},
        {{.max_num_seqs = 5,
          .max_batch = 24,
          .prefix_caching = true,
          .draft_rows = 9,
          .n_blocks = 60},
         "drafts in a tiny pool"},
        {{.max_num_seqs = 16,
          .max_batch = 64,
          .prefix_caching = true,
          .n_blocks = 60,
          .n_host = 300},
         "a tiny pool and a host"},
    };
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        g = open_engine(&p, ways[w].s);
        for (int round = 0; round < 2; round++) { /* the second time from the cache */
            memset(other, 0, sizeof other);
            for (int i = 0; i < 16; i++)
                REQUIRE(ask(g, &other[i], prompt[i], 40 + 5 * i, GENERATED) == OK);
            for (int i = 0; i < 16; i++) {
                REQUIRE(wait_ended(&other[i]));
                check_same(&other[i].choice[0], &alone[i].choice[0], ways[w].how);
            }
        }
        struct engine_stats st;
        engine_stats(g, &st);
        CHECK(!ways[w].s.draft_rows || st.accepted_tokens > 100);
        if (w == 3) CHECK(st.preemptions > 0);
        if (w == 2) CHECK(other[3].choice[0].end.cached_tokens >= 48);
        shut(g, &p);
    }
}

TEST(choices_differ_by_seed_share_the_prompt_and_repeat)
{
    struct pretend p;
    struct engine *g =
        open_engine(&p, (struct engine_sizes){.prefix_caching = true, .max_batch = 128});
    int32_t prompt[90];
    make_prompt(prompt, 90, 0, 3);
    static struct client a, b;
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    REQUIRE(ask_seeded(g, &a, prompt, 90, 30, 4, 1) == OK && wait_ended(&a));
    CHECK(p.n_rows_max < 120); /* the prompt was computed once */
    for (int i = 1; i < 4; i++)
        CHECK(memcmp(a.choice[0].text, a.choice[i].text, sizeof(int32_t) * 30));
    REQUIRE(ask_seeded(g, &b, prompt, 90, 30, 4, 1) == OK && wait_ended(&b));
    for (int i = 0; i < 4; i++)
        check_same(&b.choice[i], &a.choice[i], "asked again");
    CHECK_INT(b.choice[0].end.cached_tokens, 89);
    shut(g, &p);
}

TEST(a_stop_by_the_listener_or_an_end_token_finishes_with_stop)
{
    struct pretend p;
    struct engine *g = open_engine(&p, (struct engine_sizes){.prefix_caching = true});
    int32_t prompt[10];
    make_prompt(prompt, 10, 0, 5);
    static struct client a, b, c;
    memset(&a, 0, sizeof a), memset(&b, 0, sizeof b), memset(&c, 0, sizeof c);
    REQUIRE(ask(g, &a, prompt, 10, 20) == OK && wait_ended(&a));
    b.choice[0].stop_after = 5;
    REQUIRE(ask(g, &b, prompt, 10, 20) == OK && wait_ended(&b));
    CHECK_INT(b.choice[0].n, 5);
    CHECK_INT(b.choice[0].end.finish, ENGINE_STOP);
    int32_t end = a.choice[0].text[7];
    int first = 0;
    while (a.choice[0].text[first] != end)
        first++;
    c.n = 1;
    struct engine_submit_options o = {.prompt = prompt,
                                      .n_prompt = 10,
                                      .n = 1,
                                      .max_tokens = 20,
                                      .sampling = sampler_params_default(),
                                      .end_ids = &end,
                                      .n_end_ids = 1,
                                      .on_token = on_token,
                                      .on_end = on_end,
                                      .arg = &c};
    struct errmsg e = {0};
    REQUIRE(engine_submit(g, &o, &c.id, &e) == OK && wait_ended(&c));
    CHECK_INT(c.choice[0].n, first);
    CHECK_INT(c.choice[0].end.completion_tokens, first + 1);
    CHECK_INT(c.choice[0].end.finish, ENGINE_STOP);
    shut(g, &p);
}

TEST(limits_are_refused_with_all_the_numbers)
{
    struct pretend p;
    struct engine *g =
        open_engine(&p, (struct engine_sizes){.max_len = 50, .max_num_seqs = 1, .queue_max = 2});
    int32_t prompt[60] = {0}, bad[3] = {1, VOCAB, 2};
    struct engine_submit_options o = {.prompt = prompt,
                                      .n_prompt = 50,
                                      .n = 1,
                                      .max_tokens = 5,
                                      .sampling = sampler_params_default()};
    struct errmsg e = {0};
    uint64_t id;
    CHECK_INT(engine_submit(g, &o, &id, &e), ERR_TOO_LARGE);
    CHECK_Z(e.text, "the prompt has 50 tokens and max_tokens is 5, but the context is 50 tokens: "
                    "at most 49 for the prompt");
    o.prompt = bad;
    o.n_prompt = 3;
    CHECK_INT(engine_submit(g, &o, &id, &e), ERR_RANGE);
    o.n_prompt = 0;
    CHECK_INT(engine_submit(g, &o, &id, &e), ERR_RANGE);
    o.prompt = prompt;
    o.n_prompt = 3;
    o.sampling.temperature = 9;
    CHECK_INT(engine_submit(g, &o, &id, &e), ERR_RANGE);
    static struct client c[4];
    memset(c, 0, sizeof c);
    p.delay_us = 3000;
    for (int i = 0; i < 3; i++)
        REQUIRE(ask(g, &c[i], prompt, 45, 100) == OK);
    CHECK_INT(ask(g, &c[3], prompt, 45, 100), ERR_FULL);
    p.delay_us = 0;
    for (int i = 0; i < 3; i++) {
        REQUIRE(wait_ended(&c[i]));
        CHECK_INT(c[i].choice[0].n, 5); /* max_tokens was cut to what fits */
        CHECK_INT(c[i].choice[0].end.finish, ENGINE_LENGTH);
    }
    shut(g, &p);
}

TEST(a_cancel_takes_effect_within_one_step_while_waiting_in_the_prompt_and_decoding)
{
    struct pretend p;
    struct engine *g = open_engine(
        &p, (struct engine_sizes){.max_num_seqs = 2, .max_batch = 8, .prefix_caching = true});
    int32_t prompt[150];
    make_prompt(prompt, 150, 0, 8);
    static struct client decoding, in_prompt, waiting;
    memset(&decoding, 0, sizeof decoding), memset(&in_prompt, 0, sizeof in_prompt),
        memset(&waiting, 0, sizeof waiting);
    p.delay_us = 2000;
    REQUIRE(ask(g, &decoding, prompt, 4, 150) == OK);
    while (decoding.choice[0].n < 2)
        ;
    REQUIRE(ask(g, &in_prompt, prompt + 1, 149, 10) == OK &&
            ask(g, &waiting, prompt + 2, 20, 10) == OK);
    int steps = p.steps;
    while (p.steps < steps + 3)
        ;
    struct client *all[] = {&waiting, &in_prompt, &decoding};
    for (int i = 0; i < 3; i++) {
        all[i]->model = &p;
        engine_cancel(g, all[i]->id);
        engine_cancel(g, all[i]->id); /* twice is once */
        steps = p.steps;
        REQUIRE(wait_ended(all[i]));
        /* the step in flight may end, no other may begin */
        CHECK_AT(all[i]->steps_at_end <= steps + 1, "cancel %d took %d steps", i,
                 all[i]->steps_at_end - steps);
        CHECK_INT(all[i]->choice[0].end.finish, ENGINE_CANCELLED);
        CHECK_INT(all[i]->choice[0].ends, 1);
    }
    engine_cancel(g, 12345);
    struct engine_stats st;
    for (uint64_t until = clock_ms() + 5000; clock_ms() < until;) {
        engine_stats(g, &st);
        if (!st.blocks_used && !st.step_age_ms) break;
    }
    CHECK_INT(st.blocks_used, 0);
    CHECK_INT(st.running + st.waiting, 0);
    CHECK_INT(st.cancelled, 3);
    shut(g, &p);
}

struct storm {
    struct engine *g;
    struct client *clients;
    int n;
    uint64_t seed;
};

static void *storm_main(void *arg)
{
    struct storm *s = arg;
    struct rng r;
    rng_seed(&r, s->seed);
    for (int i = 0; i < s->n; i++) {
        int32_t prompt[60];
        make_prompt(prompt, 60, 20, rng_u64(&r) % 5);
        while (ask_seeded(s->g, &s->clients[i], prompt, 1 + (int)rng_below(&r, 59),
                          1 + (int)rng_below(&r, 30), 1 + (int)rng_below(&r, 3), 0) == ERR_FULL)
            ;
        if (rng_below(&r, 2)) {
            wait_us((int)rng_below(&r, 300));
            engine_cancel(s->g, s->clients[i].id);
        }
    }
    return NULL;
}

TEST(a_storm_of_cancels_from_three_threads_ends_every_choice_exactly_once)
{
    struct pretend p;
    struct engine *g = open_engine(
        &p, (struct engine_sizes){
                .n_blocks = 40, .max_num_seqs = 6, .max_batch = 24, .prefix_caching = true});
    enum { THREADS = 3, EACH = 300 };
    struct client *clients = xcalloc(THREADS * EACH, sizeof *clients);
    struct storm s[THREADS];
    pthread_t t[THREADS];
    for (int i = 0; i < THREADS; i++) {
        s[i] = (struct storm){g, clients + i * EACH, EACH, (uint64_t)i + 1};
        REQUIRE(!pthread_create(&t[i], NULL, storm_main, &s[i]));
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    int finished = 0;
    for (int i = 0; i < THREADS * EACH; i++) {
        REQUIRE(wait_ended(&clients[i]));
        for (int c = 0; c < clients[i].n; c++)
            finished += clients[i].choice[c].end.finish != ENGINE_CANCELLED;
    }
    CHECK(finished > EACH);
    shut(g, &p);
    for (int i = 0; i < THREADS * EACH; i++)
        for (int c = 0; c < clients[i].n; c++)
            CHECK_INT(clients[i].choice[c].ends, 1);
    mem_free(clients);
}

TEST(closing_ends_everything_that_runs_or_waits)
{
    struct pretend p;
    struct engine *g = open_engine(&p, (struct engine_sizes){.max_num_seqs = 2});
    int32_t prompt[20];
    make_prompt(prompt, 20, 0, 1);
    static struct client c[6];
    memset(c, 0, sizeof c);
    p.delay_us = 1000;
    for (int i = 0; i < 6; i++)
        REQUIRE(ask(g, &c[i], prompt, 20, 150) == OK);
    shut(g, &p);
    for (int i = 0; i < 6; i++) {
        CHECK_INT(c[i].choice[0].ends, 1);
        CHECK_INT(c[i].choice[0].end.finish, ENGINE_CANCELLED);
    }
}

TEST(a_stuck_step_shows_in_its_age)
{
    struct pretend p;
    struct engine *g = open_engine(&p, (struct engine_sizes){.max_num_seqs = 2});
    int32_t prompt[4] = {1, 2, 3, 4};
    static struct client c;
    memset(&c, 0, sizeof c);
    struct engine_stats st;
    engine_stats(g, &st);
    CHECK_INT(st.step_age_ms, 0);
    p.delay_us = 200000;
    REQUIRE(ask(g, &c, prompt, 4, 1) == OK);
    wait_us(120000);
    engine_stats(g, &st);
    CHECK(st.step_age_ms >= 50);
    REQUIRE(wait_ended(&c));
    shut(g, &p);
}

TEST(nobody_drafts_for_a_sequence_that_has_been_stopped)
{
    enum { CLIENTS = 16 };
    struct pretend p;
    struct engine_stats st;
    struct engine_sizes s = {.n_blocks = 45, .max_num_seqs = 16, .draft_rows = 40};
    struct client *c = xcalloc(CLIENTS, sizeof *c);
    struct engine *g = open_engine(&p, s);
    p.right = 1;
    for (int i = 0; i < CLIENTS; i++) {
        int32_t t[20];
        make_prompt(t, 20, 0, (uint64_t)i);
        REQUIRE(ask(g, &c[i], t, 20, GENERATED) == OK);
    }
    for (int i = 0; i < CLIENTS; i++)
        CHECK(wait_ended(&c[i]));
    engine_stats(g, &st);
    shut(g, &p);
    CHECK(st.preemptions > 0 && p.drafts > 0);
    /* one for each that decodes, but for those that are stopped in the very step */
    CHECK_AT(p.drafts <= p.seqs + (int)st.preemptions, "%d drafts for %d, %d were stopped",
             p.drafts, p.seqs, (int)st.preemptions);
    mem_free(c);
}

TEST_MAIN()
