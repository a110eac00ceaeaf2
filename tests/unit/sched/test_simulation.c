/* Goal: whatever arrives, is cancelled, forked, displaced or preempted, every sequence ends exactly
 * once, with the text it would have had alone, and no invariant is ever broken. Method: seeded
 * random traffic against the scheduler with a pretended model whose output depends on every cell
 * read through the block tables (fake_kv.h); sched_check after each step; a naive list of all texts ever
 * computed says what may at most have been found in a cache; a pretended disk takes and gives back blocks as the disk tier does.
 * A million operations, each followed by the check; twenty with DEJA_LONG=1. */
#include "base/rng.h"
#include "fake_kv.h"

enum { LIVE_MAX = 96, LEN_MAX = 120, VOCAB = 50 };

enum { PAST_MAX = 3000, DISK_MAX = 64 };

struct past { /* a text that was computed, naively kept */
    struct prefix_scope scope;
    int n;
    int32_t tokens[LEN_MAX + 8];
};
struct saved { /* a block on the pretended disk */
    struct hash128 id, parent;
    int32_t tokens[16];
    struct fake_cell cells[16];
};
struct one {
    bool live;
    struct prefix_scope scope;
    int seq, n_prompt, limit, choice, want;
    int32_t tokens[LEN_MAX + 8];
};
struct pick { /* what a step in flight says; the sequence may have left */
    struct one *x;
    int32_t token;
};
struct world {
    struct rng r;
    bool ahead; /* steps are mostly planned before the tokens of those before are heard */
    struct pick pick[2][128];
    int n_picks, newest; /* of the step in flight, pick[newest] */
    int n_ahead, n_wasted;
    struct sched *s;
    struct fake_kv kv;
    struct batch *b;
    struct sched_options o;
    struct one one[LIVE_MAX];
    int submitted, ended, cancelled, forks, accepted, moved, n_past, n_disk, fetched;
    uint64_t ops;
    struct past past[PAST_MAX];
    struct saved disk[DISK_MAX];
    uint64_t now_ms, rows;
    int32_t docs[4][LEN_MAX];
};

static int below(struct world *w, int n)
{
    return (int)rng_below(&w->r, (uint64_t)n);
}

static struct one *by_seq(struct world *w, int seq)
{
    for (int i = 0; i < LIVE_MAX; i++)
        if (w->one[i].live && w->one[i].seq == seq) return &w->one[i];
    return NULL;
}

static struct one *unused(struct world *w)
{
    for (int i = 0; i < LIVE_MAX; i++)
        if (!w->one[i].live) return &w->one[i];
    return NULL;
}

static void submit(struct world *w)
{
    int n = 1 + (below(w, 4) == 0 ? below(w, 5) : 0), first = -1, doc = below(w, 4);
    int n_prompt = 1 + below(w, w->o.max_len - 2), shared = below(w, n_prompt + 1);
    if (n_prompt > LEN_MAX - 2) n_prompt = LEN_MAX - 2;
    int32_t prompt[LEN_MAX];
    for (int i = 0; i < n_prompt; i++)
        prompt[i] = i < shared ? w->docs[doc][i] : below(w, VOCAB);
    int want = 1 + below(w, 30);
    struct prefix_scope scope = {.salt = {0, (uint64_t)below(w, 2)}};
    if (!below(w, 4)) scope.adapter.lo = 1;
    enum sched_class class = below(w, 3) ? SCHED_ONLINE : SCHED_BATCH;
    for (int c = 0; c < n; c++) {
        struct one *x = unused(w);
        if (!x) return;
        memcpy(x->tokens, prompt, (size_t)n_prompt * sizeof *prompt);
        int limit = n_prompt + want < LEN_MAX ? n_prompt + want : LEN_MAX;
        struct sched_request q = {x->tokens, n_prompt, limit, scope, class, first};
        enum err e = sched_add(w->s, &q, w->now_ms, &x->seq, &x->limit);
        if (e) {
            long long pool = (long long)w->o.n_blocks * w->o.block_tokens;
            bool never = n_prompt >= w->o.max_len || n_prompt >= pool;
            CHECK_INT(e, never ? ERR_TOO_LARGE : ERR_FULL);
            return;
        }
        w->ops++;
        x->live = true;
        x->scope = scope;
        x->n_prompt = n_prompt;
        x->choice = c;
        x->want = want;
        w->submitted++;
        if (!c) first = x->seq;
    }
}

