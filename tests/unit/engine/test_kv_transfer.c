/* Goal: an engine that was given another one's blocks says exactly what it says without them and computes nothing of them again; a tenant's
 * blocks are never found by another; a receiver that is slow, leaves, or never takes anything stops nobody. Method: two real engines over
 * pretended models, whose next token depends on every KV cell; what goes between them passes through this file. */
#include "base/mem.h"
#include "engine/kv_file.h"
#include "tests/unit/engine/pretend.h"

enum { N_PROMPT = 160, BT = 4, N_BLOCKS = N_PROMPT / BT, SAID = 20 };

static int32_t prompt[N_PROMPT + 1];

struct carried { /* what the export of one prompt gave */
    struct client client;
    void *bytes[N_BLOCKS];
    struct hash128 id[N_BLOCKS], parent[N_BLOCKS];
    _Atomic int n, over;
    int from, out_of_order;
    bool greedy; /* asks for the next one at once */
    struct engine *g;
};

static void on_block(void *arg, int index, const struct block_name *name, void *bytes)
{
    struct carried *c = arg;
    int i = c->n;
    c->out_of_order += index != c->from + i ||
                       memcmp(name->tokens, prompt + (size_t)index * BT, BT * sizeof *prompt) != 0;
    c->bytes[i] = bytes;
    c->id[i] = name->id;
    c->parent[i] = name->parent;
    c->n = i + 1;
}

static void on_exported(void *arg)
{
    ((struct carried *)arg)->over++;
}

static struct engine_sizes sizes(void)
{
    return (struct engine_sizes){.prefix_caching = true,
                                 .n_blocks = 400,
                                 .n_host = 300,
                                 .hash_seed = 11,
                                 .root = {4, 4},
                                 .kv_format = "pretend"};
}

static struct engine_submit_options options(struct client *c, int n_prompt, int max_tokens)
{
    return (struct engine_submit_options){.prompt = prompt,
                                          .n_prompt = n_prompt,
                                          .n = 1,
                                          .max_tokens = max_tokens,
                                          .sampling = sampler_params_default(),
                                          .on_end = on_end,
                                          .arg = c};
}

static void start_export(struct engine *g, struct carried *c, uint64_t tenant)
{
    struct engine_submit_options o = options(&c->client, N_PROMPT, 1);
    struct errmsg e = {0};
    o.salt = (struct hash128){tenant, 0};
    o.on_block = on_block;
    o.on_exported = on_exported;
    o.export_from = c->from;
    c->client.n = 1;
    c->g = g;
    REQUIRE(engine_submit(g, &o, &c->client.id, &e) == OK);
}

static bool wait_for(_Atomic int *what, int n)
{
    for (uint64_t until = clock_ms() + 20000; *what < n;)
        if (clock_ms() > until) return false;
    return true;
}

/* All of it, a window at a time. */
static void finish_export(struct carried *c)
{
    int last = N_BLOCKS - c->from;
    for (int back = 0; back < last;) {
        int want = back + ENGINE_EXPORT_WINDOW;
        REQUIRE(wait_for(&c->n, want < last ? want : last));
        CHECK(c->n <= want);
        for (int n = c->n; back < n; back++)
            engine_export_more(c->g, c->client.id, 1);
    }
    REQUIRE(wait_for(&c->over, 1));
    REQUIRE(wait_ended(&c->client));
}

static void carry(struct engine *to, struct carried *c, int n)
{
    for (int i = 0; i < n; i++) {
        struct block_name name = {c->id[i], c->parent[i], prompt + (size_t)(c->from + i) * BT};
        (void)engine_import(to, &name, c->bytes[i]);
        c->bytes[i] = NULL;
    }
}

static void forget(struct carried *c)
{
    for (int i = 0; i < c->n; i++)
        mem_free(c->bytes[i]);
}

static void ask_as(struct engine *g, struct client *c, uint64_t tenant)
{
    struct engine_submit_options o = options(c, N_PROMPT + 1, SAID);
    struct errmsg e = {0};
    memset(c, 0, sizeof *c);
    o.salt = (struct hash128){tenant, 0};
    o.on_token = on_token;
    c->n = 1;
    REQUIRE(engine_submit(g, &o, &c->id, &e) == OK);
    REQUIRE(wait_ended(c));
}

