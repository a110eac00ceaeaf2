/* Goal: an engine whose device runs a step ahead of what the host has heard says what one says that waits, whatever ends, is cancelled,
 * preempted, swapped or fails meanwhile. Method: the real step thread over a pretended device (pretend_device.h), against the same
 * model on the host. */
#include "tests/unit/engine/pretend_device.h"

enum { ASKED = 16 };
static int32_t prompt[ASKED][120];

static int prompt_len(int i)
{
    return 40 + 5 * i;
}

static void make_prompts(void)
{
    for (int i = 0; i < ASKED; i++)
        make_prompt(prompt[i], prompt_len(i), 30, (uint64_t)i);
}

static struct client *say_all(struct engine *g, float temperature)
{
    struct client *c = xcalloc(ASKED, sizeof *c);
    for (int i = 0; i < ASKED; i++)
        CHECK_INT(ask_seeded(g, &c[i], prompt[i], prompt_len(i), GENERATED, 1, temperature), OK);
    for (int i = 0; i < ASKED; i++)
        CHECK(wait_ended(&c[i]));
    return c;
}

static struct client *said_by_host(float temperature)
{
    struct pretend p;
    struct engine *g = open_engine(&p, (struct engine_sizes){.max_num_seqs = 16, .max_batch = 400});
    struct client *c = say_all(g, temperature);
    shut(g, &p);
    return c;
}

/* What is told once the step in which the last one ended is over too. */
static struct engine_stats all_free(struct engine *g)
{
    struct engine_stats st = {0};
    for (uint64_t until = clock_ms() + 20000; clock_ms() < until;) {
        engine_stats(g, &st);
        if (!st.blocks_used) break;
    }
    return st;
}

static void shut_device(struct engine *g, struct pretend_device *d)
{
    engine_close(g);
    CHECK_INT(d->n_flying, 0);
    fake_kv_fini(&d->model.kv);
}

TEST(text_is_that_of_the_host_greedy_and_seeded_whatever_the_pool_and_the_slots)
{
    static const struct {
        struct engine_sizes s;
        const char *how;
    } ways[] = {
        {{.max_num_seqs = 16, .max_batch = 120}, "a batch of 16"},
        {{.max_num_seqs = 16, .max_batch = 16, .prefix_caching = true}, "small chunks"},
        {{.max_num_seqs = 16, .prefix_caching = true, .block_size = 2, .n_blocks = 900},
         "blocks of 2"},
        {{.max_num_seqs = 16, .prefix_caching = true, .n_blocks = 60}, "a tiny pool"},
        {{.max_num_seqs = 3, .max_batch = 33, .prefix_caching = true, .prompt_rows = 5},
         "few slots"},
        {{.max_num_seqs = 16, .prefix_caching = true, .n_blocks = 60, .n_host = 300}, "a host"},
        {{.max_num_seqs = 8, .prefix_caching = true, .draft_rows = 40}, "drafts"},
    };
    static struct pretend_device d;
    make_prompts();
    for (int hot = 0; hot < 2; hot++) {
        struct client *alone = said_by_host((float)hot);
        for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
            struct engine *g = open_on_device(&d, ways[w].s);
            for (int round = 0; round < 2; round++) { /* the second time from the cache */
                struct client *c = say_all(g, (float)hot);
                for (int i = 0; i < ASKED; i++)
                    check_same(&c[i].choice[0], &alone[i].choice[0], ways[w].how);
                mem_free(c);
            }
            struct engine_stats st = all_free(g);
            if (ways[w].s.draft_rows)
                CHECK(!st.ahead_steps && st.waited_draft_steps &&
                      (hot || st.accepted_tokens > 100));
            else
                CHECK_AT(st.ahead_steps > st.steps / 2 && d.most_flying == 2,
                         "%s: %d of %d steps were ahead", ways[w].how, (int)st.ahead_steps,
                         (int)st.steps);
            CHECK(ways[w].s.n_blocks != 60 || st.preemptions > 0);
            CHECK(!ways[w].s.n_host || st.loaded_blocks > 0);
            CHECK_INT(st.blocks_used, 0);
            shut_device(g, &d);
        }
        mem_free(alone);
    }
}

