/* Goal: the index agrees with the plainest model of itself. Method: random operations against arrays that are searched from end to end
 * (LRU order included), with room for few blocks so that they give way all the time; then single rules by hand. */
#include "base/rng.h"
#include "cache/prefix_index.h"
#include "tests/check.h"

enum { BLOCKS = 96, PODS = 5, CHAIN = 12, GUESS_MS = 50 };

/* --- the oracle */
struct line {
    int block;
    bool held[PODS][PREFIX_TIERS], guessed[PODS];
    uint64_t guess_ms;
};
struct oracle {
    struct line lines[BLOCKS + 1]; /* newest first */
    size_t n, blocks_max, places_max;
    bool tells[PODS];
};

static bool has(const struct line *l, int pod)
{
    return l->held[pod][0] || l->held[pod][1] || l->held[pod][2] || l->guessed[pod];
}

static size_t places(const struct oracle *o)
{
    size_t n = 0;
    for (size_t i = 0; i < o->n; i++)
        for (int p = 0; p < PODS; p++)
            n += has(&o->lines[i], p);
    return n;
}

static struct line *line_of(struct oracle *o, int block)
{
    for (size_t i = 0; i < o->n; i++)
        if (o->lines[i].block == block) return &o->lines[i];
    return NULL;
}

static struct line *front(struct oracle *o, int block)
{
    struct line *l = line_of(o, block), kept = {.block = block};
    if (!l && o->n == o->blocks_max) o->n--;
    size_t at = l ? (size_t)(l - o->lines) : o->n++;
    if (l) kept = *l;
    memmove(o->lines + 1, o->lines, at * sizeof *o->lines);
    o->lines[0] = kept;
    return o->lines;
}

static void settle(struct oracle *o)
{
    while (places(o) > o->places_max)
        o->n--;
    for (size_t i = 0; i < o->n;) {
        bool any = false;
        for (int p = 0; p < PODS; p++)
            any |= has(&o->lines[i], p);
        if (any) {
            i++;
            continue;
        }
        o->n--;
        memmove(o->lines + i, o->lines + i + 1, (o->n - i) * sizeof *o->lines);
    }
}

static void oracle_forget(struct oracle *o, int pod)
{
    for (size_t i = 0; i < o->n; i++) {
        memset(o->lines[i].held[pod], 0, sizeof o->lines[i].held[pod]);
        o->lines[i].guessed[pod] = false;
    }
    settle(o);
}

static bool counts(const struct oracle *o, const struct line *l, int pod, uint64_t now)
{
    bool guess = l->guessed[pod] && (!o->tells[pod] || now - l->guess_ms <= GUESS_MS);
    return l->held[pod][0] || l->held[pod][1] || l->held[pod][2] || guess;
}

static void compare(struct oracle *o, const int *chain, size_t n, uint64_t now,
                    const struct prefix_match *m, uint64_t seed)
{
    size_t longest = 0;
    for (int p = 0; p < PODS; p++) {
        int run = 0, slow = 0;
        for (size_t i = 0; i < n; i++) {
            struct line *l = line_of(o, chain[i]);
            if (!l || !counts(o, l, p, now)) break;
            run++;
            slow +=
                !l->held[p][PREFIX_DEVICE] && (l->held[p][PREFIX_HOST] || l->held[p][PREFIX_DISK]);
        }
        CHECK_AT(m->blocks[p] == run, "pod %d holds %d blocks, found %d, seed %llu", p, run,
                 m->blocks[p], (unsigned long long)seed);
        CHECK_AT(m->slow[p] == slow, "pod %d holds %d slow blocks, found %d, seed %llu", p, slow,
                 m->slow[p], (unsigned long long)seed);
        CHECK(!(m->pods >> p & 1) == !run);
        if ((size_t)run > longest) longest = (size_t)run;
    }
    for (size_t i = longest; i-- > 0;)
        front(o, chain[i]);
}

static struct hash128 id_of(int block)
{
    /* few homes, so that runs are long and wrap round the end of the table */
    return (struct hash128){(uint64_t)block, (uint64_t)(block % 3 ? block % 7 : 254 + block % 2)};
}

