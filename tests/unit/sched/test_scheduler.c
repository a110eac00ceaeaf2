/* Goal: the promises in scheduler.h, one by one. Method: small hand-made situations; steps are
 * driven by run_step, which gives every sampled sequence a fixed token. */
#include "base/mem.h"
#include "engine/sched/batch.h"
#include "tests/check.h"

enum { LEN = 512 };

struct bench {
    struct sched *s;
    int32_t tokens[64][LEN];
    int n;
    uint64_t now_ms;
};

static struct bench *open_with(struct sched_options o)
{
    struct bench *b = xcalloc(1, sizeof *b);
    if (!o.max_len) o.max_len = LEN;
    if (!o.max_waiting) o.max_waiting = 40;
    o.prefix_caching = true;
    o.hash_seed = 5;
    b->s = sched_new(&o);
    return b;
}

static void shut(struct bench *b)
{
    const char *why = sched_check(b->s);
    CHECK_AT(!why, "%s", why);
    sched_free(b->s);
    mem_free(b);
}

/* A prompt of n tokens, the first n_common from document doc, the rest its own. */
static int add(struct bench *b, int n_prompt, int n_gen, int n_common, enum sched_class class,
               int fork_of)
{
    int32_t *t = b->tokens[b->n];
    for (int i = 0; i < n_prompt; i++)
        t[i] = i < n_common ? 7000 + i : 1000 * (fork_of < 0 ? b->n : fork_of) + i;
    if (fork_of >= 0) memcpy(t, sched_tokens(b->s, fork_of), (size_t)n_prompt * sizeof *t);
    struct sched_request r = {t, n_prompt, n_prompt + n_gen, {.salt = {0, 0}}, class, fork_of};
    int seq = -1;
    enum err e = sched_add(b->s, &r, b->now_ms, &seq, NULL);
    b->n++;
    return e ? -(int)e - 1 : seq;
}

static const struct sched_plan *run_step(struct bench *b)
{
    const struct sched_plan *p = sched_step(b->s, b->now_ms);
    const char *why = sched_check(b->s);
    CHECK_AT(!why, "%s", why);
    for (int i = 0; i < p->n_forks; i++)
        sched_accept(b->s, p->forks[i].child, &(int32_t){3}, 1);
    for (int i = 0; i < p->n_spans; i++) {
        int seq = p->spans[i].seq;
        if (!p->spans[i].sample) continue;
        sched_accept(b->s, seq, &(int32_t){4}, 1);
        if (sched_n_tokens(b->s, seq) == sched_limit(b->s, seq)) sched_remove(b->s, seq);
    }
    return p;
}

static int rows_of(const struct sched_plan *p, int seq)
{
    for (int i = 0; i < p->n_spans; i++)
        if (p->spans[i].seq == seq) return p->spans[i].n;
    return 0;
}

TEST(decoding_never_waits_for_a_long_prompt)
{
    struct bench *b = open_with((struct sched_options){
        .n_blocks = 100, .block_tokens = 16, .max_running = 4, .max_batch_rows = 32});
    int talker = add(b, 5, 60, 0, SCHED_ONLINE, -1);
    run_step(b);
    int longer = add(b, 400, 5, 0, SCHED_ONLINE, -1);
    for (int i = 0; i < 12; i++) {
        const struct sched_plan *p = run_step(b);
        CHECK_INT(rows_of(p, talker), 1);
        CHECK_INT(rows_of(p, longer), 16); /* 31 are free, a chunk ends on a whole block */
    }
    shut(b);
}

TEST(a_short_prompt_overtakes_a_long_one_that_still_moves)
{
    struct bench *b = open_with((struct sched_options){
        .n_blocks = 100, .block_tokens = 8, .max_running = 4, .max_batch_rows = 64});
    int longer = add(b, 400, 5, 0, SCHED_ONLINE, -1);
    run_step(b);
    int brief = add(b, 40, 5, 0, SCHED_ONLINE, -1);
    const struct sched_plan *p = run_step(b);
    CHECK_INT(rows_of(p, brief), 40);
    CHECK_INT(rows_of(p, longer), 24);
    shut(b);
}

