/* mem.h - allocation. x* abort when memory is gone (start-up, small things); try_* return NULL and are for
 * sizes a client or a file can influence. Free everything here with mem_free (NULL is fine).
 * Threading: any thread; an arena belongs to one. */
#ifndef DEJA_BASE_MEM_H
#define DEJA_BASE_MEM_H
#include <stdbool.h>
#include <stddef.h>

void *xmalloc(size_t n);
void *xcalloc(size_t count, size_t size); /* zeroed; aborts on overflow of count*size */
void *xrealloc(void *p, size_t n);
char *xstrdup(const char *s);
char *xstrndup(const char *s, size_t n); /* exactly n bytes, terminated */
void *try_malloc(size_t n);
void *try_calloc(size_t count, size_t size);
void *try_realloc(void *p, size_t n); /* on NULL, p is still valid */
void mem_free(void *p);

/* Big arrays for weights and KV: 2 MiB aligned, zeroed, MADV_HUGEPAGE where the kernel has it.
 * NULL when refused. Free with mem_free_huge and the same n. */
void *mem_alloc_huge(size_t n);
void mem_free_huge(void *p, size_t n);
/* Has the kernel give all pages of p[n] now, contents kept, also while other threads use them. NULL is fine. */
void mem_touch(void *p, size_t n);

/* Bump allocator: everything lives until arena_free. Bounded: alloc returns NULL once bytes_max is passed. */
struct arena;
struct arena *arena_new(size_t bytes_max);
void *arena_alloc(struct arena *a,
                  size_t n); /* 16-byte aligned, zeroed; NULL when over the bound */
char *arena_strndup(struct arena *a, const char *s, size_t n);
void arena_free(struct arena *a);

#endif
