/* kv_disk.h - blocks in a file: a bounded number of slots, read and written by one thread, so that whoever asks never waits for a disk.
 * Which slot
 * holds what, and which may be overwritten, is the caller's business (kv_tier.c); kv_disk_list tells what an earlier process left.
 * A block's entry is erased before its bytes are overwritten and written after them: a process killed at any moment leaves
 * entries that are whole or none, and bytes are checked again when they are read.
 * The folder holds one pair of files a model and layout (0600: they contain prompts). One process at a time uses a pair.
 * Threading: all calls from one thread (the step thread; open and list before it starts); notify is called from the disk's. */
#ifndef DEJA_ENGINE_KV_DISK_H
#define DEJA_ENGINE_KV_DISK_H
#include "engine/kv_file.h"

struct kv_disk;

struct kv_disk_options {
    const char *dir;           /* made when missing */
    uint64_t bytes_max;        /* of the pair of files */
    struct kv_head head;       /* seed: used when the files are new */
    void (*notify)(void *arg); /* a job is done: kv_disk_done has it. May be NULL */
    void *arg;
};

/* ERR_UNAVAILABLE: another process uses these files. ERR_IO, ERR_RANGE (not one block fits) with a sentence. */
MUST enum err kv_disk_open(struct kv_disk **out, const struct kv_disk_options *o, struct errmsg *e);
/* Queued writes are finished first, for at most wait_ms; reads are dropped. False: the thread hangs in the disk and was left behind,
 * with all
 * memory it was given. NULL is fine. */
bool kv_disk_close(struct kv_disk *d, int wait_ms);
uint64_t kv_disk_seed(const struct kv_disk *d); /* that of the file */
int kv_disk_slots(const struct kv_disk *d);
/* Calls found for every whole entry, the longest unused first. */
void kv_disk_list(struct kv_disk *d, void (*found)(void *arg, int slot, const struct kv_entry *e),
                  void *arg);

enum { KV_DISK_JOBS_MAX = 96 };
struct kv_disk_job {
    bool write;
    int slot;
    struct hash128 id, parent;
    int32_t tokens[PREFIX_BLOCK_TOKENS_MAX];
    void *bytes; /* [block_bytes], the disk's until the job is done */
    int place;   /* the caller's */
    /* ERR_CORRUPT (read): not what the name says, or damaged. ERR_IO. */
    enum err result;
};
/* Reads go before writes. False: KV_DISK_JOBS_MAX are on their way. */
bool kv_disk_submit(struct kv_disk *d, const struct kv_disk_job *job);
/* The next finished job; false: none. */
bool kv_disk_done(struct kv_disk *d, struct kv_disk_job *out);

#endif
