/* Goal: what was written comes back, also to another process; what is damaged, another model's or half written never does. Method: real
 * files in a
 * folder of their own; bytes are flipped in them, and a child that writes is killed at random moments. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/kv_disk.h"
#include "tests/check.h"

enum { BT = 4, BYTES = 3000, SLOTS = 8 };

static char folder[64];

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/deja-kv-disk-XXXXXX");
    REQUIRE(mkdtemp(folder));
}

static void each_file(void (*f)(const char *path, void *arg), void *arg)
{
    DIR *d = opendir(folder);
    char path[400];
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        f(path, arg);
    }
    if (d) closedir(d);
}

static void drop(const char *path, void *arg)
{
    (void)arg;
    unlink(path);
}

static void remove_folder(void)
{
    each_file(drop, NULL);
    rmdir(folder);
}

static struct kv_disk_options options(void)
{
    return (struct kv_disk_options){.dir = folder,
                                    .bytes_max = KV_HEAD_BYTES + SLOTS * (BYTES + 200),
                                    .head = {.block_tokens = BT,
                                             .block_bytes = BYTES,
                                             .seed = 77,
                                             .root = {1, 2},
                                             .format = "test"}};
}

static struct kv_disk *open_disk(const struct kv_disk_options *o)
{
    struct kv_disk *d;
    struct errmsg e = {0};
    enum err code = kv_disk_open(&d, o, &e);
    CHECK_AT(!code, "%s", e.text);
    return d;
}

static struct kv_disk_job job_for(int n, uint8_t *bytes)
{
    struct kv_disk_job job = {
        .slot = n % SLOTS, .id = {(uint64_t)n, 5}, .parent = {(uint64_t)n, 6}, .bytes = bytes};
    for (int i = 0; i < BT; i++)
        job.tokens[i] = n * 10 + i;
    return job;
}

static void fill(uint8_t *bytes, int n)
{
    struct rng r;
    rng_seed(&r, (uint64_t)n);
    for (int i = 0; i < BYTES; i++)
        bytes[i] = (uint8_t)rng_below(&r, 256);
}

static enum err run(struct kv_disk *d, const struct kv_disk_job *job)
{
    struct kv_disk_job done;
    uint64_t until = clock_ms() + 10000;
    if (!kv_disk_submit(d, job)) return ERR_FULL;
    while (!kv_disk_done(d, &done)) {
        if (clock_ms() > until) return ERR_TIMEOUT;
        usleep(20);
    }
    return done.result;
}

static enum err put(struct kv_disk *d, int n)
{
    static uint8_t bytes[BYTES];
    fill(bytes, n);
    struct kv_disk_job job = job_for(n, bytes);
    job.write = true;
    return run(d, &job);
}

/* ERR_CORRUPT also when wrong bytes come back as right. */
static enum err get(struct kv_disk *d, int n)
{
    static uint8_t bytes[BYTES], want[BYTES];
    fill(want, n);
    memset(bytes, 0, sizeof bytes);
    struct kv_disk_job job = job_for(n, bytes);
    enum err code = run(d, &job);
    if (!code) CHECK_AT(!memcmp(bytes, want, BYTES), "block %d has other bytes", n);
    return code;
}

struct seen {
    int n, slot[SLOTS];
    uint64_t id[SLOTS];
};

static void note(void *arg, int slot, const struct kv_entry *e)
{
    struct seen *s = arg;
    REQUIRE(s->n < SLOTS);
    s->slot[s->n] = slot;
    s->id[s->n++] = e->id.hi;
}

static struct seen list(struct kv_disk *d)
{
    struct seen s = {0};
    kv_disk_list(d, note, &s);
    return s;
}

TEST(blocks_come_back_in_the_next_process_in_order_of_use)
{
    make_folder();
    struct kv_disk_options o = options();
    struct kv_disk *d = open_disk(&o);
    CHECK_INT(list(d).n, 0);
    CHECK_INT(kv_disk_slots(d), SLOTS);
    for (int n = 1; n <= 3; n++)
        CHECK_INT(put(d, n), OK);
    CHECK_INT(get(d, 1), OK);         /* used now */
    CHECK_INT(put(d, 2 + SLOTS), OK); /* takes the slot of 2 */
    CHECK_INT(get(d, 2), ERR_CORRUPT);
    CHECK(kv_disk_close(d, 1000));
    o.head.seed = 99;
    d = open_disk(&o);
    CHECK_INT(kv_disk_seed(d), 77); /* what is there was named with it */
    struct seen s = list(d);
    REQUIRE(s.n == 3);
    CHECK_INT(s.id[0], 3);
    CHECK_INT(s.id[1], 1);
    CHECK_INT(s.id[2], 2 + SLOTS);
    CHECK_INT(get(d, 3), OK);
    CHECK_INT(get(d, 2 + SLOTS), OK);
    CHECK_INT(get(d, 5), ERR_NOT_FOUND);
    CHECK(kv_disk_close(d, 1000));
    remove_folder();
}

