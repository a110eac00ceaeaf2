/* kv_disk.c - see kv_disk.h. pread and pwrite rather than mmap: a disk's error is then a return value, not a signal. */
#define _GNU_SOURCE
#include "engine/kv_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

enum { SLOTS_MAX = 1 << 24, CLOSE_GRACE_MS = 2000 };

struct job_list { /* a ring */
    struct kv_disk_job job[KV_DISK_JOBS_MAX];
    int first, n;
};

struct kv_disk {
    struct kv_disk_options o;
    int index_fd, block_fd, n_slots;
    size_t entry_bytes;
    uint64_t stamp; /* disk thread */
    uint8_t *entry; /* [entry_bytes] disk thread */
    pthread_t thread;
    bool has_thread;
    int n_out; /* submitted and not yet fetched; the caller's thread */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    /* under lock */
    struct job_list reads, writes, done;
    bool closing;
    uint64_t close_by_ms;
};

static void push(struct job_list *l, const struct kv_disk_job *job)
{
    ASSERT(l->n < KV_DISK_JOBS_MAX);
    l->job[(l->first + l->n++) % KV_DISK_JOBS_MAX] = *job;
}

static void pop(struct job_list *l, struct kv_disk_job *out)
{
    *out = l->job[l->first];
    l->first = (l->first + 1) % KV_DISK_JOBS_MAX;
    l->n--;
}

/* ---- bytes ---- */
static enum err read_at(int fd, void *to, size_t n, uint64_t at)
{
    for (size_t have = 0; have < n;) {
        ssize_t got = pread(fd, (char *)to + have, n - have, (off_t)(at + have));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return ERR_IO;
        if (!got) return ERR_CORRUPT; /* shorter than the index says */
        have += (size_t)got;
    }
    return OK;
}

static enum err write_at(int fd, const void *from, size_t n, uint64_t at)
{
    for (size_t have = 0; have < n;) {
        ssize_t put = pwrite(fd, (const char *)from + have, n - have, (off_t)(at + have));
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return ERR_IO;
        have += (size_t)put;
    }
    return OK;
}

static uint64_t entry_at(const struct kv_disk *d, int slot)
{
    return KV_HEAD_BYTES + (uint64_t)slot * d->entry_bytes;
}

static uint64_t block_at(const struct kv_disk *d, int slot)
{
    return (uint64_t)slot * d->o.head.block_bytes;
}

static enum err put_entry(struct kv_disk *d, const struct kv_disk_job *job, uint64_t byte_check)
{
    struct kv_entry e = {job->id, job->parent, ++d->stamp, byte_check, job->tokens};
    kv_entry_write(&e, d->o.head.block_tokens, job->slot, d->entry);
    return write_at(d->index_fd, d->entry, d->entry_bytes, entry_at(d, job->slot));
}

static enum err write_block(struct kv_disk *d, const struct kv_disk_job *job)
{
    size_t n = d->o.head.block_bytes;
    memset(d->entry, 0, d->entry_bytes);
    enum err code = write_at(d->index_fd, d->entry, d->entry_bytes, entry_at(d, job->slot));
    if (!code) code = write_at(d->block_fd, job->bytes, n, block_at(d, job->slot));
    return code ? code : put_entry(d, job, kv_check(job->bytes, n));
}

static enum err read_block(struct kv_disk *d, const struct kv_disk_job *job)
{
    struct kv_entry e;
    int32_t tokens[PREFIX_BLOCK_TOKENS_MAX];
    int bt = d->o.head.block_tokens;
    enum err code = read_at(d->index_fd, d->entry, d->entry_bytes, entry_at(d, job->slot));
    if (!code) code = kv_entry_read(d->entry, bt, job->slot, tokens, &e);
    if (code) return code;
    if (!hash_eq(e.id, job->id) || !hash_eq(e.parent, job->parent) ||
        memcmp(tokens, job->tokens, (size_t)bt * sizeof *tokens))
        return ERR_CORRUPT;
    code = read_at(d->block_fd, job->bytes, d->o.head.block_bytes, block_at(d, job->slot));
    if (code) return code;
    if (kv_check(job->bytes, d->o.head.block_bytes) != e.byte_check) return ERR_CORRUPT;
    (void)!put_entry(d, job,
                     e.byte_check); /* used just now; a failure costs its place in the order only */
    return OK;
}

