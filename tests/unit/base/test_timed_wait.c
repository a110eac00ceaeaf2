/* test_timed_wait.c - goal: a wait ends at its time of the monotonic clock, not before, and at once for a time that has passed. */
#include "base/timed_wait.h"

#include "base/clock.h"
#include "tests/check.h"

TEST(a_wait_that_nobody_ends_lasts_until_its_time_and_no_less)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t c;
    timed_cond_init(&c);
    pthread_mutex_lock(&lock);
    const uint64_t waits_us[] = {0, 1, 999999 - clock_us() % 1000000, 20000};
    for (size_t i = 0; i < sizeof waits_us / sizeof *waits_us; i++) {
        uint64_t until = clock_us() + waits_us[i];
        while (timed_wait(&c, &lock, until))
            ;
        CHECK(clock_us() >= until);
    }
    CHECK(!timed_wait(&c, &lock, 1)); /* long past */
    pthread_mutex_unlock(&lock);
    pthread_cond_destroy(&c);
    pthread_mutex_destroy(&lock);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond;
static bool said;

static void *say(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&lock);
    said = true;
    pthread_cond_signal(&cond);
    pthread_mutex_unlock(&lock);
    return NULL;
}

TEST(who_is_woken_before_its_time_is_told_so)
{
    pthread_t other;
    uint64_t until = clock_us() + 60000000;
    bool in_time = true;
    timed_cond_init(&cond);
    pthread_mutex_lock(&lock);
    REQUIRE(!pthread_create(&other, NULL, say, NULL));
    while (!said && in_time)
        in_time = timed_wait(&cond, &lock, until);
    pthread_mutex_unlock(&lock);
    CHECK(said && in_time);
    pthread_join(other, NULL);
    pthread_cond_destroy(&cond);
}

TEST_MAIN()
