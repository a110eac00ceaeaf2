/* test_tree.c - rows of drafts that branch. The oracle is the backend itself: each node of a random tree must have, bit for bit, the
 * attention it has as the last row of a chain of its ancestors in a store of its own, whatever its place, over block sizes, forms of KV,
 * windows and trees that lie across a part of 256 positions; and after its path has moved to its positions, what comes next must have the
 * bits of a chain, too. */
#include "tests/unit/backend/helpers.h"

enum { NODES_MAX = 40, BASE_MAX = 560, SPARE = 7, TOP = BASE_MAX + NODES_MAX + 2 };
struct dims {
    int n_heads, n_kv_heads, head_dim, block_tokens;
};

/* One sequence of `base` tokens, then a tree, in a store of its own. */
struct tree {
    struct dims d;
    struct backend *be;
    struct kv *kv;
    struct rope *rope;
    int base, n, parent[NODES_MAX], depth[NODES_MAX];
    float *q, *k, *v; /* rows: base tokens, then nodes, then one that follows */
    int32_t table[TOP];
};

static struct kv *store(struct tree *t, int type)
{
    struct kv *kv;
    struct errmsg e = {0};
    struct kv_options o = {.n_layers = 1,
                           .n_kv_heads = t->d.n_kv_heads,
                           .head_dim = t->d.head_dim,
                           .n_blocks = TOP / t->d.block_tokens + 1 + SPARE,
                           .block_tokens = t->d.block_tokens,
                           .type = type < 0 ? KV_F16 : (enum kv_type)type};
    CHECK_INT(kv_new(&kv, t->be, &o, &e), OK);
    return kv;
}

static float *values(struct rng *r, int rows, int heads, int dim)
{
    return random_values(r, (size_t)(rows * heads * dim), 1.5f);
}

static void grow(struct tree *t, struct rng *r)
{
    t->n = 1 + (int)rng_below(r, NODES_MAX);
    for (int i = 0; i < t->n; i++) {
        bool chain = rng_below(r, 2);
        t->parent[i] = i && chain ? i - 1 : (int)rng_below(r, (uint64_t)i + 1) - 1;
        t->depth[i] = t->parent[i] < 0 ? 0 : t->depth[t->parent[i]] + 1;
    }
}

static bool tree_init(struct tree *t, const char *isa, int threads, int type, struct dims d,
                      struct rng *r)
{
    struct errmsg e = {0};
    *t = (struct tree){.d = d, .be = open_backend(isa, threads, type < 0)};
    if (!t->be) return false;
    static const int bases[] = {1, 2, 9, 31, 240, 250, 255, 256, 257, 510, 530};
    t->base = bases[rng_below(r, sizeof bases / sizeof bases[0])];
    grow(t, r);
    t->kv = store(t, type);
    CHECK_INT(rope_new(&t->rope,
                       &(struct rope_options){.base = 10000, .dims = d.head_dim, .pos_max = TOP},
                       &e),
              OK);
    int rows = t->base + t->n + 1, n_blocks = TOP / d.block_tokens + 1;
    t->q = values(r, rows, d.n_heads, d.head_dim);
    t->k = values(r, rows, d.n_kv_heads, d.head_dim);
    t->v = values(r, rows, d.n_kv_heads, d.head_dim);
    for (int i = 0; i < n_blocks; i++)
        t->table[i] = i;
    for (int i = n_blocks - 1; i > 0; i--) {
        int k = (int)rng_below(r, (uint64_t)i + 1);
        int32_t b = t->table[i];
        t->table[i] = t->table[k], t->table[k] = b;
    }
    return true;
}

static void tree_fini(struct tree *t)
{
    kv_free(t->kv);
    rope_free(t->rope);
    backend_close(t->be);
    mem_free(t->q), mem_free(t->k), mem_free(t->v);
}

struct call {
    struct kv *kv;
    int window;
    float softcap;
};

/* Rows of[n] of the arrays at pos[n], through store and attention; out in the order of the call. */
static void compute(const struct tree *t, const struct call *c, const int *of, const int32_t *pos,
                    int n, const struct kv_tree *tree, float *out)
{
    size_t qn = (size_t)(t->d.n_heads * t->d.head_dim),
           kn = (size_t)(t->d.n_kv_heads * t->d.head_dim);
    float *q = xmalloc((size_t)n * qn * 4), *k = xmalloc((size_t)n * kn * 4),
          *v = xmalloc((size_t)n * kn * 4);
    int32_t *seq = xcalloc((size_t)n, sizeof *seq);
    const int32_t *table = t->table;
    for (int i = 0; i < n; i++) {
        memcpy(q + (size_t)i * qn, t->q + (size_t)of[i] * qn, qn * 4);
        memcpy(k + (size_t)i * kn, t->k + (size_t)of[i] * kn, kn * 4);
        memcpy(v + (size_t)i * kn, t->v + (size_t)of[i] * kn, kn * 4);
    }
    struct kv_rows rows = {
        .n_rows = n, .pos = pos, .seq = seq, .block_table = &table, .tree = tree};
    backend_rope_store(
        t->be, c->kv, &rows,
        &(struct rope_store){.rope = t->rope, .n_heads = t->d.n_heads, .q = q, .k = k, .v = v});
    backend_attention(t->be, c->kv, &rows,
                      &(struct attention){.n_heads = t->d.n_heads,
                                          .q = q,
                                          .scale = 0.3f,
                                          .window = c->window,
                                          .softcap = c->softcap,
                                          .out = out});
    mem_free(q), mem_free(k), mem_free(v), mem_free(seq);
}

