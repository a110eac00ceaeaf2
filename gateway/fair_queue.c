/* fair_queue.c - see fair_queue.h. Tenants live in one array per queue; those with neither waiting nor working items are forgotten when
 * the place is needed. */
#include "gateway/fair_queue.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

enum { AGED_EVERY = 4, BUCKETS = 2048 };

struct fair_tenant {
    char name[FAIR_TENANT_BYTES];
    struct fair_tenant *chain; /* of its bucket */
    double weight;
    double pass[N_FAIR_CLASSES]; /* virtual time up to which it has been served */
    struct fair_item *head[N_FAIR_CLASSES], *tail[N_FAIR_CLASSES]; /* by deadline */
    int waiting[N_FAIR_CLASSES], working[N_FAIR_CLASSES];
    int active_i[N_FAIR_CLASSES]; /* place in the class' list of tenants that wait; -1 = none */
};

struct fair_queue {
    struct fair_queue_options o;
    struct fair_tenant tenants[FAIR_TENANTS_MAX];
    int n_tenants;
    struct fair_tenant *unused; /* by chain */
    struct fair_tenant *bucket[BUCKETS];
    struct fair_tenant *active[N_FAIR_CLASSES][FAIR_TENANTS_MAX];
    int n_active[N_FAIR_CLASSES];
    double now[N_FAIR_CLASSES]; /* virtual time: the pass of the last one granted */
    int waiting[N_FAIR_CLASSES], working[N_FAIR_CLASSES];
    int since_aged;
    double owed; /* to batch, in grants: what its share comes to beyond whole slots */
};

struct fair_queue *fair_queue_new(const struct fair_queue_options *o)
{
    struct fair_queue *q = xcalloc(1, sizeof *q);
    q->o = *o;
    return q;
}

void fair_queue_free(struct fair_queue *q)
{
    if (!q) return;
    for (int c = 0; c < N_FAIR_CLASSES; c++)
        ASSERT(!q->waiting[c] && !q->working[c]);
    mem_free(q);
}

/* --- tenants */
static unsigned bucket_of(struct str name)
{
    return (unsigned)(hash_bytes(0, name).lo % BUCKETS);
}

static struct fair_tenant *find_tenant(const struct fair_queue *q, struct str name)
{
    for (struct fair_tenant *t = q->bucket[bucket_of(name)]; t; t = t->chain)
        if (str_eqz(name, t->name)) return t;
    return NULL;
}

static bool is_idle(const struct fair_tenant *t)
{
    for (int c = 0; c < N_FAIR_CLASSES; c++)
        if (t->waiting[c] || t->working[c]) return false;
    return true;
}

static void forget_idle(struct fair_queue *q)
{
    for (int b = 0; b < BUCKETS; b++)
        for (struct fair_tenant **at = &q->bucket[b]; *at;) {
            struct fair_tenant *t = *at;
            if (!is_idle(t)) {
                at = &t->chain;
                continue;
            }
            *at = t->chain;
            t->name[0] = 0;
            t->chain = q->unused;
            q->unused = t;
        }
}

/* NULL: all places are taken by tenants with work. */
static struct fair_tenant *need_tenant(struct fair_queue *q, struct str name, double weight)
{
    struct fair_tenant *t = find_tenant(q, name);
    if (!t && !q->unused && q->n_tenants == FAIR_TENANTS_MAX) forget_idle(q);
    if (!t && q->unused) {
        t = q->unused;
        q->unused = t->chain;
    } else if (!t && q->n_tenants < FAIR_TENANTS_MAX) {
        t = &q->tenants[q->n_tenants++];
    } else if (!t) {
        return NULL;
    }
    if (!t->name[0]) {
        unsigned b = bucket_of(name);
        ASSERT(name.n && name.n < FAIR_TENANT_BYTES);
        *t = (struct fair_tenant){.chain = q->bucket[b], .active_i = {-1, -1}};
        memcpy(t->name, name.p, name.n);
        q->bucket[b] = t;
    }
    t->weight = weight;
    return t;
}

/* A tenant without work in the class comes back level with the one furthest behind of those with work. Not at the pass last granted, which
 * holds estimates of running work that are yet to be corrected; that one counts only when nobody has work. */
static void come_back(const struct fair_queue *q, struct fair_tenant *t, enum fair_class c)
{
    double least = q->now[c];
    bool any = false;
    if (t->waiting[c] || t->working[c]) return;
    for (int i = 0; i < q->n_tenants; i++) {
        const struct fair_tenant *o = &q->tenants[i];
        if (!o->waiting[c] && !o->working[c]) continue;
        if (!any || o->pass[c] < least) least = o->pass[c];
        any = true;
    }
    if (t->pass[c] < least) t->pass[c] = least;
}

