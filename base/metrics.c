/* metrics.c - series live in a hash table under one lock (look-up and writing only); their values are atomics, so that counting costs
 * no lock. A family (one name) is written in one block however its series were made. Text format: Prometheus exposition 0.0.4. */
#include "base/metrics.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"

enum { SERIES_MAX = 4096, SLOTS = 2 * SERIES_MAX, BUCKETS_MAX = 24, LABELS_BYTES_MAX = 1024 };

struct family {
    char *name, *help;
    enum metric_kind kind;
    int n_buckets;
    double bounds[BUCKETS_MAX];
    struct metric *first, *last;
    struct family *next;
};

struct metric {
    struct family *family;
    char *labels;
    struct metric *next;    /* of the same family */
    _Atomic uint64_t value; /* bits of a double: the value, of a histogram the sum */
    _Atomic uint64_t buckets[BUCKETS_MAX + 1]; /* counts, not cumulative; the last is +Inf */
};

struct metrics {
    pthread_mutex_t lock;
    struct metric *slots[SLOTS]; /* open addressing by hash of name and labels */
    int n_series;
    uint64_t n_refused;
    struct family *first, *last;
    struct family overflow_families[3];
    struct metric overflow[3]; /* by kind; never written */
};

struct metrics *metrics_new(void)
{
    struct metrics *m = xcalloc(1, sizeof *m);
    pthread_mutex_init(&m->lock, NULL);
    for (int i = 0; i < 3; i++) {
        m->overflow_families[i].kind = (enum metric_kind)i;
        m->overflow[i].family = &m->overflow_families[i];
    }
    return m;
}

void metrics_free(struct metrics *m)
{
    if (!m) return;
    for (int i = 0; i < SLOTS; i++) {
        if (m->slots[i]) mem_free(m->slots[i]->labels);
        mem_free(m->slots[i]);
    }
    for (struct family *f = m->first, *next; f; f = next) {
        next = f->next;
        mem_free(f->name);
        mem_free(f->help);
        mem_free(f);
    }
    pthread_mutex_destroy(&m->lock);
    mem_free(m);
}