TEST(prompts_with_the_same_beginning_compute_it_once_even_when_they_arrive_together)
{
    struct bench *b = open_with((struct sched_options){
        .n_blocks = 200, .block_tokens = 16, .max_running = 8, .max_batch_rows = 64});
    int seq[8], rows = 0;
    for (int i = 0; i < 8; i++)
        seq[i] = add(b, 256 + 10, 2, 256, SCHED_ONLINE, -1);
    for (int step = 0; step < 8; step++) {
        const struct sched_plan *p = sched_step(b->s, 0);
        rows += p->n_rows;
        bool done = true;
        for (int i = 0; i < p->n_spans; i++)
            if (p->spans[i].sample) sched_accept(b->s, p->spans[i].seq, &(int32_t){1}, 1);
        for (int i = 0; i < 8; i++)
            done = done && sched_n_tokens(b->s, seq[i]) > 266;
        if (done) break;
    }
    /* 256 once, 8 own ends of 10, and at most one generated token each meanwhile */
    CHECK_AT(rows >= 256 + 80 && rows <= 256 + 80 + 16, "%d rows", rows);
    int cached = 0;
    for (int i = 0; i < 8; i++)
        cached += sched_cached_tokens(b->s, seq[i]);
    CHECK_INT(cached, 7 * 256);
    shut(b);
}

TEST(a_whole_cached_prompt_still_computes_its_last_token)
{
    struct bench *b = open_with((struct sched_options){
        .n_blocks = 40, .block_tokens = 16, .max_running = 2, .max_batch_rows = 64});
    add(b, 32, 1, 32, SCHED_ONLINE, -1);
    run_step(b);
    int again = add(b, 32, 1, 32, SCHED_ONLINE, -1);
    const struct sched_plan *p = sched_step(b->s, 0);
    CHECK_INT(rows_of(p, again), 1);
    CHECK_INT(p->spans[0].from, 31);
    CHECK_INT(p->n_moves,
              1); /* the cached block is not written: its first 15 positions are copied */
    CHECK_INT(p->moves[0].n_tokens, 15);
    CHECK_INT(sched_cached_tokens(b->s, again), 31);
    shut(b);
}

TEST(nothing_is_shared_across_salts_or_adapters)
{
    struct bench *b = open_with((struct sched_options){
        .n_blocks = 40, .block_tokens = 16, .max_running = 2, .max_batch_rows = 64});
    add(b, 33, 1, 33, SCHED_ONLINE, -1);
    run_step(b);
    int32_t t[LEN];
    for (int i = 0; i < 33; i++)
        t[i] = 7000 + i;
    const struct prefix_scope scopes[] = {{.salt = {0, 9}}, {.adapter = {0, 9}}};
    for (int i = 0; i < 2; i++) {
        struct sched_request r = {t, 33, 34, scopes[i], SCHED_ONLINE, -1};
        int seq;
        REQUIRE(sched_add(b->s, &r, 0, &seq, NULL) == OK);
        CHECK_INT(rows_of(sched_step(b->s, 0), seq), 33);
        sched_remove(b->s, seq);
    }
    shut(b);
}

TEST(forks_share_the_prompt_and_copy_only_the_tail)
{
    struct bench *b = open_with((struct sched_options){.n_blocks = 40,
                                                       .block_tokens = 16,
                                                       .max_running = 4,
                                                       .max_batch_rows = 64,
                                                       .reserve_tokens = 4});
    int parent = add(b, 40, 10, 0, SCHED_ONLINE, -1), kid[2];
    for (int i = 0; i < 2; i++)
        kid[i] = add(b, 40, 10, 0, SCHED_ONLINE, parent);
    const struct sched_plan *p = run_step(b);
    CHECK_INT(p->n_rows, 40);
    CHECK_INT(p->n_forks, 2);
    struct sched_stats st;
    sched_stats(b->s, &st);
    CHECK_INT(st.blocks_used, 3);
    p = run_step(b);
    CHECK_INT(p->n_rows, 3);
    CHECK_INT(p->n_moves, 2);
    CHECK_INT(p->moves[0].n_tokens, 8);
    sched_stats(b->s, &st);
    CHECK_INT(st.blocks_used, 5); /* two whole blocks shared by three, three tails */
    CHECK_INT(rows_of(p, kid[0]), 1);
    shut(b);
}

