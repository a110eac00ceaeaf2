/* metrics.h - counters, gauges, histograms, written in Prometheus text format 0.0.4. Every metric stands in one table of its
 * room (METRIC rows) from which registration and docs come. Threading: add/set/observe from any thread (atomics); write from any. */
#ifndef DEJA_BASE_METRICS_H
#define DEJA_BASE_METRICS_H
#include "base/buf.h"

struct metrics; /* a registry */
struct metric;  /* one series */
enum metric_kind { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

struct metrics *metrics_new(void);
void metrics_free(struct metrics *m);
/* The series of this name and label set, made on first use and kept until metrics_free. labels: "" or `class="online",tier="l1"`
 * (already escaped). At most 4096 series: beyond, a shared overflow series is returned. Never NULL. ASSERTs that a name keeps its kind.
 * Histograms use 1-2-5 steps from bucket_first over n_buckets (<= 24); other kinds pass 0, 0. */
struct metric *metrics_get(struct metrics *m, enum metric_kind kind, const char *name,
                           const char *labels, const char *help, double bucket_first,
                           int n_buckets);
void metric_add(struct metric *x, double v); /* counter: v >= 0 */
void metric_set(struct metric *x, double v); /* gauge */
void metric_observe(struct metric *x, double v);
double metric_value(const struct metric *x); /* counter/gauge value, histogram count */
void metrics_write(struct metrics *m, struct buf *out);
/* Appends key="value" with the value escaped (backslash, quote, newline; invalid UTF-8 becomes U+FFFD), after a comma when out is not
 * empty. */
void metrics_label(struct buf *out, const char *key, struct str value);

#endif
