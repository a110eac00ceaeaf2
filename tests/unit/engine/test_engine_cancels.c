/* Goal: ten thousand clients that leave at any moment disturb nobody: every choice ends exactly once, what was said is what a lone run
 * says,
 * as far as it went, and all blocks come back. Method: the real engine and arithmetic over a tiny model, with a pool far too small, swap
 * space,
 * a disk, guesses ahead and several choices a request; clients on four threads. */
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "tests/check.h"

#ifdef __SANITIZE_THREAD__
enum { CANCELS = 2500 }; /* seven times slower */
#else
enum { CANCELS = 10000 };
#endif
enum { PROMPTS = 8, GENERATED = 24, CLIENTS = 4, AT_ONCE = 8 };

static char folder[64];
static int32_t alone[PROMPTS][GENERATED];
static _Atomic int cancels, whole, wrong, doubled;

struct ask { /* one request in flight */
    int which, n;
    _Atomic int said[4], ended[4], left;
    int stop_after; /* cancelled once so much was said; -1 = never, 0 = at once */
    bool cancelled;
    int32_t *record; /* the lone run: where to; NULL = compare */
    uint64_t id;
};

static int make_prompt(int which, int32_t *prompt)
{
    int n = 20 + 9 * which;
    for (int i = 0; i < n; i++)
        prompt[i] = i < 16 ? (i * 7) % 300 : (i % (5 + which) * 13 + which * 29) % 300;
    return n;
}

static bool on_token(void *arg, const struct engine_token *t)
{
    struct ask *a = arg;
    int i = a->said[t->choice]++;
    if (i >= GENERATED || t->choice >= 4)
        wrong++;
    else if (a->record)
        a->record[i] = t->id;
    else if (alone[a->which][i] != t->id)
        wrong++;
    return true;
}

static void on_end(void *arg, const struct engine_end *end)
{
    struct ask *a = arg;
    if (a->ended[end->choice]++) doubled++;
    if (end->finish == ENGINE_CANCELLED)
        cancels++;
    else if (end->finish == ENGINE_LENGTH && a->said[end->choice] == GENERATED)
        whole++;
    else
        wrong++;
    a->left--;
}

static bool submit(struct engine *g, struct ask *a)
{
    int32_t prompt[PROMPTS * 9 + 20];
    struct errmsg e = {0};
    struct engine_submit_options o = {.prompt = prompt,
                                      .n_prompt = make_prompt(a->which, prompt),
                                      .n = a->n,
                                      .max_tokens = GENERATED,
                                      .sampling = sampler_params_default(),
                                      .ignore_end = true,
                                      .priority = a->which % 2,
                                      .on_token = on_token,
                                      .on_end = on_end,
                                      .arg = a};
    a->left = a->n;
    return engine_submit(g, &o, &a->id, &e) == OK;
}

static void *client(void *arg)
{
    static _Atomic int number;
    static struct ask asks[CLIENTS][AT_ONCE];
    struct engine *g = arg;
    struct rng r;
    int self = number++ % CLIENTS;
    struct ask *mine = asks[self];
    rng_seed(&r, (uint64_t)self + 1);
    uint64_t until = clock_ms() + 120000;
    while (cancels < CANCELS && clock_ms() < until && !wrong) {
        for (int i = 0; i < AT_ONCE; i++) {
            struct ask *a = &mine[i];
            if (a->left) {
                if (!a->cancelled && a->stop_after >= 0 && a->said[0] >= a->stop_after) {
                    engine_cancel(g, a->id);
                    a->cancelled = true;
                }
                continue;
            }
            memset((void *)a, 0, sizeof *a);
            a->which = (int)rng_below(&r, PROMPTS);
            a->n = rng_below(&r, 4) ? 1 : 2 + (int)rng_below(&r, 3);
            a->stop_after = rng_below(&r, 20) ? (int)rng_below(&r, 4) : -1;
            if (!submit(g, a)) a->left = 0;
        }
        usleep(50);
    }
    for (int i = 0; i < AT_ONCE; i++) {
        engine_cancel(g, mine[i].id);
        while (mine[i].left && clock_ms() < until)
            usleep(100);
        CHECK_INT(mine[i].left, 0);
    }
    return NULL;
}

static struct engine *open_tiny(bool crowded)
{
    struct engine *g = NULL;
    struct errmsg e = {0};
    struct engine_options o = {.model_path = TEST_DATA "/tiny-llama-mixed.gguf",
                               .n_threads = 1,
                               .block_size = 8,
                               .max_model_len = 128};
    if (crowded) {
        o.max_num_seqs = 8;
        o.max_num_batched_tokens = 48;
        o.kv_bytes = 384 * 128 * 2; /* two of the longest */
        o.swap_bytes = 384 * 128 * 8;
        o.disk_dir = folder;
        o.disk_bytes = 2 << 20;
        o.prefix_caching = true;
        o.speculation.n_max = 4;
        o.speculation.lookup = o.speculation.always = true;
    }
    enum err code = engine_open(&g, &o, &e);
    CHECK_AT(!code, "%s", e.text);
    return g;
}

static void run_alone(void)
{
    struct engine *g = open_tiny(false);
    REQUIRE(g);
    for (int i = 0; i < PROMPTS; i++) {
        struct ask a = {.which = i, .n = 1, .stop_after = -1, .record = alone[i]};
        REQUIRE(submit(g, &a));
        while (a.left)
            usleep(100);
    }
    engine_close(g);
}

static void remove_folder(void)
{
    DIR *d = opendir(folder);
    char path[400];
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (e->d_name[0] != '.') unlink(path);
    }
    if (d) closedir(d);
    rmdir(folder);
}

TEST(ten_thousand_cancels_leave_every_stream_whole_and_every_block_free)
{
    pthread_t threads[CLIENTS];
    struct engine_stats st;
    snprintf(folder, sizeof folder, "/tmp/deja-cancels-XXXXXX");
    REQUIRE(mkdtemp(folder));
    run_alone();
    struct engine *g = open_tiny(true);
    REQUIRE(g);
    for (int i = 0; i < CLIENTS; i++)
        REQUIRE(!pthread_create(&threads[i], NULL, client, g));
    for (int i = 0; i < CLIENTS; i++)
        pthread_join(threads[i], NULL);
    CHECK_AT(cancels >= CANCELS, "%d cancels", cancels);
    CHECK_INT(wrong, 0);
    CHECK_INT(doubled, 0);
    for (int i = 0; i < 200; i++, usleep(10000)) { /* the last step may still be ending */
        engine_stats(g, &st);
        if (!st.blocks_used && !st.running && !st.waiting) break;
    }
    CHECK_INT(st.blocks_used, 0);
    CHECK_INT(st.running + st.waiting, 0);
    /* worth something only if the rare paths were taken */
    CHECK_AT(whole > 100 && st.preemptions > 20 && st.loaded_blocks > 20 && st.accepted_tokens > 20,
             "%d whole, %llu preemptions, %llu loads, %llu accepted", whole,
             (unsigned long long)st.preemptions, (unsigned long long)st.loaded_blocks,
             (unsigned long long)st.accepted_tokens);
    printf(
        "     %d cancels, %d whole, %llu steps, %llu preemptions, %llu loads, %llu guesses right\n",
        cancels, whole, (unsigned long long)st.steps, (unsigned long long)st.preemptions,
        (unsigned long long)st.loaded_blocks, (unsigned long long)st.accepted_tokens);
    engine_close(g);
    remove_folder();
}

TEST_MAIN()