TEST(another_model_layout_or_size_of_block_has_files_of_its_own)
{
    make_folder();
    struct kv_disk_options o = options();
    struct kv_disk *d = open_disk(&o);
    list(d);
    CHECK_INT(put(d, 1), OK);
    for (int i = 0; i < 3; i++) {
        struct kv_disk_options other = options();
        if (i == 0) other.head.root.lo++;
        if (i == 1) other.head.format[0] = 'x';
        if (i == 2) other.head.block_bytes++;
        struct kv_disk *x = open_disk(&other);
        CHECK_INT(list(x).n, 0);
        CHECK(kv_disk_close(x, 1000));
    }
    struct errmsg e = {0};
    struct kv_disk *second;
    CHECK_INT(kv_disk_open(&second, &o, &e), ERR_UNAVAILABLE);
    CHECK(strstr(e.text, "another engine uses"));
    CHECK(kv_disk_close(d, 1000));
    o.bytes_max = KV_HEAD_BYTES + BYTES;
    CHECK_INT(kv_disk_open(&second, &o, &e), ERR_RANGE);
    o = options();
    o.dir = "/proc/no/such";
    CHECK_INT(kv_disk_open(&second, &o, &e), ERR_IO);
    remove_folder();
}

TEST(a_smaller_limit_gives_up_the_slots_past_it_and_a_larger_one_keeps_all)
{
    make_folder();
    struct kv_disk_options o = options();
    struct kv_disk *d = open_disk(&o);
    list(d);
    for (int n = 0; n < SLOTS; n++)
        CHECK_INT(put(d, n), OK);
    CHECK(kv_disk_close(d, 1000));
    static const int sizes[] = {3, 2 * SLOTS, SLOTS};
    for (size_t i = 0; i < 3; i++) {
        o.bytes_max = KV_HEAD_BYTES + (uint64_t)sizes[i] * (BYTES + 200);
        d = open_disk(&o);
        CHECK_INT(list(d).n, 3);
        CHECK_INT(get(d, 2), OK);
        CHECK(kv_disk_close(d, 1000));
    }
    remove_folder();
}

/* Flips one byte somewhere. */
static void flip(const char *path, void *arg)
{
    struct rng *r = arg;
    struct stat st;
    int fd = open(path, O_RDWR);
    REQUIRE(fd >= 0 && !fstat(fd, &st));
    uint8_t b;
    off_t at = (off_t)rng_below(r, (uint64_t)st.st_size);
    if (pread(fd, &b, 1, at) == 1) {
        b ^= (uint8_t)(1 + rng_below(r, 255));
        CHECK(pwrite(fd, &b, 1, at) == 1);
    }
    close(fd);
}

TEST(damage_anywhere_costs_blocks_and_never_gives_wrong_bytes)
{
    struct rng r;
    rng_seed(&r, 5);
    make_folder();
    int good = 0, bad = 0;
    for (int round = 0; round < 150 && !check_failures; round++) {
        struct kv_disk_options o = options();
        struct kv_disk *d = open_disk(&o);
        list(d);
        for (int n = 0; n < SLOTS; n++)
            CHECK_INT(put(d, n), OK);
        CHECK(kv_disk_close(d, 1000));
        each_file(flip, &r);
        d = open_disk(&o);
        list(d);
        for (int n = 0; n < SLOTS;
             n++) { /* a damaged one says so: OK would have compared its bytes */
            enum err code = get(d, n);
            CHECK_AT(code == OK || code == ERR_CORRUPT || code == ERR_NOT_FOUND, "%s",
                     err_name(code));
            good += code == OK;
            bad += code != OK;
        }
        CHECK(kv_disk_close(d, 1000));
    }
    CHECK_AT(bad > 50 && good > 500, "%d bad, %d good", bad, good);
    remove_folder();
}

static void write_forever(void)
{
    static uint8_t bytes[4][BYTES];
    struct kv_disk_options o = options();
    struct kv_disk *d = open_disk(&o);
    struct kv_disk_job done;
    list(d);
    for (int n = 0, out = 0;; n++) {
        fill(bytes[n % 4], n % 100);
        struct kv_disk_job job = job_for(n % 100, bytes[n % 4]);
        job.write = true;
        out += kv_disk_submit(d, &job);
        while (out == 4)
            out -= kv_disk_done(d, &done);
    }
}

TEST(a_process_killed_at_any_moment_leaves_whole_entries_or_none)
{
    struct rng r;
    rng_seed(&r, 8);
    make_folder();
    int whole = 0;
    for (int round = 0; round < 40 && !check_failures; round++) {
        pid_t child = fork();
        if (!child) write_forever();
        usleep((useconds_t)(3000 + rng_below(&r, 20000)));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        struct kv_disk_options o = options();
        struct kv_disk *d = open_disk(&o);
        struct seen s = list(d);
        for (int i = 0; i < s.n; i++) {
            int n = (int)s.id[i];
            CHECK_INT(s.slot[i], n % SLOTS);
            CHECK_INT(get(d, n), OK); /* listed means whole: the entry is written last */
            whole++;
        }
        CHECK(kv_disk_close(d, 1000));
    }
    CHECK_AT(whole > 100, "%d", whole);
    remove_folder();
}

TEST_MAIN()