static void activate(struct fair_queue *q, struct fair_tenant *t, enum fair_class c)
{
    if (t->active_i[c] >= 0) return;
    t->active_i[c] = q->n_active[c];
    q->active[c][q->n_active[c]++] = t;
}

static void deactivate(struct fair_queue *q, struct fair_tenant *t, enum fair_class c)
{
    struct fair_tenant *last = q->active[c][--q->n_active[c]];
    q->active[c][t->active_i[c]] = last;
    last->active_i[c] = t->active_i[c];
    t->active_i[c] = -1;
}

/* --- items */
static void link_item(struct fair_queue *q, struct fair_item *i)
{
    struct fair_tenant *t = i->tenant;
    enum fair_class c = i->class;
    struct fair_item *after = t->tail[c]; /* deadlines mostly come in order */
    while (after && after->deadline_ms > i->deadline_ms)
        after = after->prev;
    i->prev = after;
    i->next = after ? after->next : t->head[c];
    *(i->next ? &i->next->prev : &t->tail[c]) = i;
    *(after ? &after->next : &t->head[c]) = i;
    i->waiting = true;
    t->waiting[c]++;
    q->waiting[c]++;
    activate(q, t, c);
}

static void unlink_item(struct fair_queue *q, struct fair_item *i)
{
    struct fair_tenant *t = i->tenant;
    enum fair_class c = i->class;
    *(i->prev ? &i->prev->next : &t->head[c]) = i->next;
    *(i->next ? &i->next->prev : &t->tail[c]) = i->prev;
    i->prev = i->next = NULL;
    i->waiting = false;
    t->waiting[c]--;
    q->waiting[c]--;
    if (!t->waiting[c]) deactivate(q, t, c);
}

static int tenant_waiting(const struct fair_tenant *t)
{
    return t->waiting[FAIR_ONLINE] + t->waiting[FAIR_BATCH];
}

/* The tenant that has most waiting for its weight. */
static struct fair_tenant *fullest(const struct fair_queue *q)
{
    struct fair_tenant *most = NULL;
    for (int c = 0; c < N_FAIR_CLASSES; c++)
        for (int i = 0; i < q->n_active[c]; i++) {
            struct fair_tenant *t = q->active[c][i];
            if (!most || tenant_waiting(t) / t->weight > tenant_waiting(most) / most->weight)
                most = t;
        }
    return most;
}

enum err fair_queue_put(struct fair_queue *q, struct fair_item *i, struct str tenant, double weight,
                        struct fair_item **displaced)
{
    *displaced = NULL;
    ASSERT(!i->waiting && !i->tenant && i->cost > 0 && weight > 0);
    struct fair_tenant *t = need_tenant(q, tenant, weight);
    if (!t) return ERR_FULL;
    if (q->waiting[FAIR_ONLINE] + q->waiting[FAIR_BATCH] >= q->o.items_max) {
        struct fair_tenant *most = fullest(q);
        if (!most || most == t ||
            (tenant_waiting(t) + 1) / t->weight >= tenant_waiting(most) / most->weight)
            return ERR_FULL;
        struct fair_item *last =
            most->tail[FAIR_BATCH] ? most->tail[FAIR_BATCH] : most->tail[FAIR_ONLINE];
        fair_queue_remove(q, last);
        *displaced = last;
    }
    come_back(q, t, i->class);
    i->tenant = t;
    link_item(q, i);
    return OK;
}

void fair_queue_remove(struct fair_queue *q, struct fair_item *i)
{
    if (!i->waiting) return;
    unlink_item(q, i);
    i->tenant = NULL;
}

/* --- grants */
static void start_work(struct fair_queue *q, struct fair_item *i)
{
    struct fair_tenant *t = i->tenant;
    enum fair_class c = i->class;
    q->now[c] = t->pass[c];
    t->pass[c] += i->cost / t->weight;
    t->working[c]++;
    q->working[c]++;
}

static struct fair_item *best_of(const struct fair_queue *q, enum fair_class c)
{
    struct fair_tenant *best = NULL;
    for (int i = 0; i < q->n_active[c]; i++) {
        struct fair_tenant *t = q->active[c][i];
        if (!best || t->pass[c] < best->pass[c]) best = t;
    }
    return best ? best->head[c] : NULL;
}

/* The oldest batch item, if it is old enough to be served among the online ones. */
static struct fair_item *aged(const struct fair_queue *q, uint64_t now_ms)
{
    struct fair_item *oldest = NULL;
    if (!q->o.batch_age_ms) return NULL;
    for (int i = 0; i < q->n_active[FAIR_BATCH]; i++) {
        struct fair_item *head = q->active[FAIR_BATCH][i]->head[FAIR_BATCH];
        if (!oldest || head->arrived_ms < oldest->arrived_ms) oldest = head;
    }
    return oldest && now_ms >= oldest->arrived_ms + q->o.batch_age_ms ? oldest : NULL;
}