static void prefill(const struct tree *t, const struct call *c)
{
    int of[TOP];
    int32_t pos[TOP];
    float *out = xmalloc((size_t)(t->base * t->d.n_heads * t->d.head_dim) * 4);
    for (int i = 0; i < t->base; i++)
        of[i] = pos[i] = i;
    compute(t, c, of, pos, t->base, NULL, out);
    mem_free(out);
}

/* Ancestors of a node and itself, in order; returns how many. */
static int path_of(const struct tree *t, int node, int *path)
{
    int n = t->depth[node] + 1;
    for (int i = n; i-- > 0; node = t->parent[node])
        path[i] = node;
    return n;
}

/* The whole tree in one call; first the sequence's last token again, as the engine has it. */
static void run_tree(const struct tree *t, const struct call *c, float *out)
{
    int of[NODES_MAX + 1], path[NODES_MAX];
    int32_t pos[NODES_MAX + 1], slot[NODES_MAX + 1], from[NODES_MAX + 1];
    uint64_t mask[NODES_MAX + 1] = {0};
    of[0] = pos[0] = slot[0] = t->base - 1;
    from[0] = t->base;
    for (int i = 0; i < t->n; i++) {
        of[i + 1] = slot[i + 1] = t->base + i;
        from[i + 1] = t->base;
        pos[i + 1] = t->base + t->depth[i];
        for (int k = path_of(t, i, path); k-- > 0;)
            mask[i + 1] |= UINT64_C(1) << path[k];
    }
    struct kv_tree tree = {slot, from, mask};
    compute(t, c, of, pos, t->n + 1, &tree, out);
}

/* A node as the last of a chain of its ancestors, in c's store; the row that follows it when more. */
static void run_chain(const struct tree *t, const struct call *c, int node, bool more, float *out)
{
    int of[NODES_MAX + 1], path[NODES_MAX], n = path_of(t, node, path);
    int32_t pos[NODES_MAX + 1];
    size_t width = (size_t)(t->d.n_heads * t->d.head_dim);
    float *all = xmalloc((size_t)(n + 1) * width * 4);
    for (int i = 0; i < n; i++)
        of[i] = t->base + path[i], pos[i] = t->base + i;
    of[n] = t->base + t->n, pos[n] = t->base + n;
    compute(t, c, of, pos, n + more, NULL, all);
    memcpy(out, all + (size_t)(n - 1 + more) * width, width * 4);
    mem_free(all);
}

/* node's path goes to its positions, then the row that follows it. */
static void run_after_moving(const struct tree *t, const struct call *c, int node, float *out)
{
    struct kv_move moves[NODES_MAX];
    int path[NODES_MAX], n = path_of(t, node, path), n_moves = 0, bt = t->d.block_tokens;
    for (int i = 0; i < n; i++) {
        int to = t->base + i, at = t->base + path[i];
        if (to != at)
            moves[n_moves++] =
                (struct kv_move){t->table[to / bt], to % bt, t->table[at / bt], at % bt};
    }
    kv_move_tokens(c->kv, moves, n_moves);
    int of = t->base + t->n;
    int32_t pos = t->base + n;
    compute(t, c, &of, &pos, 1, NULL, out);
}

static void check_one(const char *isa, int threads, int type, struct dims d, struct rng *r)
{
    struct tree t;
    if (!tree_init(&t, isa, threads, type, d, r)) return;
    static const int windows[] = {0, 0, 3, 20, 300};
    size_t width = (size_t)(d.n_heads * d.head_dim);
    struct call c = {t.kv, windows[rng_below(r, 5)], rng_below(r, 3) ? 0 : 2.5f},
                chain = {store(&t, type), c.window, c.softcap};
    float *out = xmalloc((size_t)(t.n + 1) * width * 4), *one = xmalloc(width * 4),
          *next = xmalloc(width * 4);
    prefill(&t, &c);
    prefill(&t, &chain);
    run_tree(&t, &c, out);
    int deep = 0;
    for (int i = 0; i < t.n; i++) {
        run_chain(&t, &chain, i, false, one);
        CHECK(!memcmp(out + (size_t)(i + 1) * width, one, width * 4));
        if (t.depth[i] > t.depth[deep] || rng_below(r, 4) == 0) deep = i;
    }
    run_chain(&t, &chain, deep, true, one);
    run_after_moving(&t, &c, deep, next);
    CHECK(!memcmp(next, one, width * 4));
    mem_free(out), mem_free(one), mem_free(next);
    kv_free(chain.kv);
    tree_fini(&t);
}

TEST(a_node_has_the_bits_of_the_last_row_of_its_chain)
{
    static const struct dims all[] = {{9, 3, 64, 16}, {14, 2, 64, 16}, {4, 4, 32, 8},
                                      {2, 1, 128, 2}, {16, 1, 72, 16}, {3, 1, 256, 64},
                                      {6, 2, 16, 5},  {4, 1, 8, 60}};
    static const char *const isas[] = {"scalar", "avx2", "avx512"};
    static const int types[] = {-1, KV_F16, KV_INT8, KV_K8V4};
    struct rng r;
    rng_seed(&r, 91);
    for (int isa = 0; isa < 3; isa++)
        for (size_t d = 0; d < sizeof all / sizeof all[0]; d++)
            for (int type = 0; type < 4; type++)
                if (isa || (d + (size_t)type) % 4 == 0) /* doubles are slow */
                    check_one(isas[isa], 1 + type % 2 * 2, types[type], all[d], &r);
}

TEST_MAIN()