static bool same_scope(const struct prefix_scope *a, const struct prefix_scope *b)
{
    return hash_eq(a->salt, b->salt) && hash_eq(a->adapter, b->adapter);
}

static int common(const int32_t *a, int n_a, const int32_t *b, int n_b)
{
    int n = 0;
    while (n < n_a && n < n_b && a[n] == b[n])
        n++;
    return n;
}

/* x is about to leave: what it found in a cache is a beginning that somebody of its scope has had. */
static void leave(struct world *w, struct one *x)
{
    int n = sched_n_tokens(w->s, x->seq), cached = sched_cached_tokens(w->s, x->seq), most = 0;
    for (int i = 0; i < w->n_past && most < cached; i++) {
        const struct past *p = &w->past[i];
        if (same_scope(&p->scope, &x->scope)) {
            int k = common(x->tokens, n, p->tokens, p->n);
            most = k > most ? k : most;
        }
    }
    for (int i = 0; i < LIVE_MAX && most < cached; i++) {
        const struct one *o = &w->one[i];
        if (!o->live || o == x || !same_scope(&o->scope, &x->scope)) continue;
        int k = common(x->tokens, n, o->tokens, sched_n_tokens(w->s, o->seq));
        most = k > most ? k : most;
    }
    CHECK_AT(cached <= most || w->n_past == PAST_MAX,
             "%d tokens cached, %d were ever computed in its scope", cached, most);
    if (w->n_past < PAST_MAX) {
        struct past *p = &w->past[w->n_past++];
        p->scope = x->scope;
        p->n = n;
        memcpy(p->tokens, x->tokens, (size_t)n * sizeof *p->tokens);
    }
    for (int i = 0; i < w->n_picks; i++)
        if (w->pick[w->newest][i].x == x) {
            w->pick[w->newest][i].x = NULL;
            w->n_wasted++;
        }
    sched_remove(w->s, x->seq);
    x->live = false;
    w->ended++;
    w->ops++;
}

/* The hashes of seq's rows[1 + n_draft]: takes the path of the draft that is right and one more token. */
static void got(struct world *w, int seq, const uint64_t *rows, int n_draft)
{
    struct one *x = by_seq(w, seq);
    REQUIRE(x);
    int32_t said[SCHED_DRAFT_MAX + 1];
    int n = sched_n_tokens(w->s, seq), k = 0;
    int32_t text[LEN_MAX + 8 + SCHED_DRAFT_MAX];
    memcpy(text, x->tokens, (size_t)n * sizeof *text);
    for (int node = SCHED_DRAFT_ROOT;; k++) {
        REQUIRE(node < n_draft);
        text[n + k] = said[k] = fake_next(fake_mix(rows[1 + node], x->choice, -1), VOCAB);
        CHECK_INT(said[k], fake_alone(text, n + k, VOCAB, x->choice));
        int next = n_draft ? sched_draft_child(w->s, seq, node, said[k]) : SCHED_DRAFT_NONE;
        w->moved += next > node + 1;
        if (next < 0) break;
        node = next;
    }
    w->accepted += k;
    int some = 1 + below(w, k + 1); /* a stop string in the middle */
    bool stop = below(w, 40) == 0;
    if (stop) k = some - 1;
    fake_keep_path(&w->kv, w->s, seq, said, k);
    sched_accept(w->s, seq, said, k + 1);
    w->ops++;
    if (sched_n_tokens(w->s, seq) >= x->limit || stop) leave(w, x);
}