static struct heard alone(void)
{
    static struct client c;
    struct pretend p;
    struct engine_sizes s = sizes();
    s.prefix_caching = false;
    struct engine *g = open_engine(&p, s);
    make_prompt(prompt, N_PROMPT + 1, 30, 1);
    ask_as(g, &c, 0);
    shut(g, &p);
    return c.choice[0];
}

/* An engine over a that has computed and handed out the whole prompt of tenant 5 into c. */
static struct engine *open_exported(struct pretend *a, struct carried *c)
{
    struct engine *from = open_engine(a, sizes());
    *c = (struct carried){0};
    start_export(from, c, 5);
    finish_export(c);
    return from;
}

TEST(a_prompt_computed_elsewhere_is_not_computed_again_and_says_the_same)
{
    struct pretend a, b;
    static struct carried c;
    static struct client reply;
    struct heard want = alone();
    struct engine *from = open_exported(&a, &c), *to = open_engine(&b, sizes());
    CHECK_INT(c.n, N_BLOCKS);
    CHECK_INT(c.out_of_order, 0);
    carry(to, &c, c.n);
    b.delay_us = 300; /* a block's way is shorter than its computation */
    ask_as(to, &reply, 5);
    check_same(&reply.choice[0], &want, "with blocks from elsewhere");
    CHECK_INT(reply.choice[0].end.cached_tokens, N_PROMPT);
    struct engine_stats st;
    engine_stats(to, &st);
    CHECK_INT(st.imported_blocks, N_BLOCKS);
    engine_stats(from, &st);
    CHECK_INT(st.exported_blocks, N_BLOCKS);
    ask_as(to, &reply, 6); /* the same words of another tenant */
    check_same(&reply.choice[0], &want, "of another tenant");
    CHECK_INT(reply.choice[0].end.cached_tokens, 0);
    shut(from, &a);
    shut(to, &b);
}

TEST(a_part_of_the_blocks_is_used_and_the_rest_computed)
{
    struct pretend a, b;
    static struct carried c;
    static struct client reply;
    struct heard want = alone();
    struct engine *from = open_exported(&a, &c), *to = open_engine(&b, sizes());
    carry(to, &c, 7);
    b.delay_us = 300;
    ask_as(to, &reply, 5);
    check_same(&reply.choice[0], &want, "with a part of the blocks");
    CHECK_INT(reply.choice[0].end.cached_tokens, 7 * BT);
    forget(&c);
    shut(from, &a);
    shut(to, &b);
}

TEST(an_export_for_one_tenant_never_finds_the_blocks_of_another)
{
    struct pretend a;
    static struct carried c, d;
    (void)alone();
    struct engine *from = open_exported(&a, &c);
    d = (struct carried){0};
    start_export(from, &d, 6);
    finish_export(&d);
    CHECK_INT(c.client.choice[0].end.cached_tokens, 0);
    CHECK_INT(d.client.choice[0].end.cached_tokens, 0); /* computed anew, the same tokens */
    for (int i = 0; i < N_BLOCKS; i++)
        CHECK(!hash_eq(c.id[i], d.id[i]));
    forget(&c);
    forget(&d);
    shut(from, &a);
}

TEST(a_receiver_that_takes_nothing_holds_back_its_own_blocks_only)
{
    struct pretend a;
    static struct carried slow, quick;
    static struct client reply;
    struct engine *from = open_engine(&a, sizes());
    slow = quick = (struct carried){0};
    struct heard want = alone();
    start_export(from, &slow, 5);
    REQUIRE(wait_ended(&slow.client));
    REQUIRE(wait_for(&slow.n, ENGINE_EXPORT_WINDOW));
    ask_as(from, &reply, 7);
    check_same(&reply.choice[0], &want, "beside an export");
    quick.from = 30;
    start_export(from, &quick, 8);
    finish_export(&quick);
    CHECK_INT(quick.n, N_BLOCKS - 30);
    CHECK_INT(quick.out_of_order, 0);
    CHECK_INT(slow.n, ENGINE_EXPORT_WINDOW);
    CHECK_INT(slow.over, 0);
    struct engine_stats st;
    engine_stats(from, &st);
    CHECK_INT(st.running + st.waiting, 0);
    engine_cancel(from, slow.client.id); /* it leaves */
    CHECK(wait_for(&slow.over, 1));
    CHECK_INT(slow.over, 1);
    forget(&slow);
    forget(&quick);
    shut(from, &a);
}