TEST(choices_of_one_prompt_part_ways_by_their_seed)
{
    static struct pretend_device d;
    struct pretend p;
    static struct client host, there;
    memset(&host, 0, sizeof host), memset(&there, 0, sizeof there);
    make_prompts();
    struct engine_sizes s = {.prefix_caching = true, .max_batch = 120};
    struct engine *g = open_engine(&p, s);
    REQUIRE(ask_seeded(g, &host, prompt[9], 85, 30, 4, 1) == OK && wait_ended(&host));
    shut(g, &p);
    g = open_on_device(&d, s);
    REQUIRE(ask_seeded(g, &there, prompt[9], 85, 30, 4, 1) == OK && wait_ended(&there));
    for (int i = 0; i < 4; i++)
        check_same(&there.choice[i], &host.choice[i], "ahead");
    shut_device(g, &d);
}

TEST(what_was_said_ahead_of_an_end_is_heard_by_nobody_and_found_by_nobody)
{
    static struct pretend_device d;
    make_prompts();
    struct client *alone = said_by_host(0);
    struct engine *g = open_on_device(
        &d, (struct engine_sizes){.prefix_caching = true, .block_size = 2, .n_blocks = 900});
    for (int stop = 1; stop <= 12; stop++) {
        struct client *c = xcalloc(ASKED, sizeof *c);
        for (int i = 0; i < ASKED; i++) {
            c[i].choice[0].stop_after = stop + i % 3;
            REQUIRE(ask(g, &c[i], prompt[i], prompt_len(i), GENERATED) == OK);
        }
        for (int i = 0; i < ASKED; i++) {
            REQUIRE(wait_ended(&c[i]));
            CHECK_INT(c[i].choice[0].n, stop + i % 3);
            CHECK_INT(c[i].choice[0].end.finish, ENGINE_STOP);
            CHECK_INT(c[i].choice[0].end.completion_tokens, stop + i % 3);
            CHECK(!memcmp(c[i].choice[0].text, alone[i].choice[0].text,
                          (size_t)c[i].choice[0].n * sizeof(int32_t)));
        }
        mem_free(c);
    }
    /* who goes on from a stopped text finds no more of it than was said before its last token */
    struct client next = {0};
    int32_t longer[200];
    int n = prompt_len(0);
    memcpy(longer, prompt[0], (size_t)n * sizeof *longer);
    memcpy(longer + n, alone[0].choice[0].text, 40 * sizeof *longer);
    REQUIRE(ask(g, &next, longer, n + 40, 4) == OK && wait_ended(&next));
    CHECK_INT(next.choice[0].end.cached_tokens,
              n + 10); /* the 12th was computed, and thrown away */
    CHECK(!memcmp(next.choice[0].text, alone[0].choice[0].text + 40, 4 * sizeof(int32_t)));
    mem_free(alone);
    shut_device(g, &d);
}

TEST(penalties_count_what_is_not_heard_yet)
{
    static struct pretend_device d;
    struct pretend p;
    static struct client host, there;
    make_prompts();
    struct sampler_params sp = sampler_params_default();
    sp.repetition_penalty = 1.4f, sp.presence_penalty = 0.5f, sp.frequency_penalty = 0.7f;
    struct engine_submit_options o = {.prompt = prompt[0],
                                      .n_prompt = 40,
                                      .n = 1,
                                      .max_tokens = GENERATED,
                                      .sampling = sp,
                                      .on_token = on_token,
                                      .on_end = on_end};
    struct errmsg e = {0};
    for (int device = 0; device < 2; device++) {
        struct client *c = device ? &there : &host;
        memset(c, 0, sizeof *c);
        struct engine *g = device ? open_on_device(&d, (struct engine_sizes){0})
                                  : open_engine(&p, (struct engine_sizes){0});
        o.arg = c;
        c->n = 1;
        REQUIRE(engine_submit(g, &o, &c->id, &e) == OK && wait_ended(c));
        if (!device) {
            shut(g, &p);
            continue;
        }
        struct engine_stats st;
        engine_stats(g, &st);
        CHECK(st.ahead_steps >= GENERATED - 1);
        shut_device(g, &d);
    }
    check_same(&there.choice[0], &host.choice[0], "penalties");
}