TEST(forks_without_a_slot_wait_and_find_the_prompt_in_the_cache)
{
    struct bench *b = open_with((struct sched_options){
        .n_blocks = 40, .block_tokens = 16, .max_running = 1, .max_batch_rows = 64});
    int parent = add(b, 40, 2, 0, SCHED_ONLINE, -1), kid = add(b, 40, 2, 0, SCHED_ONLINE, parent);
    const struct sched_plan *p = run_step(b);
    CHECK_INT(p->n_forks, 0);
    run_step(b); /* the parent ends */
    p = sched_step(b->s, 0);
    CHECK_INT(rows_of(p, kid), 8); /* 32 of 40 are whole blocks */
    shut(b);
}

static const struct sched_span *span_of(const struct sched_plan *p, int seq)
{
    for (int i = 0; i < p->n_spans; i++)
        if (p->spans[i].seq == seq) return &p->spans[i];
    return NULL;
}

TEST(a_draft_is_computed_behind_its_sequence_and_what_is_rejected_leaves_no_trace)
{
    struct bench *b = open_with((struct sched_options){.n_blocks = 40,
                                                       .block_tokens = 4,
                                                       .max_running = 2,
                                                       .max_batch_rows = 64,
                                                       .draft_rows_max = 32,
                                                       .reserve_tokens = 8});
    int seq = add(b, 6, 40, 0, SCHED_ONLINE, -1);
    run_step(b);
    struct sched_stats before, st;
    sched_stats(b->s, &before);
    const int32_t draft[9] = {11, 12, 13, 14, 15, 16, 17, 18, 19};
    sched_draft(b->s, seq, draft, NULL, 9);
    const struct sched_plan *p = sched_step(b->s, 0);
    const struct sched_span *span = span_of(p, seq);
    REQUIRE(span);
    CHECK_INT(span->from, 6);
    CHECK_INT(span->n, 10);
    CHECK_INT(span->n_draft, 9);
    CHECK_INT(p->n_rows, 10);
    sched_stats(b->s, &st);
    CHECK_INT(st.blocks_used, 4);
    const int32_t said[4] = {11, 12, 13, 99};
    sched_accept(b->s, seq, said, 4);
    const char *why = sched_check(b->s);
    CHECK_AT(!why, "%s", why);
    CHECK_INT(sched_n_tokens(b->s, seq), 11);
    CHECK_INT(sched_tokens(b->s, seq)[10], 99);
    sched_stats(b->s, &st);
    CHECK_INT(st.blocks_used, 3); /* ten positions */
    p = sched_step(b->s, 0);      /* no draft: the old path */
    span = span_of(p, seq);
    REQUIRE(span);
    CHECK_INT(span->from, 10);
    CHECK_INT(span->n, 1);
    CHECK_INT(span->n_draft, 0);
    shut(b);
}

TEST(a_block_of_drafted_tokens_is_shared_only_once_they_are_accepted)
{
    struct bench *b = open_with((struct sched_options){.n_blocks = 40,
                                                       .block_tokens = 4,
                                                       .max_running = 3,
                                                       .max_batch_rows = 64,
                                                       .draft_rows_max = 32});
    int seq = add(b, 4, 40, 4, SCHED_ONLINE, -1);
    run_step(b); /* says 4 */
    const int32_t draft[7] = {1, 2, 3, 5, 6, 7, 8};
    sched_draft(b->s, seq, draft, NULL, 7);
    sched_step(b->s, 0); /* blocks 4 1 2 3 and 5 6 7 8 are full, but in doubt */
    sched_accept(b->s, seq, (const int32_t[]){1, 2, 3, 9}, 4);
    static const struct {
        int32_t tail[8];
        int shared;
    } ask[] = {{{4, 1, 2, 3, 9, 9, 9, 9}, 8}, {{4, 1, 2, 3, 5, 6, 7, 8}, 8}};
    for (int k = 0; k < 2; k++) {
        int other = add(b, 13, 2, 4, SCHED_ONLINE, -1);
        memcpy(b->tokens[b->n - 1] + 4, ask[k].tail, sizeof ask[k].tail);
        sched_step(b->s, 0);
        CHECK_INT(sched_cached_tokens(b->s, other), ask[k].shared);
        sched_remove(b->s, other);
    }
    shut(b);
}