TEST(all_receivers_together_hold_a_bounded_number_of_blocks_and_each_gets_on)
{
    enum { RECEIVERS = 12 };
    struct pretend a;
    static struct carried stalled[RECEIVERS], quick;
    struct engine *from = open_engine(&a, sizes());
    int out = 0;
    (void)alone();
    for (int i = 0; i < RECEIVERS; i++) {
        stalled[i] = (struct carried){0};
        start_export(from, &stalled[i], 5);
        REQUIRE(wait_ended(&stalled[i].client));
        REQUIRE(wait_for(&stalled[i].n, 1));
    }
    quick = (struct carried){0};
    start_export(from, &quick, 5);
    for (int back = 0; back < N_BLOCKS; back++) { /* one at a time now */
        REQUIRE(wait_for(&quick.n, back + 1));
        engine_export_more(from, quick.client.id, 1);
    }
    CHECK(wait_for(&quick.over, 1));
    for (uint64_t until = clock_ms() + 20000; out < ENGINE_EXPORTED_MAX && clock_ms() < until;) {
        out = 0;
        for (int i = 0; i < RECEIVERS; i++)
            out += stalled[i].n;
    }
    CHECK_AT(out >= ENGINE_EXPORTED_MAX && out <= ENGINE_EXPORTED_MAX + RECEIVERS, "%d", out);
    shut(from, &a);
    forget(&quick);
    for (int i = 0; i < RECEIVERS; i++)
        forget(&stalled[i]);
}

TEST(an_engine_that_closes_ends_its_exports)
{
    struct pretend a;
    static struct carried c;
    struct engine *from = open_engine(&a, sizes());
    (void)alone();
    c = (struct carried){0};
    start_export(from, &c, 5);
    REQUIRE(wait_for(&c.n, 1));
    shut(from, &a);
    CHECK_INT(c.over, 1);
    CHECK_INT(c.client.choice[0].ends, 1);
    forget(&c);
}

TEST(blocks_that_had_to_give_way_end_an_export_early)
{
    struct pretend a;
    static struct carried c;
    static struct client other;
    struct engine_sizes s = sizes();
    s.n_blocks = 60;
    s.n_host = 0;
    struct engine *from = open_engine(&a, s);
    (void)alone();
    c = (struct carried){0};
    start_export(from, &c, 5);
    REQUIRE(wait_ended(&c.client));
    for (int i = 0; i < 3; i++) /* others take the pool */
        ask_as(from, &other, 20 + (uint64_t)i);
    engine_export_more(from, c.client.id, ENGINE_EXPORT_WINDOW);
    CHECK(wait_for(&c.over, 1));
    CHECK(c.n < N_BLOCKS);
    CHECK_INT(c.out_of_order, 0);
    forget(&c);
    shut(from, &a);
}

static _Atomic int room_calls;

static void on_room(void *arg)
{
    (void)arg;
    room_calls++;
}

TEST(an_import_that_runs_ahead_of_the_steps_is_told_to_wait_and_when_to_go_on)
{
    struct pretend a, b;
    static struct carried c;
    struct engine_sizes s = sizes();
    s.on_import_room = on_room;
    (void)alone();
    struct engine *from = open_exported(&a, &c), *to = open_engine(&b, s);
    room_calls = 0;
    bool full = false;
    for (int i = 0; i < c.n; i++) {
        struct block_name name = {c.id[i], c.parent[i], prompt + (size_t)i * BT};
        full |= !engine_import(to, &name, c.bytes[i]);
        c.bytes[i] = NULL;
    }
    CHECK(full); /* more than wait at a time, and an idle engine is not woken for fewer */
    CHECK(wait_for(&room_calls, 1));
    shut(from, &a);
    shut(to, &b); /* with some that were never taken */
}

TEST(what_blocks_are_computed_with_is_told)
{
    struct pretend a;
    struct kv_head h;
    struct engine *g = open_engine(&a, sizes());
    engine_kv_head(g, &h);
    CHECK_INT(h.block_tokens, BT);
    CHECK_INT(h.block_bytes, BT * sizeof(struct fake_cell));
    CHECK_Z(h.format, "pretend");
    CHECK(hash_eq(h.root, (struct hash128){4, 4}) && h.seed == 0);
    CHECK(engine_can_import(g));
    CHECK_INT(engine_host_blocks(g), 300);
    shut(g, &a);
}

TEST_MAIN()