TEST(cancels_in_flight_free_every_block_and_disturb_nobody)
{
    static struct pretend_device d;
    struct rng r;
    make_prompts();
    rng_seed(&r, 4);
    struct client *alone = said_by_host(0);
    struct engine *g = open_on_device(
        &d, (struct engine_sizes){.prefix_caching = true, .max_num_seqs = 16, .n_blocks = 150});
    for (int round = 0; round < 30; round++) {
        struct client *c = xcalloc(ASKED, sizeof *c);
        for (int i = 0; i < ASKED; i++)
            REQUIRE(ask(g, &c[i], prompt[i], prompt_len(i), GENERATED) == OK);
        for (int k = 0; k < 10; k++) {
            wait_us((int)rng_below(&r, 300));
            engine_cancel(g, c[rng_below(&r, ASKED)].id);
        }
        for (int i = 0; i < ASKED; i++) {
            struct heard *h = &c[i].choice[0];
            REQUIRE(wait_ended(&c[i]));
            CHECK(h->end.finish == ENGINE_LENGTH || h->end.finish == ENGINE_CANCELLED);
            CHECK(!memcmp(h->text, alone[i].choice[0].text, (size_t)h->n * sizeof(int32_t)));
        }
        mem_free(c);
    }
    struct engine_stats st = all_free(g);
    CHECK(st.cancelled > 0 && st.ahead_steps > 0);
    CHECK_INT(st.blocks_used, 0);
    mem_free(alone);
    shut_device(g, &d);
}

TEST(a_device_that_fails_with_steps_in_flight_ends_every_request_with_its_sentence)
{
    static struct pretend_device d;
    make_prompts();
    for (int after = 1; after < 24; after++) {
        struct client *c = xcalloc(ASKED, sizeof *c);
        struct engine *g = open_on_device(&d, (struct engine_sizes){.prefix_caching = true});
        d.fails_after = after;
        for (int i = 0; i < ASKED; i++)
            REQUIRE(ask(g, &c[i], prompt[i], prompt_len(i), GENERATED) == OK);
        for (int i = 0; i < ASKED; i++) {
            REQUIRE(wait_ended(&c[i]));
            CHECK_INT(c[i].choice[0].end.finish, ENGINE_FAILED);
            CHECK_INT(c[i].choice[0].ends, 1);
        }
        CHECK_Z(engine_lost(g), "pretended to fail");
        shut_device(g, &d);
        mem_free(c);
    }
}

TEST(closing_with_steps_in_flight_cancels_each_choice_once)
{
    static struct pretend_device d;
    make_prompts();
    for (int round = 0; round < 20; round++) {
        struct client *c = xcalloc(ASKED, sizeof *c);
        struct engine *g = open_on_device(&d, (struct engine_sizes){.prefix_caching = true});
        d.model.delay_us = 100;
        for (int i = 0; i < ASKED; i++)
            REQUIRE(ask(g, &c[i], prompt[i], prompt_len(i), GENERATED) == OK);
        wait_us(300 * round);
        shut_device(g, &d);
        for (int i = 0; i < ASKED; i++)
            CHECK_INT(c[i].choice[0].ends, 1);
        mem_free(c);
    }
}

TEST_MAIN()