static int share_of(int slots, double share)
{
    int n = (int)(slots * share + 1e-9);
    return n ? n : share > 0;
}

/* May another item of the class start, the others' wishes aside? */
static bool has_room(const struct fair_queue *q, enum fair_class c, int slots)
{
    if (!slots) return true;
    if (q->working[FAIR_ONLINE] + q->working[FAIR_BATCH] >= slots) return false;
    int most = share_of(slots, q->o.batch_most), least = share_of(slots, q->o.batch_share);
    return c == FAIR_ONLINE || q->working[FAIR_BATCH] < (most > least ? most : least);
}

/* Whole slots of its share are batch's whenever it has work; of what remains, all of it with few slots, it gets as many grants as come to
 * the same part. Nothing is saved up while it has no work, and never more than one grant. Asked once a grant. */
static bool is_owed(struct fair_queue *q, int slots, bool may_start)
{
    double due = slots * q->o.batch_share;
    int whole = (int)(due + 1e-9);
    q->owed += slots ? (due - whole) / slots : q->o.batch_share;
    if (q->owed > 1) q->owed = 1;
    if (!may_start) return false;
    if (q->working[FAIR_BATCH] < whole) return true;
    if (q->owed < 1 - 1e-9) return false;
    q->owed -= 1;
    return true;
}

struct fair_item *fair_queue_next(struct fair_queue *q, int slots, uint64_t now_ms)
{
    struct fair_item *online = has_room(q, FAIR_ONLINE, slots) ? best_of(q, FAIR_ONLINE) : NULL;
    struct fair_item *batch = has_room(q, FAIR_BATCH, slots) ? best_of(q, FAIR_BATCH) : NULL;
    bool owed = online && q->waiting[FAIR_BATCH] && is_owed(q, slots, batch != NULL);
    struct fair_item *i = owed || !online ? batch : online;
    if (i && i == online && batch && ++q->since_aged >= AGED_EVERY) {
        struct fair_item *old = aged(q, now_ms);
        if (old) i = old;
        q->since_aged = 0;
    }
    if (!i) return NULL;
    struct fair_tenant *t = i->tenant;
    unlink_item(q, i);
    i->tenant = t;
    start_work(q, i);
    return i;
}

bool fair_queue_pass(struct fair_queue *q, struct fair_item *i, struct str tenant, double weight,
                     int slots)
{
    bool must_wait = q->waiting[i->class] || !has_room(q, i->class, slots);
    struct fair_tenant *t = must_wait ? NULL : need_tenant(q, tenant, weight);
    if (!t) return false;
    come_back(q, t, i->class);
    i->tenant = t;
    start_work(q, i);
    return true;
}

void fair_queue_done(struct fair_queue *q, struct fair_item *i, double cost)
{
    struct fair_tenant *t = i->tenant;
    ASSERT(t && !i->waiting && t->working[i->class] > 0);
    if (cost >= 0) t->pass[i->class] += (cost - i->cost) / t->weight;
    t->working[i->class]--;
    q->working[i->class]--;
    i->tenant = NULL;
}

/* --- deadlines, counts */
struct fair_item *fair_queue_expired(struct fair_queue *q, uint64_t now_ms)
{
    for (int c = 0; c < N_FAIR_CLASSES; c++)
        for (int k = 0; k < q->n_active[c]; k++) {
            struct fair_item *i = q->active[c][k]->head[c];
            if (i->deadline_ms > now_ms) continue;
            fair_queue_remove(q, i);
            return i;
        }
    return NULL;
}

uint64_t fair_queue_deadline(const struct fair_queue *q)
{
    uint64_t first = UINT64_MAX;
    for (int c = 0; c < N_FAIR_CLASSES; c++)
        for (int k = 0; k < q->n_active[c]; k++)
            if (q->active[c][k]->head[c]->deadline_ms < first)
                first = q->active[c][k]->head[c]->deadline_ms;
    return first;
}

int fair_queue_waiting(const struct fair_queue *q, enum fair_class c)
{
    return q->waiting[c];
}
int fair_queue_working(const struct fair_queue *q, enum fair_class c)
{
    return q->working[c];
}

double fair_queue_ahead(const struct fair_queue *q, enum fair_class c, struct str tenant,
                        double weight)
{
    const struct fair_tenant *me = find_tenant(q, tenant);
    double mine = me ? me->waiting[c] : 0, ahead = mine;
    for (int i = 0; i < q->n_active[c]; i++) {
        const struct fair_tenant *t = q->active[c][i];
        if (t == me) continue;
        double theirs = (mine + 1) * t->weight / weight; /* served while mine are */
        ahead += t->waiting[c] < theirs ? t->waiting[c] : theirs;
    }
    return ahead;
}