TEST(a_tree_lies_behind_its_sequence_node_by_node_and_its_accepted_path_becomes_text)
{
    struct bench *b = open_with((struct sched_options){.n_blocks = 40,
                                                       .block_tokens = 4,
                                                       .max_running = 2,
                                                       .max_batch_rows = 64,
                                                       .draft_rows_max = 32,
                                                       .reserve_tokens = 8});
    int seq = add(b, 6, 40, 0, SCHED_ONLINE, -1);
    run_step(b);
    /* 11 - 12 - 13, 11 - 22 - 23, 31 */
    static const int32_t draft[6] = {11, 12, 22, 31, 13, 23};
    static const int8_t parent[6] = {-1, 0, 0, -1, 1, 2};
    sched_draft(b->s, seq, draft, parent, 6);
    const struct sched_plan *p = sched_step(b->s, 0);
    const struct sched_span *span = span_of(p, seq);
    REQUIRE(span && span->n_draft == 6 && span->tree);
    struct batch *batch = batch_new(64, 2, 34);
    batch_fill(batch, b->s, p);
    REQUIRE(batch->has_tree && batch->n_rows == 7 && batch->n_out == 7);
    static const int pos[7] = {6, 7, 8, 8, 7, 9, 9};
    static const uint64_t mask[7] = {0, 1, 3, 5, 8, 19, 37};
    for (int i = 0; i < 7; i++)
        CHECK(batch->pos[i] == pos[i] && batch->slot[i] == 6 + i && batch->tree_from[i] == 7 &&
              batch->tree_mask[i] == mask[i]);
    CHECK_INT(sched_draft_child(b->s, seq, SCHED_DRAFT_ROOT, 31), 3);
    CHECK_INT(sched_draft_child(b->s, seq, 0, 22), 2);
    CHECK_INT(sched_draft_child(b->s, seq, 2, 23), 5);
    CHECK_INT(sched_draft_child(b->s, seq, 2, 13), SCHED_DRAFT_NONE);
    CHECK_INT(sched_draft_child(b->s, seq, SCHED_DRAFT_ROOT, 12), SCHED_DRAFT_NONE);
    static const int32_t said[4] = {11, 22, 23, 99};
    sched_accept(b->s, seq, said, 4);
    const char *why = sched_check(b->s);
    CHECK_AT(!why, "%s", why);
    CHECK_INT(sched_n_tokens(b->s, seq), 11);
    CHECK(!memcmp(sched_tokens(b->s, seq) + 7, said, sizeof said));
    struct sched_stats st;
    sched_stats(b->s, &st);
    CHECK_INT(st.blocks_used, 3); /* ten positions; the tree reached to the thirteenth */
    batch_free(batch);
    shut(b);
}