/* ---- thread ---- */
static void *disk_main(void *arg)
{
    struct kv_disk *d = arg;
    struct kv_disk_job job;
    pthread_mutex_lock(&d->lock);
    for (;;) {
        while (!d->reads.n && !d->writes.n && !d->closing)
            pthread_cond_wait(&d->wake, &d->lock);
        if (d->closing && (!d->writes.n || clock_ms() > d->close_by_ms)) break;
        bool read = d->reads.n > 0 && !d->closing; /* nobody waits for reads any more */
        pop(read ? &d->reads : &d->writes, &job);
        pthread_mutex_unlock(&d->lock);
        job.result = read ? read_block(d, &job) : write_block(d, &job);
        pthread_mutex_lock(&d->lock);
        push(&d->done, &job);
        if (d->closing || !d->o.notify) continue;
        pthread_mutex_unlock(&d->lock);
        d->o.notify(d->o.arg);
        pthread_mutex_lock(&d->lock);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

bool kv_disk_submit(struct kv_disk *d, const struct kv_disk_job *job)
{
    ASSERT(job->slot >= 0 && job->slot < d->n_slots);
    if (d->n_out == KV_DISK_JOBS_MAX) return false;
    d->n_out++;
    pthread_mutex_lock(&d->lock);
    push(job->write ? &d->writes : &d->reads, job);
    pthread_cond_signal(&d->wake);
    pthread_mutex_unlock(&d->lock);
    return true;
}

bool kv_disk_done(struct kv_disk *d, struct kv_disk_job *out)
{
    pthread_mutex_lock(&d->lock);
    bool any = d->done.n > 0;
    if (any) pop(&d->done, out);
    pthread_mutex_unlock(&d->lock);
    if (any) d->n_out--;
    return any;
}

/* ---- life ---- */
static void path_of(const struct kv_disk_options *o, const char *suffix, char out[PATH_MAX])
{
    struct kv_head h = o->head;
    uint8_t bytes[KV_HEAD_BYTES];
    char hex[33];
    h.seed = 0;
    kv_head_write(&h, bytes);
    hash_hex(hash_bytes(0, (struct str){(char *)bytes, sizeof bytes}), hex);
    snprintf(out, PATH_MAX, "%s/%s.%s", o->dir, hex, suffix);
}

static enum err open_file(const struct kv_disk_options *o, const char *suffix, int *fd,
                          struct errmsg *e)
{
    char path[PATH_MAX];
    path_of(o, suffix, path);
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (*fd < 0) return err_set(e, ERR_IO, "kv_disk: %s: %s", path, strerror(errno));
    if (!flock(*fd, LOCK_EX | LOCK_NB)) return OK;
    return err_set(e, ERR_UNAVAILABLE, "kv_disk: another engine uses %s", path);
}

/* Takes over what is there when it is ours, else begins anew. */
static enum err read_head(struct kv_disk *d, struct errmsg *e)
{
    uint8_t bytes[KV_HEAD_BYTES];
    struct kv_head h;
    if (!read_at(d->index_fd, bytes, sizeof bytes, 0) && !kv_head_read(bytes, sizeof bytes, &h) &&
        kv_head_same(&h, &d->o.head)) {
        d->o.head.seed = h.seed;
        return OK;
    }
    kv_head_write(&d->o.head, bytes);
    if (ftruncate(d->index_fd, 0) || write_at(d->index_fd, bytes, sizeof bytes, 0))
        return err_set(e, ERR_IO, "kv_disk: the index cannot be written: %s", strerror(errno));
    return OK;
}

static enum err open_files(struct kv_disk *d, struct errmsg *e)
{
    const struct kv_disk_options *o = &d->o;
    enum err code;
    uint64_t per_slot = o->head.block_bytes + d->entry_bytes,
             n = o->bytes_max > KV_HEAD_BYTES ? (o->bytes_max - KV_HEAD_BYTES) / per_slot : 0;
    if (!n)
        return err_set(e, ERR_RANGE,
                       "kv_disk_bytes: %llu do not hold one block of %llu bytes and its entry",
                       (unsigned long long)o->bytes_max, (unsigned long long)per_slot);
    d->n_slots = n < SLOTS_MAX ? (int)n : SLOTS_MAX;
    if (mkdir(o->dir, 0700) && errno != EEXIST)
        return err_set(e, ERR_IO, "kv_disk: %s: %s", o->dir, strerror(errno));
    if ((code = open_file(o, "index", &d->index_fd, e)) ||
        (code = open_file(o, "blocks", &d->block_fd, e)) || (code = read_head(d, e)))
        return code;
    /* both may have been made for another size: what is past this one is given back */
    if (ftruncate(d->index_fd, (off_t)entry_at(d, d->n_slots)) ||
        ftruncate(d->block_fd, (off_t)block_at(d, d->n_slots)))
        return err_set(e, ERR_IO, "kv_disk: %s: %s", o->dir, strerror(errno));
    return OK;
}

enum err kv_disk_open(struct kv_disk **out, const struct kv_disk_options *o, struct errmsg *e)
{
    *out = NULL;
    struct kv_disk *d = xcalloc(1, sizeof *d);
    d->o = *o;
    d->index_fd = d->block_fd = -1;
    d->entry_bytes = kv_entry_bytes(o->head.block_tokens);
    d->entry = xcalloc(1, d->entry_bytes);
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->wake, NULL);
    enum err code = open_files(d, e);
    if (code) {
        (void)kv_disk_close(d, 0);
        return code;
    }
    *out = d;
    return OK;
}

struct found {
    int slot;
    uint64_t stamp;
};

static int by_stamp(const void *a, const void *b)
{
    uint64_t x = ((const struct found *)a)->stamp, y = ((const struct found *)b)->stamp;
    return (x > y) - (x < y);
}

void kv_disk_list(struct kv_disk *d, void (*found)(void *arg, int slot, const struct kv_entry *e),
                  void *arg)
{
    ASSERT(!d->has_thread);
    size_t n_bytes = (size_t)d->n_slots * d->entry_bytes;
    uint8_t *entries = try_malloc(n_bytes);
    struct found *list = try_calloc((size_t)d->n_slots, sizeof *list);
    int32_t tokens[PREFIX_BLOCK_TOKENS_MAX];
    struct kv_entry e;
    int n = 0, bt = d->o.head.block_tokens;
    if (entries && list && !read_at(d->index_fd, entries, n_bytes, KV_HEAD_BYTES))
        for (int i = 0; i < d->n_slots; i++)
            if (!kv_entry_read(entries + (size_t)i * d->entry_bytes, bt, i, tokens, &e))
                list[n++] = (struct found){i, e.stamp};
    if (n) qsort(list, (size_t)n, sizeof *list, by_stamp);
    for (int i = 0; i < n; i++) {
        enum err code = kv_entry_read(entries + (size_t)list[i].slot * d->entry_bytes, bt,
                                      list[i].slot, tokens, &e);
        ASSERT(!code);
        d->stamp = e.stamp;
        found(arg, list[i].slot, &e);
    }
    mem_free(entries);
    mem_free(list);
    d->has_thread = !pthread_create(&d->thread, NULL, disk_main, d);
    ASSERT(d->has_thread);
}

static bool join(struct kv_disk *d, int wait_ms)
{
    struct timespec by;
    pthread_mutex_lock(&d->lock);
    d->closing = true;
    d->close_by_ms = clock_ms() + (uint64_t)wait_ms;
    pthread_cond_signal(&d->wake);
    pthread_mutex_unlock(&d->lock);
    clock_gettime(CLOCK_REALTIME, &by);
    by.tv_sec += (wait_ms + CLOSE_GRACE_MS) / 1000;
    return !pthread_timedjoin_np(d->thread, NULL, &by);
}

bool kv_disk_close(struct kv_disk *d, int wait_ms)
{
    if (!d) return true;
    if (d->has_thread && !join(d, wait_ms)) {
        log_error("engine", "the KV disk does not answer: its thread is left behind");
        return false;
    }
    if (d->index_fd >= 0) close(d->index_fd);
    if (d->block_fd >= 0) close(d->block_fd);
    pthread_mutex_destroy(&d->lock);
    pthread_cond_destroy(&d->wake);
    mem_free(d->entry);
    mem_free(d);
    return true;
}

uint64_t kv_disk_seed(const struct kv_disk *d)
{
    return d->o.head.seed;
}
int kv_disk_slots(const struct kv_disk *d)
{
    return d->n_slots;
}