/* A chain of n tokens, most of them what will be said, or a tree with such a path; returns how many there are. */
static int grow(struct world *w, const struct one *x, int n_tokens, int n, int32_t *token,
                int8_t *parent)
{
    int32_t text[LEN_MAX + 8 + SCHED_DRAFT_MAX];
    bool tree = below(w, 2);
    int made = 0;
    for (int i = 0; i < n; i++) {
        int above = tree && below(w, 3) == 0 ? below(w, made + 1) - 1 : made - 1, end = n_tokens;
        int8_t path[SCHED_DRAFT_MAX];
        int depth = 0;
        for (int k = above; k >= 0; k = parent[k])
            path[depth++] = (int8_t)k;
        memcpy(text, x->tokens, (size_t)n_tokens * sizeof *text);
        while (depth)
            text[end++] = token[path[--depth]];
        token[made] = below(w, 5) ? fake_alone(text, end, VOCAB, x->choice) : below(w, VOCAB);
        parent[made] = (int8_t)above;
        bool taken = false;
        for (int k = 0; k < made; k++)
            taken |= parent[k] == above && token[k] == token[made];
        made += !taken;
    }
    return made;
}

/* Drafts of any length and shape. */
static void draft_some(struct world *w)
{
    for (int i = 0; i < LIVE_MAX; i++) {
        struct one *x = &w->one[i];
        if (!x->live || below(w, 3)) continue;
        int32_t token[SCHED_DRAFT_MAX];
        int8_t parent[SCHED_DRAFT_MAX];
        int n =
            grow(w, x, sched_n_tokens(w->s, x->seq), below(w, SCHED_DRAFT_MAX + 1), token, parent);
        sched_draft(w->s, x->seq, token, parent, n);
        w->ops++;
    }
}

/* As the disk tier: saves some fresh blocks, brings some saved ones to the host. */
static void use_disk(struct world *w)
{
    int bt = w->o.block_tokens;
    struct block_name name;
    kv_block b;
    while (below(w, 3) && sched_next_fresh(w->s, &b, &name)) {
        struct saved *d = &w->disk[w->n_disk++ % DISK_MAX];
        *d = (struct saved){.id = name.id, .parent = name.parent};
        memcpy(d->tokens, name.tokens, (size_t)bt * sizeof *d->tokens);
        memcpy(d->cells, w->kv.cells + b * bt, (size_t)bt * sizeof *d->cells);
        w->ops++;
    }
    struct shelf *host = sched_host(w->s);
    if (!host || !w->n_disk || below(w, 3)) return;
    const struct saved *d = &w->disk[below(w, w->n_disk < DISK_MAX ? w->n_disk : DISK_MAX)];
    shelf_slot to = shelf_take(host);
    name = (struct block_name){d->id, d->parent, d->tokens};
    memcpy(w->kv.host + to * bt, d->cells, (size_t)bt * sizeof *d->cells);
    w->fetched += shelf_enter(host, to, &name);
    shelf_unpin(host, to);
    w->ops++;
}

static void step(struct world *w)
{
    if (w->o.track_fresh && w->o.block_tokens <= 16) use_disk(w);
    if (w->o.draft_rows_max) draft_some(w);
    const struct sched_plan *p = sched_step(w->s, w->now_ms);
    const char *why = sched_check(w->s);
    if (why) CHECK_AT(false, "after planning: %s", why);
    if (p->n_rows > w->o.max_batch_rows)
        CHECK_AT(false, "%d rows in a step of %d", p->n_rows, w->o.max_batch_rows);
    w->ops++;
    fake_moves(&w->kv, p);
    batch_fill(w->b, w->s, p);
    uint64_t hash[128];
    fake_forward(&w->kv, w->b, hash);
    w->rows += (uint64_t)p->n_rows;
    w->forks += p->n_forks;
    const uint64_t *row = hash;
    for (int i = 0; i < p->n_spans; i++) {
        const struct sched_span *span = &p->spans[i];
        if (!span->sample) continue;
        for (int f = 0; f < p->n_forks; f++)
            if (p->forks[f].parent == span->seq) got(w, p->forks[f].child, row, 0);
        got(w, span->seq, row, span->n_draft);
        row += 1 + span->n_draft;
    }
    why = sched_check(w->s);
    if (why) CHECK_AT(false, "after tokens: %s", why);
}

