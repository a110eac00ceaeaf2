/* attend_plan.c - see attend_plan.h. Units are sorted by their tables, so that those with a common beginning lie side by side and the
 * longest beginning of a range is that of its first and last. A unit that fills a large tile alone is not shared. */
#include "engine/backend/cuda/attend_plan.h"

#include <stdlib.h>
#include <string.h>

static size_t place(size_t *at, size_t bytes)
{
    size_t here = *at;
    *at += (bytes + 15) / 16 * 16;
    return here;
}

void attend_plan_lay(struct attend_plan *p, void *memory, int n_rows, int group, int many)
{
    int of_row = (group + many - 1) / many, vectors = n_rows * group;
    char *base = memory;
    size_t at = 0;
    *p = (struct attend_plan){.few_max = n_rows};
    p->shared_max = n_rows * of_row / 2 + 1;
    p->many_max = p->shared_max + (group > ATTEND_VECTORS
                                       ? n_rows * of_row
                                       : vectors / (ATTEND_VECTORS + 1) + vectors / (many / 2) + 2);
    p->members_max = 2 * n_rows;
    size_t few = place(&at, (size_t)p->few_max * sizeof *p->few),
           many_at = place(&at, (size_t)p->many_max * sizeof *p->many),
           members = place(&at, (size_t)p->members_max * sizeof *p->members),
           n_splits = place(&at, (size_t)n_rows * sizeof *p->n_splits);
    p->device_bytes = at;
    size_t units = place(&at, (size_t)n_rows * sizeof *p->units);
    p->bytes = at;
    if (!base) return;
    p->few = (void *)(base + few);
    p->many = (void *)(base + many_at);
    p->members = (void *)(base + members);
    p->n_splits = (void *)(base + n_splits);
    p->units = (void *)(base + units);
}

static bool is_node(const struct attend_rows *r, int row)
{
    return r->tree_mask && r->tree_mask[row];
}

/* Where a row begins to look, rounded down to a whole split: depends on nothing else in the batch. */
static int begin_of(const struct attend_rows *r, int row)
{
    int first = r->window && r->pos[row] + 1 > r->window ? r->pos[row] + 1 - r->window : 0;
    return first / ATTEND_SPLIT * ATTEND_SPLIT;
}

static int cut_units(struct attend_plan *p, const struct attend_rows *r)
{
    int n = 0;
    for (int row = 0, rows; row < r->n_rows; row += rows) {
        int pos = r->pos[row], from = begin_of(r, row);
        for (rows = 1; row + rows < r->n_rows && !is_node(r, row); rows++) {
            int next = row + rows;
            if (r->seq[next] != r->seq[row] || r->pos[next] != pos + rows || is_node(r, next) ||
                r->pos[next] / ATTEND_SPLIT != pos / ATTEND_SPLIT || begin_of(r, next) != from)
                break;
        }
        int to = pos + rows, splits = (to - from + ATTEND_SPLIT - 1) / ATTEND_SPLIT,
            whole = splits - 1;
        if (is_node(r, row) && r->tree_from[row] / ATTEND_SPLIT < whole)
            whole =
                r->tree_from[row] / ATTEND_SPLIT; /* of those that share, which look from 0 on */
        p->units[n++] = (struct attend_unit){r->block_table ? r->block_table[r->seq[row]] : NULL,
                                             row,
                                             rows,
                                             r->seq[row],
                                             from,
                                             to,
                                             0,
                                             splits,
                                             ATTEND_SPLIT / r->block_tokens,
                                             whole};
        for (int i = 0; i < rows; i++)
            p->n_splits[row + i] = splits;
        if (splits > p->splits_max) p->splits_max = splits;
    }
    return n;
}

/* Tiles of rows row.. (or places in members) over splits first..first+n. */
static void add_tiles(struct attend_plan *p, const struct attend_rows *r, struct attend_tile t,
                      int n_rows)
{
    bool many = t.listed || n_rows * r->group > ATTEND_VECTORS;
    int room = many ? r->many : ATTEND_VECTORS,
        rows_of_tile = r->group >= room ? 1 : room / r->group;
    for (int row = 0; row < n_rows; row += rows_of_tile) {
        int rows = n_rows - row < rows_of_tile ? n_rows - row : rows_of_tile;
        for (int v = 0; v < rows * r->group; v += room) {
            struct attend_tile one = t;
            one.row += row;
            one.vector = v;
            one.n_vectors = rows * r->group - v < room ? rows * r->group - v : room;
            if (many)
                p->many[p->n_many++] = one;
            else
                p->few[p->n_few++] = one;
        }
    }
}

