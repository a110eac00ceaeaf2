/* Goal: blocks kept for reuse are as good as fresh ones: large enough, nobody else's, zeroed where that is asked, bounded, gone with their
 * thread. Method: the file is built into the test with its cache on, which sanitizers otherwise switch off; random sizes taken and given
 * back, each filled to its last byte with its own pattern. */
#define DEJA_KEEP_BLOCKS
#include "base/mem.c" /* its own copy, with what is kept in sight */

#include "base/rng.h"
#include "tests/check.h"

enum { BLOCKS = 300 };

struct block {
    unsigned char *p;
    size_t n;
    unsigned char mark;
};

static bool is_intact(const struct block *b)
{
    for (size_t i = 0; i < b->n; i++)
        if (b->p[i] != b->mark) return false;
    return true;
}

TEST(every_size_has_room_for_itself)
{
    for (size_t n = 0; n <= LARGE_MAX - WORD; n++) {
        size_t size = size_up(n + WORD);
        CHECK_AT(size < N_SIZES && bytes_of(size) >= n + WORD, "%zu bytes: size %zu", n, size);
        CHECK_AT(n < STEP || bytes_of(size_down(n)) <= n, "%zu bytes are kept as size %zu", n,
                 size_down(n));
    }
}

TEST(a_block_given_back_is_the_next_of_its_size)
{
    void *a = xmalloc(2000);
    mem_free(a);
    void *b = xmalloc(1990);
    CHECK(a == b);
    mem_free(b);
}

TEST(random_blocks_keep_what_is_written_to_them)
{
    static struct block blocks[BLOCKS];
    struct rng rng;
    rng_seed(&rng, 9);
    for (int i = 0; i < 60000; i++) {
        struct block *b = &blocks[rng_below(&rng, BLOCKS)];
        if (b->p) {
            CHECK_AT(is_intact(b), "a block of %zu bytes was written to by others", b->n);
            mem_free(b->p);
        }
        b->n = rng_below(&rng, rng_below(&rng, 4) ? 1500 : 20000);
        b->mark = (unsigned char)i;
        switch (rng_below(&rng, 3)) {
        case 0:
            b->p = xcalloc(1, b->n);
            for (size_t k = 0; k < b->n; k++)
                if (b->p[k]) CHECK_AT(false, "byte %zu of %zu is not zero", k, b->n);
            break;
        case 1:
            b->p = try_malloc(b->n);
            break;
        default:
            b->p = xmalloc(10);
            b->p = xrealloc(b->p, b->n);
        }
        memset(b->p, b->mark, b->n);
        CHECK(kept.bytes <= KEPT_BYTES_MAX);
    }
    for (int i = 0; i < BLOCKS; i++)
        mem_free(blocks[i].p);
    CHECK(kept.bytes > 0);
}

static void *thread(void *arg)
{
    void *p[20];
    for (int i = 0; i < 20; i++)
        p[i] = xmalloc(100 * (size_t)i);
    for (int i = 0; i < 20; i++)
        mem_free(p[i]);
    *(size_t *)arg = kept.bytes;
    return NULL;
}

TEST(what_a_thread_kept_goes_with_it) /* the leak sanitizer looks on */
{
    pthread_t t;
    size_t bytes = 0;
    REQUIRE(!pthread_create(&t, NULL, thread, &bytes));
    pthread_join(t, NULL);
    CHECK(bytes > 0);
}

TEST_MAIN()
