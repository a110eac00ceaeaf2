/* Goal: counts are exact under threads, the text is what Prometheus reads, series are bounded.
 * Method: exact text for small registries; several threads on one series; more series than fit. */
#include "base/metrics.h"

#include <pthread.h>

#include "tests/check.h"

TEST(a_family_is_written_in_one_block_however_its_series_were_made)
{
    struct metrics *m = metrics_new();
    struct buf b;
    buf_init(&b, 10000);
    metric_add(metrics_get(m, METRIC_COUNTER, "a_total", "k=\"1\"", "first \\ line\nsecond", 0, 0),
               2);
    metric_set(metrics_get(m, METRIC_GAUGE, "g", "", "a gauge", 0, 0), -0.5);
    metric_add(metrics_get(m, METRIC_COUNTER, "a_total", "k=\"2\"", "ignored", 0, 0), 1.25);
    metric_add(metrics_get(m, METRIC_COUNTER, "a_total", "k=\"1\"", "", 0, 0), 1);
    metrics_write(m, &b);
    CHECK_STR(buf_view(&b), "# HELP a_total first \\\\ line\\nsecond\n# TYPE a_total "
                            "counter\na_total{k=\"1\"} 3\na_total{k=\"2\"} 1.25\n"
                            "# HELP g a gauge\n# TYPE g gauge\ng -0.5\n");
    buf_fini(&b);
    metrics_free(m);
}

TEST(a_histogram_is_cumulative_with_one_two_five_steps)
{
    struct metrics *m = metrics_new();
    struct buf b;
    buf_init(&b, 10000);
    struct metric *x = metrics_get(m, METRIC_HISTOGRAM, "h_seconds", "p=\"q\"", "times", 0.001, 4);
    metric_observe(x, 0.001);
    metric_observe(x, 0.0015);
    metric_observe(x, 0.0051);
    metric_observe(x, 99);
    metric_observe(x, NAN);
    metrics_write(m, &b);
    CHECK_STR(buf_view(&b),
              "# HELP h_seconds times\n# TYPE h_seconds "
              "histogram\nh_seconds_bucket{p=\"q\",le=\"0.001\"} "
              "1\nh_seconds_bucket{p=\"q\",le=\"0.002\"} 2\n"
              "h_seconds_bucket{p=\"q\",le=\"0.005\"} 2\nh_seconds_bucket{p=\"q\",le=\"0.01\"} "
              "3\nh_seconds_bucket{p=\"q\",le=\"+Inf\"} 4\n"
              "h_seconds_sum{p=\"q\"} 99.0076\nh_seconds_count{p=\"q\"} 4\n");
    CHECK_NEAR(metric_value(x), 4, 0);
    buf_fini(&b);
    metrics_free(m);
}

TEST(label_values_are_escaped)
{
    struct buf b;
    buf_init(&b, 1000);
    metrics_label(&b, "a", STR("x\"\\\n\xe4\xbd\xa0\xff\0y"));
    metrics_label(&b, "b", STR(""));
    CHECK_STR(buf_view(&b), "a=\"x\\\"\\\\\\n\xe4\xbd\xa0\xef\xbf\xbd\xef\xbf\xbdy\",b=\"\"");
    buf_fini(&b);
}

TEST(a_counter_never_falls)
{
    struct metrics *m = metrics_new();
    struct metric *x = metrics_get(m, METRIC_COUNTER, "a_total", "", "", 0, 0);
    metric_add(x, 2);
    metric_add(x, -1);
    metric_add(x, NAN);
    CHECK_NEAR(metric_value(x), 2, 0);
    metrics_free(m);
}

enum { THREADS = 4, ROUNDS = 20000 };
static void *count(void *arg)
{
    struct metrics *m = arg;
    struct metric *gauge = metrics_get(m, METRIC_GAUGE, "g", "", "", 0, 0);
    struct metric *histogram = metrics_get(m, METRIC_HISTOGRAM, "h", "", "", 1, 3);
    for (int i = 0; i < ROUNDS; i++) {
        metric_add(metrics_get(m, METRIC_COUNTER, "a_total", "", "", 0, 0), 1);
        metric_add(gauge, i % 2 ? 1 : -1);
        metric_observe(histogram, i % 10);
    }
    return NULL;
}

TEST(nothing_is_lost_between_threads)
{
    struct metrics *m = metrics_new();
    pthread_t t[THREADS];
    for (int i = 0; i < THREADS; i++)
        REQUIRE(!pthread_create(&t[i], NULL, count, m));
    struct buf b;
    buf_init(&b, 100000);
    metrics_write(m, &b);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    CHECK_NEAR(metric_value(metrics_get(m, METRIC_COUNTER, "a_total", "", "", 0, 0)),
               THREADS * ROUNDS, 0);
    CHECK_NEAR(metric_value(metrics_get(m, METRIC_GAUGE, "g", "", "", 0, 0)), 0, 0);
    CHECK_NEAR(metric_value(metrics_get(m, METRIC_HISTOGRAM, "h", "", "", 1, 3)), THREADS * ROUNDS,
               0);
    buf_fini(&b);
    metrics_free(m);
}

TEST(series_beyond_the_bound_share_one_that_is_not_written)
{
    struct metrics *m = metrics_new();
    char labels[2048];
    for (int i = 0; i < 5000; i++) {
        snprintf(labels, sizeof labels, "tenant=\"%d\"", i);
        metric_add(metrics_get(m, METRIC_COUNTER, "a_total", labels, "", 0, 0), 1);
    }
    metric_observe(metrics_get(m, METRIC_HISTOGRAM, "late", "", "", 1, 3), 1); /* must not crash */
    metric_set(metrics_get(m, METRIC_GAUGE, "late_gauge", "", "", 0, 0), 1);
    struct buf b;
    buf_init(&b, 1 << 20);
    metrics_write(m, &b);
    CHECK(str_find(buf_view(&b), STR("a_total{tenant=\"4095\"} 1\n")) > 0);
    CHECK(str_find(buf_view(&b), STR("4096\"}")) < 0);
    CHECK(str_find(buf_view(&b), STR("deja_metrics_overflow_total 906\n")) > 0);
    CHECK(str_find(buf_view(&b), STR("late")) < 0);
    buf_fini(&b);
    metrics_free(m);
}

TEST_MAIN()