/* --- finding and making */
static bool name_fits(const char *name)
{
    bool ok = *name && !(*name >= '0' && *name <= '9');
    for (; ok && *name; name++)
        ok = (*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z') ||
             (*name >= '0' && *name <= '9') || *name == '_' || *name == ':';
    return ok;
}

static struct family *find_family(struct metrics *m, const char *name)
{
    struct family *f = m->first;
    while (f && strcmp(f->name, name))
        f = f->next;
    return f;
}

static struct family *make_family(struct metrics *m, enum metric_kind kind, const char *name,
                                  const char *help)
{
    struct family *f = xcalloc(1, sizeof *f);
    f->name = xstrdup(name);
    f->help = xstrdup(help);
    f->kind = kind;
    if (m->last)
        m->last->next = f;
    else
        m->first = f;
    m->last = f;
    return f;
}

static void set_bounds(struct family *f, double first, int n)
{
    static const double steps[] = {1, 2, 5};
    ASSERT(n >= 1 && n <= BUCKETS_MAX && first > 0);
    double decade = 1;
    f->n_buckets = n;
    for (int i = 0; i < n; i++) {
        f->bounds[i] = first * steps[i % 3] * decade;
        if (i % 3 == 2) decade *= 10;
    }
}

static size_t slot_of(struct metrics *m, const char *name, const char *labels)
{
    struct hash128 h = hash_bytes(hash_bytes(0, str_of(labels)).lo, str_of(name));
    size_t i = h.lo % SLOTS;
    while (m->slots[i] &&
           (strcmp(m->slots[i]->labels, labels) || strcmp(m->slots[i]->family->name, name)))
        i = (i + 1) % SLOTS;
    return i;
}

static struct metric *make_series(struct metrics *m, struct family *f, size_t slot,
                                  const char *labels)
{
    struct metric *x = xcalloc(1, sizeof *x);
    x->family = f;
    x->labels = xstrdup(labels);
    if (f->last)
        f->last->next = x;
    else
        f->first = x;
    f->last = x;
    m->slots[slot] = x;
    m->n_series++;
    return x;
}

struct metric *metrics_get(struct metrics *m, enum metric_kind kind, const char *name,
                           const char *labels, const char *help, double bucket_first, int n_buckets)
{
    ASSERT(name_fits(name));
    pthread_mutex_lock(&m->lock);
    size_t slot = slot_of(m, name, labels);
    struct metric *x = m->slots[slot];
    struct family *f = x ? x->family : find_family(m, name);
    ASSERT(!f || f->kind == kind);
    if (!x && (m->n_series >= SERIES_MAX || strlen(labels) > LABELS_BYTES_MAX)) {
        x = &m->overflow[kind];
        m->n_refused++;
    } else if (!x) {
        if (!f) {
            f = make_family(m, kind, name, help);
            if (kind == METRIC_HISTOGRAM) set_bounds(f, bucket_first, n_buckets);
        }
        x = make_series(m, f, slot, labels);
    }
    pthread_mutex_unlock(&m->lock);
    return x;
}

/* --- values */
static double from_bits(uint64_t bits)
{
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static uint64_t to_bits(double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static void add(_Atomic uint64_t *at, double v)
{
    uint64_t old = atomic_load_explicit(at, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(at, &old, to_bits(from_bits(old) + v),
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
}

void metric_add(struct metric *x, double v)
{
    ASSERT(x->family->kind != METRIC_HISTOGRAM);
    if (x->family->kind == METRIC_COUNTER && !(v >= 0))
        return; /* a counter never falls, and NaN would stick */
    add(&x->value, v);
}

void metric_set(struct metric *x, double v)
{
    ASSERT(x->family->kind == METRIC_GAUGE);
    atomic_store_explicit(&x->value, to_bits(v), memory_order_relaxed);
}

void metric_observe(struct metric *x, double v)
{
    const struct family *f = x->family;
    ASSERT(f->kind == METRIC_HISTOGRAM);
    if (isnan(v)) return;
    int i = 0;
    while (i < f->n_buckets && v > f->bounds[i])
        i++;
    atomic_fetch_add_explicit(&x->buckets[i], 1, memory_order_relaxed);
    add(&x->value, v);
}

static uint64_t observations(const struct metric *x)
{
    uint64_t n = 0;
    for (int i = 0; i <= x->family->n_buckets; i++)
        n += atomic_load_explicit(&x->buckets[i], memory_order_relaxed);
    return n;
}

double metric_value(const struct metric *x)
{
    if (x->family->kind == METRIC_HISTOGRAM) return (double)observations(x);
    return from_bits(atomic_load_explicit(&x->value, memory_order_relaxed));
}

/* --- text */
static void write_number(struct buf *out, double v)
{
    if (isnan(v))
        buf_z(out, "NaN");
    else if (isinf(v))
        buf_z(out, v > 0 ? "+Inf" : "-Inf");
    else if (v == floor(v) && fabs(v) < 0x1p53)
        buf_printf(out, "%.0f", v);
    else
        buf_printf(out, "%.15g", v);
}

static void write_sample(struct buf *out, const char *name, const char *suffix, const char *labels,
                         double v)
{
    buf_printf(out, "%s%s", name, suffix);
    if (*labels) buf_printf(out, "{%s}", labels);
    buf_char(out, ' ');
    write_number(out, v);
    buf_char(out, '\n');
}

static void write_histogram(struct buf *out, const struct metric *x)
{
    const struct family *f = x->family;
    uint64_t total = 0;
    for (int i = 0; i <= f->n_buckets; i++) {
        total += atomic_load_explicit(&x->buckets[i], memory_order_relaxed);
        buf_printf(out, "%s_bucket{%s%sle=\"", f->name, x->labels, *x->labels ? "," : "");
        if (i == f->n_buckets)
            buf_z(out, "+Inf");
        else
            buf_printf(out, "%.10g", f->bounds[i]);
        buf_printf(out, "\"} %llu\n", (unsigned long long)total);
    }
    write_sample(out, f->name, "_sum", x->labels,
                 from_bits(atomic_load_explicit(&x->value, memory_order_relaxed)));
    write_sample(out, f->name, "_count", x->labels, (double)total);
}

static void write_help(struct buf *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '\\')
            buf_z(out, "\\\\");
        else if (*text == '\n')
            buf_z(out, "\\n");
        else
            buf_char(out, *text);
    }
}

static void write_family(struct buf *out, const struct family *f)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram"};
    buf_printf(out, "# HELP %s ", f->name);
    write_help(out, f->help);
    buf_printf(out, "\n# TYPE %s %s\n", f->name, kinds[f->kind]);
    for (const struct metric *x = f->first; x; x = x->next) {
        if (f->kind == METRIC_HISTOGRAM)
            write_histogram(out, x);
        else
            write_sample(out, f->name, "", x->labels, metric_value(x));
    }
}

void metrics_write(struct metrics *m, struct buf *out)
{
    pthread_mutex_lock(&m->lock);
    for (const struct family *f = m->first; f; f = f->next)
        write_family(out, f);
    if (m->n_refused)
        buf_printf(out,
                   "# HELP deja_metrics_overflow_total Look-ups answered by a series that is not "
                   "written, since %d exist\n"
                   "# TYPE deja_metrics_overflow_total counter\ndeja_metrics_overflow_total %llu\n",
                   SERIES_MAX, (unsigned long long)m->n_refused);
    unsigned long long dropped = log_lines_dropped();
    if (dropped)
        buf_printf(
            out,
            "# HELP deja_log_lines_dropped_total Log lines that stderr had no room for\n"
            "# TYPE deja_log_lines_dropped_total counter\ndeja_log_lines_dropped_total %llu\n",
            dropped);
    pthread_mutex_unlock(&m->lock);
}

void metrics_label(struct buf *out, const char *key, struct str value)
{
    buf_printf(out, "%s%s=\"", out->n ? "," : "", key);
    for (size_t i = 0; i < value.n;) {
        uint32_t cp = 0;
        size_t n = utf8_decode(str_sub(value, i, value.n), &cp);
        if (!n || !cp)
            buf_utf8(out, 0xFFFD);
        else if (cp == '\\' || cp == '"')
            buf_printf(out, "\\%c", (char)cp);
        else if (cp == '\n')
            buf_z(out, "\\n");
        else
            buf_add(out, value.p + i, n);
        i += n ? n : 1;
    }
    buf_char(out, '"');
}
