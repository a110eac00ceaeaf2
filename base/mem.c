/* mem.c - the only caller of malloc and friends. Blocks of up to sixteen kilobytes, what requests in progress are made of, are kept for
 * reuse, a bounded number of bytes for each thread: the C library's own cache holds seven of a size and none above a kilobyte, and past
 * it every allocation costs several times as much. Off under sanitizers, which would not see who uses what is freed. */
#define _GNU_SOURCE
#include "base/mem.h"

#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/err.h"

static void *or_die(void *p, size_t n)
{
    if (p || !n) return p;
    fprintf(stderr, "deja: out of memory (%zu bytes wanted)\n", n);
    abort();
}

/* --- kept blocks */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif
#if defined(SANITIZED) && !defined(DEJA_KEEP_BLOCKS) /* the latter for its own test */
enum { KEPT_BYTES_MAX = 0 };
#else
enum { KEPT_BYTES_MAX = 1 << 20 };
#endif
/* Sizes in bytes, with the word the C library adds: 32, 64 ... 1024 are numbers 1 to 32; 2048, 3072 ... 16384 are 33 to 47. */
enum { STEP = 32, SMALL_MAX = 1024, LARGE_MAX = 16384, N_SMALL = 32, N_SIZES = 48, WORD = 8 };

struct kept {
    struct kept *next;
};
static __thread struct {
    struct kept *first[N_SIZES];
    size_t bytes;
    bool closing; /* the thread is ending */
    bool asked;   /* to be told of its end */
} kept;
static pthread_key_t kept_key;
static pthread_once_t kept_once = PTHREAD_ONCE_INIT;

static void drop_kept(void *arg)
{
    (void)arg;
    kept.closing = true;
    for (int i = 0; i < N_SIZES; i++)
        for (struct kept *k = kept.first[i], *next; k; k = next) {
            next = k->next;
            free(k);
        }
    memset(kept.first, 0, sizeof kept.first);
}

static void make_kept_key(void)
{
    if (pthread_key_create(&kept_key, drop_kept)) abort();
}

static size_t bytes_of(size_t size)
{
    return size <= N_SMALL ? size * STEP : (size - N_SMALL + 1) * SMALL_MAX;
}

/* Of n bytes with the word: the smallest size that holds them, the largest they hold. */
static size_t size_up(size_t n)
{
    return n <= SMALL_MAX ? (n + STEP - 1) / STEP : N_SMALL - 1 + (n + SMALL_MAX - 1) / SMALL_MAX;
}

static size_t size_down(size_t n)
{
    return n <= SMALL_MAX ? n / STEP : N_SMALL - 1 + n / SMALL_MAX;
}

static void *take(size_t n)
{
    if (!KEPT_BYTES_MAX || n > LARGE_MAX - WORD) return malloc(n ? n : 1);
    size_t size = size_up(n + WORD);
    struct kept *k = kept.first[size];
    if (!k) return malloc(bytes_of(size) - WORD);
    kept.first[size] = k->next;
    kept.bytes -= bytes_of(size);
    return k;
}

static bool ask_for_the_end(void)
{
    pthread_once(&kept_once, make_kept_key);
    return kept.asked = pthread_setspecific(kept_key, &kept) == 0;
}

static bool keep(void *p)
{
    if (!KEPT_BYTES_MAX || !p) return false;
    size_t n = malloc_usable_size(p) + WORD;
    if (n < STEP || n > LARGE_MAX) return false;
    size_t size = size_down(n);
    if (kept.closing || kept.bytes + bytes_of(size) > KEPT_BYTES_MAX ||
        (!kept.asked && !ask_for_the_end()))
        return false;
    struct kept *k = p;
    k->next = kept.first[size];
    kept.first[size] = k;
    kept.bytes += bytes_of(size);
    return true;
}

/* --- */
void *xmalloc(size_t n)
{
    return or_die(try_malloc(n), n ? n : 1);
}
void *xcalloc(size_t count, size_t size)
{
    return or_die(try_calloc(count, size), 1);
}
void *xrealloc(void *p, size_t n)
{
    return or_die(realloc(p, n ? n : 1), n ? n : 1);
}
char *xstrdup(const char *s)
{
    return xstrndup(s, strlen(s));
}
void *try_malloc(size_t n)
{
    return take(n);
}
void *try_calloc(size_t count, size_t size)
{
    size_t n;
    if (KEPT_BYTES_MAX && !__builtin_mul_overflow(count, size, &n) && n <= LARGE_MAX) {
        void *p = take(n);
        return p ? memset(p, 0, n) : NULL;
    }
    return calloc(count ? count : 1, size ? size : 1);
}
void *try_realloc(void *p, size_t n)
{
    return p ? realloc(p, n ? n : 1) : take(n);
}
void mem_free(void *p)
{
    if (!keep(p)) free(p);
}

char *xstrndup(const char *s, size_t n)
{
    char *out = xmalloc(n + 1);
    if (n) memcpy(out, s, n);
    out[n] = 0;
    return out;
}

enum { HUGE_BYTES = 2 << 20 };

static size_t huge_round(size_t n)
{
    return (n + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
}

void *mem_alloc_huge(size_t n)
{
    if (!n || n > SIZE_MAX - 2 * (size_t)HUGE_BYTES) return NULL;
    size_t want = huge_round(n), span = want + HUGE_BYTES;
    char *raw = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) return NULL;
    char *p = (char *)(((uintptr_t)raw + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES);
    if (p > raw) munmap(raw, (size_t)(p - raw));
    if (p + want < raw + span) munmap(p + want, (size_t)(raw + span - (p + want)));
    madvise(p, want, MADV_HUGEPAGE); /* a refusal costs speed only */
    return p;
}

void mem_free_huge(void *p, size_t n)
{
    if (p) munmap(p, huge_round(n));
}

void mem_touch(void *p, size_t n)
{
    enum { PAGE = 4096 };
    uintptr_t from = (uintptr_t)p / PAGE * PAGE, to = ((uintptr_t)p + n + PAGE - 1) / PAGE * PAGE;
    if (!p || !n) return;
#ifdef MADV_POPULATE_WRITE
    if (!madvise((void *)from, to - from, MADV_POPULATE_WRITE)) return;
#endif
    for (size_t at = 0; at < n; at += PAGE) {
        char *c = (char *)p + at;
        __atomic_fetch_or(c, 0, __ATOMIC_RELAXED);
    }
}

struct chunk {
    struct chunk *next;
    size_t used, cap;
    _Alignas(16) char bytes[];
};

struct arena {
    struct chunk *head;
    size_t total, bytes_max;
};

struct arena *arena_new(size_t bytes_max)
{
    struct arena *a = xcalloc(1, sizeof *a);
    a->bytes_max = bytes_max;
    return a;
}

void *arena_alloc(struct arena *a, size_t n)
{
    if (n > a->bytes_max) return NULL;
    n = (n + 15) & ~(size_t)15;
    if (!a->head || a->head->cap - a->head->used < n) {
        size_t cap = n > 4096 ? n : 4096;
        if (a->total + cap > a->bytes_max + 4096) return NULL;
        struct chunk *c = try_calloc(1, sizeof *c + cap);
        if (!c) return NULL;
        c->cap = cap;
        c->next = a->head;
        a->head = c;
        a->total += cap;
    }
    void *p = a->head->bytes + a->head->used;
    a->head->used += n;
    return p;
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
    char *out = arena_alloc(a, n + 1);
    if (out && n) memcpy(out, s, n);
    return out;
}

void arena_free(struct arena *a)
{
    if (!a) return;
    for (struct chunk *c = a->head, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(a);
}