static size_t random_chain(struct rng *r, int *chain, struct hash128 *ids)
{
    size_t n = 1 + rng_below(r, CHAIN), at = rng_below(r, 8);
    for (size_t i = 0; i < n; i++) {
        chain[i] = (int)((at * 11 + i) % BLOCKS);
        ids[i] = id_of(chain[i]);
    }
    return n;
}

static void change(struct prefix_index *x, struct oracle *o, struct rng *r, uint64_t *incarnations)
{
    int pod = (int)rng_below(r, PODS), tier = (int)rng_below(r, PREFIX_TIERS),
        block = (int)rng_below(r, BLOCKS);
    switch (rng_below(r, 40)) {
    case 0:
        incarnations[pod]++;
        o->tells[pod] = rng_below(r, 2);
        prefix_index_join(x, pod, incarnations[pod], o->tells[pod]);
        oracle_forget(o, pod);
        break;
    case 1:
        prefix_index_clear(x, pod);
        oracle_forget(o, pod);
        break;
    case 2: /* a run that is over tells nothing */
        CHECK(!prefix_index_store(x, pod, incarnations[pod] - 1, tier, id_of(block)));
        CHECK(!prefix_index_remove(x, pod, incarnations[pod] + 1, tier, id_of(block)));
        break;
    default:
        if (rng_below(r, 3)) {
            CHECK(prefix_index_store(x, pod, incarnations[pod], tier, id_of(block)));
            struct line *l = front(o, block);
            l->held[pod][tier] = true;
            l->guessed[pod] = false;
            settle(o);
        } else {
            struct line *l = line_of(o, block);
            CHECK(prefix_index_remove(x, pod, incarnations[pod], tier, id_of(block)));
            if (l) l->held[pod][tier] = false;
            settle(o);
        }
    }
}

static void guess(struct prefix_index *x, struct oracle *o, struct rng *r, uint64_t now)
{
    int chain[CHAIN], pod = (int)rng_below(r, PODS);
    struct hash128 ids[CHAIN];
    size_t n = random_chain(r, chain, ids);
    prefix_index_guess(x, pod, ids, n, now);
    for (size_t i = n; i-- > 0;) {
        struct line *l = front(o, chain[i]);
        if (!l->held[pod][0] && !l->held[pod][1] && !l->held[pod][2]) {
            l->guessed[pod] = true;
            l->guess_ms = now;
        }
        settle(o);
    }
}

TEST(index_agrees_with_a_naive_one_under_random_operations)
{
    for (uint64_t seed = 1; seed <= 30 && !check_failures; seed++) {
        struct rng r;
        struct prefix_index *x = prefix_index_new(1, GUESS_MS);
        static struct oracle o;
        uint64_t incarnations[PODS], now = 1000;
        rng_seed(&r, seed);
        o = (struct oracle){.blocks_max = prefix_index_stats(x).blocks_max,
                            .places_max = prefix_index_stats(x).places_max};
        REQUIRE(o.blocks_max < BLOCKS);
        for (int p = 0; p < PODS; p++)
            prefix_index_join(x, p, incarnations[p] = 10 + (uint64_t)p, o.tells[p] = p % 2);
        for (int step = 0; step < 3000 && !check_failures; step++) {
            int chain[CHAIN];
            struct hash128 ids[CHAIN];
            struct prefix_match m;
            now += rng_below(&r, 10);
            if (rng_below(&r, 4))
                change(x, &o, &r, incarnations);
            else
                guess(x, &o, &r, now);
            size_t n = random_chain(&r, chain, ids);
            prefix_index_match(x, ids, n, now, &m);
            compare(&o, chain, n, now, &m, seed);
            CHECK_INT(prefix_index_stats(x).blocks, o.n);
            CHECK_INT(prefix_index_stats(x).places, places(&o));
            const char *wrong = prefix_index_check(x);
            CHECK_AT(!wrong, "%s, seed %llu, step %d", wrong, (unsigned long long)seed, step);
        }
        prefix_index_free(x);
    }
}

/* --- single rules */
static struct hash128 chain4[4] = {{1, 10}, {2, 20}, {3, 30}, {4, 40}};

static int found(struct prefix_index *x, int pod, uint64_t now)
{
    struct prefix_match m;
    prefix_index_match(x, chain4, 4, now, &m);
    return m.blocks[pod];
}

