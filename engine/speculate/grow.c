/* grow.c - see grow.h. */
#include "engine/speculate/grow.h"

#include "base/err.h"

void chances_init(struct chances *c)
{
    static const float first[DRAFT_SURE_MAX] = {0.3f, 0.45f, 0.6f, 0.75f, 0.9f},
                       rank[DRAFT_RANKS] = {1, 0.3f, 0.15f};
    for (int s = 0; s < DRAFT_SOURCES; s++)
        for (int k = 0; k < DRAFT_SURE_MAX; k++)
            for (int r = 0; r < DRAFT_RANKS; r++)
                c->of[s][k][r] = (struct chance){first[k] * rank[r], 0};
}

int grow_node(struct grown *g, const struct chances *c, int at, int32_t token,
              enum draft_source source, int sure, int ranks)
{
    int rank = 0;
    double left = at < 0 ? 1 : g->node[at].right;
    ASSERT(at >= DRAFT_ROOT && at < g->n && sure >= 0 && sure < DRAFT_SURE_MAX);
    for (int i = at < 0 ? 0 : at + 1; i < g->n; i++) {
        if (g->node[i].parent != at) continue;
        if (g->node[i].token == token) return i;
        left -= g->node[i].right;
        rank++;
    }
    if (rank >= ranks || rank >= DRAFT_RANKS || g->n == GROW_NODES_MAX) return -2;
    double right = c->of[source][sure][rank].p;
    if (at >= 0) right *= g->node[at].right;
    if (right > left) right = left > 0 ? left : 0;
    g->node[g->n] = (struct grown_node){token,         (int8_t)at,    (uint8_t)source,
                                        (uint8_t)sure, (uint8_t)rank, right};
    return g->n++;
}

void grow_sort(struct grown *g)
{
    struct grown_node sorted[GROW_NODES_MAX];
    int8_t order[GROW_NODES_MAX], place[GROW_NODES_MAX];
    for (int i = 0; i < g->n; i++) { /* stable, so a parent that is as likely stays before */
        int k = i;
        for (; k > 0 && g->node[order[k - 1]].right < g->node[i].right; k--)
            order[k] = order[k - 1];
        order[k] = (int8_t)i;
    }
    for (int i = 0; i < g->n; i++)
        place[order[i]] = (int8_t)i;
    for (int i = 0; i < g->n; i++) {
        sorted[i] = g->node[order[i]];
        if (sorted[i].parent >= 0) sorted[i].parent = place[sorted[i].parent];
    }
    for (int i = 0; i < g->n; i++)
        g->node[i] = sorted[i];
}

void grow_learn(const struct grown *g, struct chances *c, const int32_t *said, int n,
                double share_min)
{
    for (int i = 0, at = DRAFT_ROOT; i < n; i++) {
        int next = -2;
        for (int k = at < 0 ? 0 : at + 1; k < g->n; k++) {
            const struct grown_node *x = &g->node[k];
            if (x->parent != at) continue;
            struct chance *chance = &c->of[x->source][x->sure][x->rank];
            bool right = x->token == said[i];
            double share = 1.0 / (chance->n + 4);
            if (share < share_min)
                share = share_min;
            else
                chance->n++;
            chance->p += (float)(share * (right - (double)chance->p));
            if (right) next = k;
        }
        if (next < 0) return;
        at = next;
    }
}