/* One more step like step(), whose tokens are heard after the next one is planned: what they decide comes a step late. */
static void hear(struct world *w, struct pick *pick, int n)
{
    for (int i = 0; i < n; i++) {
        struct one *x = pick[i].x;
        if (!x) continue;
        int known = sched_n_tokens(w->s, x->seq);
        while (known && x->tokens[known - 1] < 0)
            known--;
        CHECK_INT(pick[i].token, fake_alone(x->tokens, known, VOCAB, x->choice));
        pick[i].x = NULL; /* no longer in flight */
        sched_accept(w->s, x->seq, &pick[i].token, 1);
        w->ops++;
        if (sched_n_tokens(w->s, x->seq) >= x->limit || below(w, 40) == 0) leave(w, x);
    }
}

static void step_ahead(struct world *w)
{
    struct pick *old = w->pick[w->newest], *now = w->pick[!w->newest];
    int n_old = w->n_picks, n = 0;
    bool ahead = n_old && below(w, 8);
    if (w->o.track_fresh && w->o.block_tokens <= 16) use_disk(w);
    if (n_old && !ahead) hear(w, old, n_old);
    for (int i = 0; ahead && i < n_old; i++)
        if (old[i].x) sched_promise(w->s, old[i].x->seq, -1 - i);
    w->n_ahead += ahead;
    const struct sched_plan *p = sched_step(w->s, w->now_ms);
    const char *why = sched_check(w->s);
    if (why) CHECK_AT(false, "after planning ahead: %s", why);
    w->ops++;
    fake_moves(&w->kv, p);
    batch_fill(w->b, w->s, p);
    for (int i = 0; i < w->b->n_rows; i++)
        if (w->b->token[i] < 0) w->b->token[i] = old[-1 - w->b->token[i]].token;
    uint64_t hash[128];
    fake_forward(&w->kv, w->b, hash);
    w->rows += (uint64_t)p->n_rows;
    w->forks += p->n_forks;
    for (int i = 0, row = 0; i < p->n_spans; i++) {
        if (!p->spans[i].sample) continue;
        for (int f = 0; f <= p->n_forks; f++) {
            bool own = f == p->n_forks;
            if (!own && p->forks[f].parent != p->spans[i].seq) continue;
            struct one *x = by_seq(w, own ? p->spans[i].seq : p->forks[f].child);
            now[n++] = (struct pick){x, fake_next(fake_mix(hash[row], x->choice, -1), VOCAB)};
        }
        row++;
    }
    w->newest = !w->newest;
    w->n_picks = n;
    if (ahead) hear(w, old, n_old);
    why = sched_check(w->s);
    if (why) CHECK_AT(false, "after late tokens: %s", why);
}

static void cancel_some(struct world *w)
{
    int i = below(w, LIVE_MAX);
    if (!w->one[i].live) return;
    leave(w, &w->one[i]);
    w->cancelled++;
    const char *why = sched_check(w->s);
    if (why) CHECK_AT(false, "after a cancel: %s", why);
}

struct sum {
    struct sched_stats st;
    int forks, accepted, moved, fetched, ahead, wasted;
    uint64_t ops;
};