/* What a unit has not shared. */
static void add_rest(struct attend_plan *p, const struct attend_rows *r,
                     const struct attend_unit *u, int first_split)
{
    struct attend_tile t = {.row = r->first_row + u->row,
                            .seq = u->seq,
                            .from = u->from + first_split * ATTEND_SPLIT,
                            .to = u->to,
                            .first_split = first_split,
                            .n_splits = u->n_splits - first_split};
    add_tiles(p, r, t, u->n_rows);
}

/* Splits both begin with, where the first n are known to be the same. */
static int shared_splits(const struct attend_unit *a, const struct attend_unit *b, int n)
{
    int most = a->whole < b->whole ? a->whole : b->whole;
    size_t bytes = (size_t)a->split_blocks * sizeof *a->table;
    while (n < most && (a->table == b->table || !memcmp(a->table + n * a->split_blocks,
                                                        b->table + n * a->split_blocks, bytes)))
        n++;
    return n;
}

static int by_table(const void *x, const void *y)
{
    const struct attend_unit *a = x, *b = y;
    int n = shared_splits(a, b, 0), wa = a->whole, wb = b->whole;
    if (n == wa || n == wb) return wa != wb ? (wa > wb) - (wa < wb) : a->row - b->row;
    return memcmp(a->table + n * a->split_blocks, b->table + n * a->split_blocks,
                  (size_t)a->split_blocks * sizeof *a->table);
}

/* Units lo..hi-1 look at splits from..to-1 together; false: no room is left to say so. */
static bool add_shared(struct attend_plan *p, const struct attend_rows *r, int lo, int hi, int from,
                       int to)
{
    int rows = 0, group_tiles = (r->group + r->many - 1) / r->many,
        rows_of_tile = r->group >= r->many ? 1 : r->many / r->group;
    for (int i = lo; i < hi; i++)
        rows += p->units[i].n_rows;
    int tiles = (rows + rows_of_tile - 1) / rows_of_tile * group_tiles;
    if (p->n_members + rows > p->members_max || tiles > p->shared_max) return false;
    p->shared_max -= tiles;
    struct attend_tile t = {.row = p->n_members,
                            .seq = p->units[lo].seq,
                            .from = from * ATTEND_SPLIT,
                            .to = to * ATTEND_SPLIT,
                            .first_split = from,
                            .n_splits = to - from,
                            .listed = true};
    for (int i = lo; i < hi; i++)
        for (int k = 0; k < p->units[i].n_rows; k++)
            p->members[p->n_members++] = r->first_row + p->units[i].row + k;
    add_tiles(p, r, t, rows);
    return true;
}

/* Units lo..hi-1, sorted, which have shared their first `done` splits. */
static void share(struct attend_plan *p, const struct attend_rows *r, int lo, int hi, int done)
{
    if (hi - lo > 1) {
        int to = shared_splits(&p->units[lo], &p->units[hi - 1], done); /* all share this */
        if (to > done && add_shared(p, r, lo, hi, done, to)) done = to;
    }
    for (int i = lo, end; i < hi; i = end) {
        const struct attend_unit *u = &p->units[i];
        for (end = i + 1; end < hi && shared_splits(u, &p->units[end], done) > done; end++) {
        }
        if (end - i > 1 && end - i < hi - lo)
            share(p, r, i, end, done);
        else
            for (int k = i; k < end; k++)
                add_rest(p, r, &p->units[k], done);
    }
}

void attend_plan_make(struct attend_plan *p, const struct attend_rows *r)
{
    p->n_few = p->n_many = p->n_members = 0;
    p->splits_max = 1;
    int n = cut_units(p, r), n_shareable = 0;
    bool fits = r->share && r->block_table && ATTEND_SPLIT % r->block_tokens == 0;
    for (int i = 0; i < n; i++) {
        struct attend_unit u = p->units[i];
        if (fits && u.from == 0 && u.whole > 0 && u.n_rows * r->group < r->many) {
            p->units[n_shareable++] = u;
            continue;
        }
        add_rest(p, r, &u, 0);
    }
    qsort(p->units, (size_t)n_shareable, sizeof *p->units, by_table);
    share(p, r, 0, n_shareable, 0);
}
