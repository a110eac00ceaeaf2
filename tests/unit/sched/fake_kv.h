/* fake_kv.h - a pretended model for scheduler tests. A position's "key" is its token and position; the "logits" of a row are a hash
 * over what is found through the block table, so a wrong, stale or unwritten block changes every later token. Stores a whole batch
 * before it reads, as the real model does. */
#ifndef DEJA_TESTS_FAKE_KV_H
#define DEJA_TESTS_FAKE_KV_H
#include "base/mem.h"
#include "engine/sched/batch.h"
#include "tests/check.h"

struct fake_cell {
    int32_t token, pos;
};
struct fake_kv {
    int n_blocks, bt, vocab;
    struct fake_cell *cells; /* [n_blocks][bt] */
    struct fake_cell *host;  /* [n_host][bt] */
};

static inline struct fake_cell *fake_cells_new(int n_blocks, int bt)
{
    size_t n = (size_t)n_blocks * (size_t)bt;
    struct fake_cell *cells = xcalloc(n + 1, sizeof *cells);
    memset(cells, 0xff, n * sizeof *cells);
    return cells;
}

static inline struct fake_kv fake_kv_new(int n_blocks, int n_host, int bt, int vocab)
{
    return (struct fake_kv){n_blocks, bt, vocab, fake_cells_new(n_blocks, bt),
                            fake_cells_new(n_host, bt)};
}

static inline void fake_kv_fini(struct fake_kv *k)
{
    mem_free(k->cells);
    mem_free(k->host);
}

static inline uint64_t fake_mix(uint64_t h, int32_t token, int32_t pos)
{
    h ^= (uint64_t)(uint32_t)token * 0x9E3779B97F4A7C15u + (uint64_t)(uint32_t)pos;
    h *= 0xD6E8FEB86659FD93u;
    return h ^ h >> 29;
}

static inline int32_t fake_next(uint64_t h, int vocab)
{
    return (int32_t)((h >> 7) % (uint64_t)vocab);
}

/* What the sequence would say alone. choice stands for a sampler's seed. */
static inline int32_t fake_alone(const int32_t *tokens, int n, int vocab, int choice)
{
    uint64_t h = 1;
    for (int i = 0; i < n; i++)
        h = fake_mix(h, tokens[i], i);
    return fake_next(fake_mix(h, choice, -1), vocab);
}

static inline void fake_moves(struct fake_kv *k, const struct sched_plan *plan)
{
    for (int i = 0; i < plan->n_moves; i++) {
        const struct sched_move *m = &plan->moves[i];
        struct fake_cell *dst = m->kind == SCHED_SPILL ? k->host : k->cells;
        const struct fake_cell *src = m->kind == SCHED_LOAD ? k->host : k->cells;
        memcpy(dst + m->dst * k->bt, src + m->src * k->bt, (size_t)m->n_tokens * sizeof *dst);
    }
}

static inline struct fake_cell *fake_cell_at(const struct fake_kv *k, const kv_block *table,
                                             int place)
{
    return &k->cells[table[place / k->bt] * k->bt + place % k->bt];
}

/* hash[n_out]: hash of everything row out_row attends to. */
static inline void fake_forward(struct fake_kv *k, const struct batch *b, uint64_t *hash)
{
    for (int i = 0; i < b->n_rows; i++)
        *fake_cell_at(k, b->block_table[b->seq[i]], b->has_tree ? b->slot[i] : b->pos[i]) =
            (struct fake_cell){b->token[i], b->pos[i]};
    for (int o = 0; o < b->n_out; o++) {
        int row = b->out_row[o], end = b->has_tree ? b->tree_from[row] : b->pos[row] + 1;
        uint64_t h = 1, mask = b->has_tree ? b->tree_mask[row] : 0;
        for (int p = 0; p < end || mask; p++) {
            if (p >= end && !(mask >> (p - end) & 1)) continue;
            if (p >= end) mask &= ~(UINT64_C(1) << (p - end));
            const struct fake_cell *c = fake_cell_at(k, b->block_table[b->seq[row]], p);
            h = fake_mix(h, c->token, c->pos);
        }
        hash[o] = h;
    }
}

/* The n tokens said of seq's draft go to their positions, as the engine has it done before sched_accept. */
static inline void fake_keep_path(struct fake_kv *k, const struct sched *s, int seq,
                                  const int32_t *said, int n)
{
    const kv_block *table = sched_table(s, seq);
    int base = sched_n_tokens(s, seq);
    for (int i = 0, node = SCHED_DRAFT_ROOT; i < n; i++) {
        node = sched_draft_child(s, seq, node, said[i]);
        REQUIRE(node >= 0);
        *fake_cell_at(k, table, base + i) = *fake_cell_at(k, table, base + node);
    }
}

#endif