static void run(uint64_t seed, int n_steps, struct sum *sum)
{
    struct world *w = xcalloc(1, sizeof *w);
    rng_seed(&w->r, seed);
    int bt = 1 << below(w, 4), max_running = 1 + below(w, 12);
    w->o = (struct sched_options){.n_blocks = 3 + below(w, 60),
                                  .block_tokens = bt,
                                  .max_running = max_running,
                                  .max_waiting = 40,
                                  .max_batch_rows = max_running + below(w, 40),
                                  .max_len = 8 + below(w, LEN_MAX - 8),
                                  .draft_rows_max = below(w, 2) ? below(w, 40) : 0,
                                  .reserve_tokens = 1 + below(w, 20),
                                  .bypass_max = 1 + below(w, 8),
                                  .ageing_ms = 50,
                                  .prefix_caching = below(w, 5) > 0,
                                  .n_host = below(w, 3) ? 1 + below(w, 40) : 0,
                                  .track_fresh = below(w, 2) > 0,
                                  .hash_seed = seed,
                                  .root = {seed, 1}};
    w->ahead = !w->o.draft_rows_max && below(w, 3);
    w->s = sched_new(&w->o);
    w->kv = fake_kv_new(w->o.n_blocks, w->o.n_host, bt, VOCAB);
    w->b = batch_new(w->o.max_batch_rows, max_running, max_running + w->o.draft_rows_max);
    for (int d = 0; d < 4; d++)
        for (int i = 0; i < LEN_MAX; i++)
            w->docs[d][i] = d < 2 ? below(w, VOCAB) : d; /* two of them begin alike */
    if (below(w, 2)) sched_set_prompt_rows(w->s, 1 + below(w, 16), below(w, 30));
    memcpy(w->docs[1], w->docs[0], sizeof w->docs[0] / 2);
    if (below(w, 2)) /* loads of a few blocks a step; or a host too slow to pay */
        sched_set_costs(w->s, 1 + below(w, 2000), 50 + below(w, 1000));
    int busy = below(w, 4);
    for (int i = 0; i < n_steps && !check_failures; i++, w->now_ms += 5) {
        for (int k = 0; k <= busy; k++)
            if (!below(w, 6)) submit(w);
        if (!below(w, 25)) cancel_some(w);
        (w->ahead ? step_ahead : step)(w);
    }
    int left = 0;
    for (int i = 0; i < 20000 && w->ended < w->submitted && !check_failures;
         i++, w->now_ms += 5, left++)
        (w->ahead ? step_ahead : step)(w);
    CHECK_INT(w->ended, w->submitted);
    struct sched_stats st;
    sched_stats(w->s, &st);
    sum->st.preemptions += st.preemptions;
    sum->st.copies += st.copies;
    sum->st.displaced += st.displaced;
    sum->st.bypasses += st.bypasses;
    sum->st.prefix_hit_tokens += st.prefix_hit_tokens;
    sum->st.draft_rows += st.draft_rows;
    sum->st.spills += st.spills;
    sum->st.loads += st.loads;
    sum->forks += w->forks;
    sum->accepted += w->accepted;
    sum->moved += w->moved;
    sum->fetched += w->fetched;
    sum->ahead += w->n_ahead;
    sum->wasted += w->n_wasted;
    sum->ops += w->ops;
    CHECK_INT(st.blocks_used, 0);
    CHECK_INT(st.running + st.waiting, 0);
    if (check_failures)
        printf("    seed %llu: blocks %d of %d, running %d, rows %d, len %d, submitted %d ended "
               "%d, %d steps to drain\n",
               (unsigned long long)seed, w->o.n_blocks, bt, max_running, w->o.max_batch_rows,
               w->o.max_len, w->submitted, w->ended, left);
    fake_kv_fini(&w->kv);
    batch_free(w->b);
    sched_free(w->s);
    mem_free(w);
}

TEST(random_traffic_ends_exactly_once_with_the_text_of_a_lone_run)
{
    struct sum sum = {0};
    uint64_t want = getenv("DEJA_LONG") ? 20000000 : 1000000, seed = 1;
    for (; sum.ops < want && !check_failures; seed++)
        run(seed, 400, &sum);
    printf("     %llu operations, seeds 1 to %llu\n", (unsigned long long)sum.ops,
           (unsigned long long)seed - 1);
    /* the run is worth something only if the rare paths were taken */
    CHECK(sum.st.preemptions > 1000);
    CHECK(sum.st.copies > 1000);
    CHECK(sum.st.displaced > 100);
    CHECK(sum.st.bypasses > 100);
    CHECK(sum.st.prefix_hit_tokens > 10000);
    CHECK(sum.forks > 100);
    CHECK(sum.st.spills > 1000);
    CHECK(sum.st.loads > 1000);
    CHECK(sum.fetched > 500);
    CHECK(sum.accepted > 10000);
    CHECK(sum.moved > 1000); /* paths beside the first */
    CHECK(sum.ahead > 10000);
    CHECK(sum.wasted > 1000);
    CHECK(sum.st.draft_rows > (uint64_t)sum.accepted * 5 / 4); /* many were wrong */
}

TEST_MAIN()
