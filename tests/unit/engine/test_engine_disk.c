/* Goal: an engine that starts again finds on disk what an earlier one computed, says the same as without a disk, and does not mind a
 * disk that is damaged or full. Method: the real engine over a pretended model, real files. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/unit/engine/pretend.h"

enum { PROMPTS = 8, PROMPT_MAX = 180 };

static char folder[64];
static int32_t prompt[PROMPTS][PROMPT_MAX];
static struct client clients[16], without[PROMPTS];

static void each_file(void (*f)(const char *path))
{
    DIR *d = opendir(folder);
    char path[400];
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        f(path);
    }
    if (d) closedir(d);
}

static void drop(const char *path)
{
    unlink(path);
}

static struct engine_sizes sizes(bool disk)
{
    return (struct engine_sizes){.prefix_caching = true,
                                 .n_blocks = 400,
                                 .n_host = 300,
                                 .max_num_seqs = 8,
                                 .root = {4, 4},
                                 .disk_dir = disk ? folder : NULL,
                                 .disk_bytes = 1 << 20,
                                 .kv_format = "pretend"};
}

static int length_of(int i)
{
    return 60 + 15 * i;
}

/* Steps long enough for a block's way to and from the host to be the shorter one. */
static struct engine *open_slow(struct pretend *p, bool disk)
{
    struct engine *g = open_engine(p, sizes(disk));
    p->delay_us = 300;
    return g;
}

static void begin(void)
{
    snprintf(folder, sizeof folder, "/tmp/deja-engine-disk-XXXXXX");
    REQUIRE(mkdtemp(folder));
    struct pretend p;
    struct engine_sizes s = sizes(false);
    s.prefix_caching = false;
    struct engine *g = open_engine(&p, s);
    memset(without, 0, sizeof without);
    for (int i = 0; i < PROMPTS; i++) {
        make_prompt(prompt[i], length_of(i), 40, (uint64_t)i);
        REQUIRE(ask(g, &without[i], prompt[i], length_of(i), 10) == OK);
        REQUIRE(wait_ended(&without[i]));
    }
    shut(g, &p);
}

static void end(void)
{
    each_file(drop);
    rmdir(folder);
}

/* Asks all prompts, one after the other; returns the tokens that were cached. */
static int ask_all(struct engine *g, const char *how)
{
    int cached = 0;
    memset(clients, 0, sizeof clients);
    for (int i = 0; i < PROMPTS; i++) {
        if (ask(g, &clients[i], prompt[i], length_of(i), 10) != OK) return -1;
        if (!wait_ended(&clients[i])) return -1;
        check_same(&clients[i].choice[0], &without[i].choice[0], how);
        cached += clients[i].choice[0].end.cached_tokens;
    }
    return cached;
}

TEST(after_a_restart_as_much_is_cached_as_in_a_warm_engine)
{
    begin();
    struct pretend p;
    struct engine *g = open_slow(&p, true);
    int cold = ask_all(g, "cold"), warm = ask_all(g, "warm");
    struct engine_stats st;
    shut(g, &p);
    for (int round = 0; round < 3; round++) {
        g = open_slow(&p, true);
        int again = ask_all(g, "after a restart");
        CHECK_AT(again == warm && again > cold, "%d cold, %d warm, %d after a restart", cold, warm,
                 again);
        engine_stats(g, &st);
        CHECK(st.disk_fetched_blocks > 0);
        CHECK_INT(st.disk_damaged_blocks, 0);
        shut(g, &p);
    }
    end();
}

TEST(many_that_want_the_same_beginning_read_it_once)
{
    begin();
    struct pretend p;
    struct engine *g = open_slow(&p, true);
    CHECK(ask_all(g, "cold") >= 0);
    shut(g, &p);
    g = open_slow(&p, true);
    memset(clients, 0, sizeof clients);
    int longest = PROMPTS - 1, n = length_of(longest);
    for (int i = 0; i < 16; i++)
        REQUIRE(ask(g, &clients[i], prompt[longest], n, 10) == OK);
    for (int i = 0; i < 16; i++) {
        REQUIRE(wait_ended(&clients[i]));
        check_same(&clients[i].choice[0], &without[longest].choice[0], "together");
        CHECK_AT(clients[i].choice[0].end.cached_tokens >= (n - 1) / 4 * 4, "%d cached",
                 clients[i].choice[0].end.cached_tokens);
    }
    struct engine_stats st;
    engine_stats(g, &st);
    CHECK_INT(st.disk_fetched_blocks, (n - 1) / 4);
    shut(g, &p);
    end();
}

static void damage(const char *path)
{
    uint8_t noise[64];
    struct rng r;
    rng_seed(&r, 3);
    int fd = open(path, O_RDWR);
    REQUIRE(fd >= 0);
    off_t size = lseek(fd, 0, SEEK_END);
    for (off_t at = strstr(path, "index") ? 5000 : 0; at + 64 < size; at += 700) {
        for (size_t i = 0; i < sizeof noise; i++)
            noise[i] = (uint8_t)rng_below(&r, 256);
        CHECK(pwrite(fd, noise, sizeof noise, at) == sizeof noise);
    }
    close(fd);
}

TEST(a_damaged_disk_costs_time_and_never_the_text)
{
    begin();
    struct pretend p;
    struct engine *g = open_slow(&p, true);
    CHECK(ask_all(g, "cold") >= 0);
    int warm = ask_all(g, "warm");
    shut(g, &p);
    each_file(damage);
    g = open_slow(&p, true);
    int again = ask_all(g, "from a damaged disk");
    CHECK_AT(again >= 0 && again < warm, "%d warm, %d then", warm, again);
    CHECK_INT(ask_all(g, "warm again"), warm);
    shut(g, &p);
    g = open_slow(&p, true); /* what was found to be bad has been written anew */
    int after = ask_all(g, "after all");
    CHECK_AT(after > again && after <= warm, "%d warm, %d damaged, %d after", warm, again, after);
    shut(g, &p);
    end();
}

TEST(a_disk_that_takes_no_more_is_left_alone)
{
    begin();
    struct rlimit old, small;
    struct pretend p;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    struct engine_sizes s = sizes(true);
    s.disk_bytes = 1 << 16;
    struct engine *g = open_engine(&p, s);
    small = old;
    small.rlim_cur = 4096 + 300;
    setrlimit(RLIMIT_FSIZE, &small);
    CHECK(ask_all(g, "on a full disk") >= 0);
    struct engine_stats st;
    engine_stats(g, &st);
    CHECK(st.disk_failed_writes > 0);
    shut(g, &p);
    setrlimit(RLIMIT_FSIZE, &old);
    end();
}

TEST_MAIN()