TEST(drafts_give_way_to_prompts_and_never_cost_anybody_a_block)
{
    struct bench *b = open_with((struct sched_options){.n_blocks = 8,
                                                       .block_tokens = 4,
                                                       .max_running = 3,
                                                       .max_batch_rows = 20,
                                                       .draft_rows_max = 32,
                                                       .reserve_tokens = 1});
    int seq = add(b, 3, 20, 0, SCHED_ONLINE, -1);
    run_step(b);
    add(b, 22, 2, 0, SCHED_ONLINE, -1);
    const int32_t draft[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    sched_draft(b->s, seq, draft, NULL, 8);
    const struct sched_plan *p = run_step(b);
    CHECK_INT(rows_of(p, seq), 4); /* 20 rows: itself, a chunk of 16, 3 that are left */
    CHECK_INT(p->n_preempted, 0);
    sched_draft(b->s, seq, draft, NULL, 8);
    p = run_step(b);
    CHECK_INT(rows_of(p, seq),
              4); /* rows enough, but of 8 blocks 6 are promised and one is its own: one more */
    CHECK_INT(p->n_preempted, 0);
    shut(b);
}

TEST(a_prompt_that_can_never_fit_is_refused_at_once)
{
    struct bench *b = open_with((struct sched_options){
        .n_blocks = 4, .block_tokens = 8, .max_running = 2, .max_batch_rows = 16, .max_len = 100});
    CHECK_INT(add(b, 32, 1, 0, SCHED_ONLINE, -1), -(int)ERR_TOO_LARGE - 1);
    int32_t t[LEN] = {0};
    struct sched_request r = {t, 20, 90, {.salt = {0, 0}}, SCHED_ONLINE, -1};
    int seq, limit;
    REQUIRE(sched_add(b->s, &r, 0, &seq, &limit) == OK);
    CHECK_INT(limit, 32);
    shut(b);
}

TEST(the_unfilled_ends_of_running_sequences_are_counted_as_slack)
{
    struct bench *b = open_with((struct sched_options){
        .n_blocks = 64, .block_tokens = 16, .max_running = 4, .max_batch_rows = 64});
    struct sched_stats st;
    CHECK(add(b, 20, 8, 0, SCHED_ONLINE, -1) >= 0 && add(b, 16, 8, 0, SCHED_ONLINE, -1) >= 0);
    run_step(b); /* 20 tokens in two blocks and 16 in one */
    sched_stats(b->s, &st);
    CHECK_INT((int)st.slack_tokens, 12);
    run_step(b); /* 21 in two and 17 in two */
    sched_stats(b->s, &st);
    CHECK_INT((int)st.slack_tokens, 11 + 15);
    shut(b);
}

TEST(a_full_queue_refuses_and_keeps_what_it_has)
{
    struct bench *b = open_with((struct sched_options){.n_blocks = 4,
                                                       .block_tokens = 8,
                                                       .max_running = 1,
                                                       .max_batch_rows = 16,
                                                       .max_waiting = 2});
    CHECK(add(b, 4, 1, 0, SCHED_ONLINE, -1) >= 0);
    CHECK(add(b, 4, 1, 0, SCHED_ONLINE, -1) >= 0);
    CHECK_INT(add(b, 4, 1, 0, SCHED_ONLINE, -1), -(int)ERR_FULL - 1);
    struct sched_stats st;
    sched_stats(b->s, &st);
    CHECK_INT(st.waiting, 2);
    shut(b);
}

TEST(a_sequence_starts_only_when_its_whole_prompt_fits)
{
    struct bench *b = open_with((struct sched_options){.n_blocks = 10,
                                                       .block_tokens = 8,
                                                       .max_running = 4,
                                                       .max_batch_rows = 16,
                                                       .reserve_tokens = 8});
    add(b, 40, 20, 0, SCHED_ONLINE, -1); /* 5 blocks and 1 promised */
    int second = add(b, 40, 20, 0, SCHED_ONLINE, -1);
    for (int i = 0; i < 5; i++) /* its first chunk alone would have fitted */
        CHECK_INT(rows_of(run_step(b), second), 0);
    shut(b);
}

TEST(one_that_does_not_fit_is_overtaken_a_bounded_number_of_times)
{
    struct bench *b = open_with((struct sched_options){.n_blocks = 12,
                                                       .block_tokens = 8,
                                                       .max_running = 3,
                                                       .max_batch_rows = 64,
                                                       .reserve_tokens = 8,
                                                       .bypass_max = 3});
    add(b, 8, 50, 0, SCHED_ONLINE, -1);
    run_step(b);
    int big = add(b, 80, 2, 0, SCHED_ONLINE, -1), before_big = 0;
    for (int i = 0; i < 20; i++)
        add(b, 8, 4, 0, SCHED_ONLINE, -1);
    bool started = false;
    for (int i = 0; i < 200 && !started; i++) {
        const struct sched_plan *p = run_step(b);
        started = rows_of(p, big) > 0;
        if (!started) before_big += p->n_admitted;
    }
    CHECK(started);
    CHECK_INT(before_big, 3);
    shut(b);
}

TEST(an_online_request_displaces_a_batch_one_from_its_slot)
{
    struct bench *b = open_with((struct sched_options){
        .n_blocks = 60, .block_tokens = 8, .max_running = 1, .max_batch_rows = 64});
    int batch = add(b, 20, 40, 0, SCHED_BATCH, -1);
    run_step(b);
    int online = add(b, 20, 2, 0, SCHED_ONLINE, -1);
    const struct sched_plan *p = run_step(b);
    CHECK_INT(rows_of(p, online), 20);
    CHECK_INT(p->n_preempted, 1);
    run_step(b); /* online ends */
    p = run_step(b);
    CHECK(rows_of(p, batch) > 0 && rows_of(p, batch) <= 5); /* 16 of 21 come back from the cache */
    shut(b);
}

TEST(batch_work_is_served_within_its_bound_under_a_flood_of_online_work)
{
    struct bench *b = open_with((struct sched_options){.n_blocks = 60,
                                                       .block_tokens = 8,
                                                       .max_running = 1,
                                                       .max_batch_rows = 64,
                                                       .ageing_ms = 1000});
    int batch = add(b, 8, 3, 0, SCHED_BATCH, -1), steps = 0;
    bool served = false;
    for (; steps < 400 && !served; steps++, b->now_ms += 10) {
        struct sched_stats st;
        sched_stats(b->s, &st);
        if (st.waiting < 5) {
            b->n %= 60;
            b->n += b->n == 0; /* the batch prompt stays */
            add(b, 8, 3, 0, SCHED_ONLINE, -1);
        }
        served = rows_of(run_step(b), batch) > 0;
    }
    CHECK(served);
    CHECK(b->now_ms >= 1000 && b->now_ms < 1400);
    shut(b);
}

TEST(the_victim_is_the_one_with_least_to_lose_and_keeps_its_place)
{
    struct bench *b = open_with((struct sched_options){.n_blocks = 14,
                                                       .block_tokens = 8,
                                                       .max_running = 2,
                                                       .max_batch_rows = 64,
                                                       .reserve_tokens = 1});
    int brief = add(b, 16, 60, 0, SCHED_ONLINE, -1), longer = add(b, 70, 30, 0, SCHED_ONLINE, -1);
    bool preempted = false;
    for (int i = 0; i < 40 && !preempted; i++)
        preempted = run_step(b)->n_preempted > 0;
    CHECK(preempted);
    CHECK(sched_table(b->s, longer) != NULL); /* arrived later, but has more to lose */
    CHECK(sched_table(b->s, brief) == NULL);
    int newcomer = add(b, 8, 4, 0, SCHED_ONLINE, -1), first = -1;
    for (int i = 0; i < 60 && first < 0; i++) {
        const struct sched_plan *p = run_step(b);
        first = rows_of(p, brief)                                              ? brief
                : rows_of(p, newcomer) > 0 && sched_table(b->s, brief) == NULL ? -1
                                                                               : first;
    }
    CHECK_INT(first, brief);
    shut(b);
}

TEST(removing_a_sequence_frees_its_blocks_at_once)
{
    struct bench *b = open_with((struct sched_options){
        .n_blocks = 20, .block_tokens = 8, .max_running = 2, .max_batch_rows = 16});
    int a = add(b, 60, 10, 0, SCHED_ONLINE, -1), c = add(b, 60, 10, 0, SCHED_ONLINE, -1);
    run_step(b); /* both in the middle of their prompts */
    sched_remove(b->s, a);
    sched_remove(b->s, c);
    struct sched_stats st;
    sched_stats(b->s, &st);
    CHECK_INT(st.blocks_used, 0);
    CHECK_INT(st.running, 0);
    CHECK_INT(sched_step(b->s, 0)->n_rows, 0);
    shut(b);
}

/* Fills the pool with another document, so that every kept block is given away. */
static void push_out(struct bench *b, int n_prompt)
{
    int other = add(b, n_prompt, 1, 0, SCHED_ONLINE, -1);
    for (int i = 0; i < 20 && sched_n_tokens(b->s, other) == n_prompt; i++) {
        const struct sched_plan *p = sched_step(b->s, 0);
        for (int k = 0; k < p->n_spans; k++)
            if (p->spans[k].sample) sched_accept(b->s, p->spans[k].seq, &(int32_t){4}, 1);
    }
    sched_remove(b->s, other);
}

TEST(a_prefix_that_the_pool_gave_up_comes_back_from_the_host)
{
    static const struct {
        int n_host, cached;
        double move_us, token_us;
        const char *how;
    } cases[] = {{20, 39, 0, 0, "nothing is known of costs"},
                 {20, 39, 10, 2.6, "the host is faster"},
                 {20, 0, 10, 2.4, "computing is faster"},
                 {2, 16, 0, 0, "the host has room for the beginning only"},
                 {0, 0, 0, 0, "there is no host"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bench *b = open_with((struct sched_options){.n_blocks = 5,
                                                           .n_host = cases[i].n_host,
                                                           .block_tokens = 8,
                                                           .max_running = 2,
                                                           .max_batch_rows = 64,
                                                           .reserve_tokens = 1});
        sched_set_costs(b->s, cases[i].move_us, cases[i].token_us);
        add(b, 39, 1, 39, SCHED_ONLINE, -1);
        run_step(b);
        push_out(b, 39);
        int again = add(b, 39, 1, 39, SCHED_ONLINE, -1);
        const struct sched_plan *p = sched_step(b->s, 0);
        int whole = cases[i].cached / 8 * 8; /* the last 7 tokens were never a full block */
        CHECK_AT(sched_cached_tokens(b->s, again) == whole && rows_of(p, again) == 39 - whole,
                 "%s: %d cached, %d computed", cases[i].how, sched_cached_tokens(b->s, again),
                 rows_of(p, again));
        shut(b);
    }
}

TEST(a_long_prefix_is_loaded_over_several_steps_while_others_decode)
{
    struct bench *b = open_with((struct sched_options){.n_blocks = 60,
                                                       .n_host = 100,
                                                       .block_tokens = 8,
                                                       .max_running = 2,
                                                       .max_batch_rows = 512,
                                                       .reserve_tokens = 1});
    sched_set_costs(b->s, 800, 1000); /* ten blocks are 8 ms */
    add(b, 401, 1, 401, SCHED_ONLINE, -1);
    run_step(b);
    push_out(b, 479);
    int talker = add(b, 4, 40, 0, SCHED_ONLINE, -1);
    run_step(b);
    int again = add(b, 401, 2, 401, SCHED_ONLINE, -1);
    for (int i = 0; i < 5; i++) {
        const struct sched_plan *p = run_step(b);
        CHECK_INT(rows_of(p, talker), 1);
        CHECK_INT(rows_of(p, again), i < 4 ? 0 : 1); /* nothing is computed that is on its way */
        CHECK_INT(sched_cached_tokens(b->s, again), 80 * (i + 1));
    }
    shut(b);
}

TEST(a_preempted_sequence_resumes_from_the_host_and_recomputes_only_its_tail)
{
    for (int host = 0; host < 2; host++) {
        struct bench *b = open_with((struct sched_options){.n_blocks = 20,
                                                           .n_host = host ? 40 : 0,
                                                           .block_tokens = 8,
                                                           .max_running = 2,
                                                           .max_batch_rows = 200,
                                                           .reserve_tokens = 1});
        int a = add(b, 60, 60, 0, SCHED_ONLINE, -1), c = add(b, 75, 60, 0, SCHED_ONLINE, -1);
        struct sched_stats st = {0};
        for (int i = 0; i < 200 && st.running + st.waiting + !i; i++) {
            run_step(b);
            sched_stats(b->s, &st);
        }
        (void)a, (void)c;
        CHECK(st.preemptions > 0);
        CHECK_AT(host ? st.lost_tokens < 8 * st.preemptions : st.lost_tokens > 40,
                 "host %d: %llu lost in %llu preemptions", host, (unsigned long long)st.lost_tokens,
                 (unsigned long long)st.preemptions);
        shut(b);
    }
}

TEST_MAIN()
