/* Goal: a supervised process comes back when it is killed, stays away when it was asked to end, and waits longer each time it fails
 * at once. Method: /bin/sh children under a real loop, SIGCHLD handled as the supervisor does. */
#include "up/child.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/check.h"

struct nursery {
    struct loop *loop;
    struct child *child;
    struct loop_timer *tick;
    int ticks, seen_restarts;
    bool stop_asked;
};

static void on_child(void *arg, int signo)
{
    struct nursery *n = arg;
    (void)signo;
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
        CHECK(child_ended(n->child, pid, status, true));
    if (n->stop_asked && !child_running(n->child)) loop_stop(n->loop);
}

static void on_tick(void *arg)
{
    struct nursery *n = arg;
    n->seen_restarts = child_restarts(n->child);
    if (n->seen_restarts >= 2 || ++n->ticks > 100) {
        n->stop_asked = true;
        child_stop(n->child);
        if (!child_running(n->child)) loop_stop(n->loop);
        return;
    }
    loop_timer_arm(n->tick, 50);
}

TEST(a_child_that_ends_unasked_is_started_again_and_one_asked_to_end_is_not)
{
    struct nursery n = {0};
    struct errmsg e = {0};
    char log[] = "/tmp/deja-child-XXXXXX";
    int fd = mkstemp(log);
    REQUIRE(fd >= 0 && loop_new(&n.loop, &e) == OK);
    close(fd);
    CHECK_INT(loop_on_signal(n.loop, SIGCHLD, on_child, &n), OK);
    n.child = child_new(
        n.loop,
        &(struct child_options){.name = "short",
                                .log_path = log,
                                .argv = {"/bin/sh", "-c", "echo one; echo last words; exit 3"}});
    n.tick = loop_timer_new(n.loop, on_tick, &n);
    CHECK_INT(child_start(n.child, &e), OK);
    loop_timer_arm(n.tick, 50);
    loop_run(n.loop);
    CHECK_AT(n.seen_restarts >= 2, "%d restarts", n.seen_restarts);
    CHECK(!child_running(n.child));
    char words[64];
    child_last_words(n.child, words, sizeof words);
    CHECK_Z(words, "last words");
    loop_timer_free(n.tick);
    child_free(n.child);
    loop_free(n.loop);
    unlink(log);
}

TEST(a_child_whose_log_cannot_be_written_is_started_all_the_same)
{
    struct loop *l;
    struct errmsg e = {0};
    REQUIRE(loop_new(&l, &e) == OK);
    struct child *c =
        child_new(l, &(struct child_options){.name = "mute",
                                             .log_path = "/tmp/deja-no-such-folder/log",
                                             .argv = {"/bin/sleep", "10"}});
    CHECK_INT(child_start(c, &e), OK);
    CHECK(child_running(c));
    char words[64];
    child_last_words(c, words, sizeof words);
    CHECK_Z(words, "");
    child_free(c);
    loop_free(l);
}

TEST(a_missing_program_is_told_at_once)
{
    struct loop *l;
    struct errmsg e = {0};
    REQUIRE(loop_new(&l, &e) == OK);
    struct child *c = child_new(l, &(struct child_options){.name = "ghost",
                                                           .log_path = "/dev/null",
                                                           .argv = {"/nonexistent/program"}});
    CHECK_INT(child_start(c, &e), ERR_UNAVAILABLE);
    CHECK(str_find(str_of(e.text), STR("/nonexistent/program")) >= 0);
    child_free(c);
    loop_free(l);
}

TEST(backoff_doubles_to_five_seconds_and_forgets_after_a_good_run)
{
    int row = 0;
    static const uint64_t want[] = {200, 400, 800, 1600, 3200, 5000, 5000};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        CHECK_INT(child_backoff_ms(&row, 10), want[i]);
    CHECK_INT(child_backoff_ms(&row, 10000), 200);
}

TEST_MAIN()