TEST(only_blocks_without_a_gap_from_the_first_on_count)
{
    struct prefix_index *x = prefix_index_new(1 << 16, GUESS_MS);
    prefix_index_join(x, 3, 1, true);
    for (int i = 0; i < 4; i++)
        if (i != 2) CHECK(prefix_index_store(x, 3, 1, PREFIX_DEVICE, chain4[i]));
    CHECK_INT(found(x, 3, 0), 2);
    CHECK(prefix_index_store(x, 3, 1, PREFIX_HOST, chain4[2]));
    CHECK_INT(found(x, 3, 0), 4);
    CHECK(prefix_index_remove(x, 3, 1, PREFIX_DEVICE, chain4[0]));
    CHECK_INT(found(x, 3, 0), 0);
    prefix_index_free(x);
}

TEST(a_block_in_two_tiers_is_held_until_both_are_gone)
{
    struct prefix_index *x = prefix_index_new(1 << 16, GUESS_MS);
    prefix_index_join(x, 0, 1, true);
    CHECK(prefix_index_store(x, 0, 1, PREFIX_DEVICE, chain4[0]));
    CHECK(prefix_index_store(x, 0, 1, PREFIX_DISK, chain4[0]));
    CHECK(prefix_index_remove(x, 0, 1, PREFIX_DEVICE, chain4[0]));
    CHECK_INT(found(x, 0, 0), 1);
    CHECK(prefix_index_remove(x, 0, 1, PREFIX_DISK, chain4[0]));
    CHECK_INT(found(x, 0, 0), 0);
    CHECK_INT(prefix_index_stats(x).blocks, 0);
    prefix_index_free(x);
}

TEST(a_guess_about_a_pod_that_tells_ends_and_about_another_stays)
{
    struct prefix_index *x = prefix_index_new(1 << 16, GUESS_MS);
    prefix_index_join(x, 0, 1, true);
    prefix_index_guess(x, 0, chain4, 4, 100);
    prefix_index_guess(x, 1, chain4, 4, 100); /* never joined: its history is all there is */
    CHECK_INT(found(x, 0, 100 + GUESS_MS), 4);
    CHECK_INT(found(x, 0, 101 + GUESS_MS), 0);
    CHECK_INT(found(x, 1, 100000), 4);
    CHECK(prefix_index_store(x, 0, 1, PREFIX_DEVICE, chain4[0]));
    CHECK_INT(found(x, 0, 100000), 1);
    prefix_index_free(x);
}

TEST(another_incarnation_holds_nothing_and_the_same_one_all)
{
    struct prefix_index *x = prefix_index_new(1 << 16, GUESS_MS);
    prefix_index_join(x, 0, 1, true);
    prefix_index_join(x, 1, 1, true);
    CHECK(prefix_index_store(x, 0, 1, PREFIX_DEVICE, chain4[0]));
    CHECK(prefix_index_store(x, 1, 1, PREFIX_DEVICE, chain4[0]));
    prefix_index_join(x, 0, 1, true);
    CHECK_INT(found(x, 0, 0), 1);
    prefix_index_join(x, 0, 2, true);
    CHECK_INT(found(x, 0, 0), 0);
    CHECK_INT(found(x, 1, 0), 1);
    CHECK_INT(prefix_index_held(x, 0), 0);
    prefix_index_leave(x, 1);
    CHECK(!prefix_index_store(x, 1, 1, PREFIX_DEVICE, chain4[0]));
    CHECK_INT(prefix_index_stats(x).places, 0);
    prefix_index_free(x);
}

TEST(the_beginning_of_a_guessed_prompt_gives_way_last)
{
    struct prefix_index *x = prefix_index_new(1, GUESS_MS);
    size_t max = prefix_index_stats(x).blocks_max;
    prefix_index_guess(x, 0, chain4, 4, 0);
    for (size_t i = 0; i + 3 < max; i++) /* room for all but one */
        prefix_index_guess(x, 0, &(struct hash128){100, i}, 1, 0);
    CHECK_INT(prefix_index_stats(x).evicted, 1);
    CHECK_INT(found(x, 0, 0), 3);
    prefix_index_free(x);
}

TEST_MAIN()
