/* mem.c - the only caller of malloc and friends. */
#define _GNU_SOURCE
#include "base/mem.h"

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

void *xmalloc(size_t n)
{
    return or_die(malloc(n ? n : 1), n ? n : 1);
}
void *xcalloc(size_t count, size_t size)
{
    return or_die(calloc(count ? count : 1, size ? size : 1), 1);
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
    return malloc(n ? n : 1);
}
void *try_calloc(size_t count, size_t size)
{
    return calloc(count ? count : 1, size ? size : 1);
}
void *try_realloc(void *p, size_t n)
{
    return realloc(p, n ? n : 1);
}
void mem_free(void *p)
{
    free(p);
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

bool mem_populate(void *p, size_t n)
{
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
    return !n || !madvise(p, huge_round(n), MADV_POPULATE_WRITE);
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
        volatile char *c = (char *)p + at;
        *c = *c;
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
