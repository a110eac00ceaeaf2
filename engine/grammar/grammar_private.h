/* grammar_private.h - private to engine/grammar: a compiled grammar, where a text stands in it, and the work memory of a thread. */
#ifndef DEJA_ENGINE_GRAMMAR_GRAMMAR_PRIVATE_H
#define DEJA_ENGINE_GRAMMAR_GRAMMAR_PRIVATE_H
#include <stdatomic.h>

#include "engine/grammar/json_rules.h"
#include "engine/grammar/mask_cache.h"
#include "engine/grammar/vocab_trie.h"

struct grammar {
    _Atomic int refs;
    uint64_t id; /* for caches */
    const struct grammar_vocab *vocab;
    struct program program;
    uint32_t n_shared; /* states below are the same in every grammar of this vocabulary */
};
/* Different each time; any thread. */
uint64_t grammar_new_id(void);

enum { STACKS_MAX = 32 };

/* One frame of a kept stack. */
struct kept_frame {
    uint32_t state, need, left;
};
/* Alternatives that the text so far leaves open; usually one. Stacks lie one after the other, each from its bottom. */
struct grammar_state {
    struct grammar *g;
    int n_stacks, depth[STACKS_MAX];
    struct kept_frame *frame;
    int n_frames, cap_frames;
};

/* A frame in the work memory: stacks share what lies below. Index 0 is none. */
struct frame {
    uint32_t parent, state, need, left;
    int depth; /* frames from the bottom to here */
};
/* One alternative is the index of its top frame. */
struct config_set {
    uint32_t config[STACKS_MAX];
    int n;
};
struct grammar_run {
    struct frame *frame;
    uint32_t n_frames;
    struct config_set set[TRIE_DEPTH_MAX + 1]; /* of each depth of a walk over the trie */
    uint32_t frames_at[TRIE_DEPTH_MAX + 1];
    struct grammar_state *trial, *after; /* bytes half read; what a state is about to become */
    struct mask_cache *cache;
    uint32_t *bits, *one; /* [n_words] of the largest vocabulary seen */
    int n_words;
};

/* run.c: stacks and bytes */
void run_reset(struct grammar_run *r);
/* The top of one kept stack in the work memory. */
uint32_t run_load(struct grammar_run *r, const struct kept_frame *bottom, int depth);
void run_load_all(struct grammar_run *r, const struct grammar_state *s, struct config_set *out);
/* s becomes the alternatives of the set, or gets them too (up to STACKS_MAX in all); none is there twice. */
void run_store(const struct grammar_run *r, const struct config_set *set, struct grammar_state *s);
void run_append(const struct grammar_run *r, const struct config_set *set, struct grammar_state *s);
/* Every way in which the alternatives read this byte; at most STACKS_MAX are followed (each alone can be completed). */
void run_step(struct grammar_run *r, const struct program *p, const struct config_set *from,
              uint8_t byte, struct config_set *out);
/* state.c: bytes that every way on from the alternatives in r->set[0] begins with. */
size_t run_forced(struct grammar_run *r, const struct program *p, char *out, size_t cap);
bool run_may_end(const struct grammar_run *r, const struct program *p, uint32_t config);
/* Adds the bytes that may come next (a few too many near the limit of depth). */
void run_next_bytes(const struct grammar_run *r, const struct program *p, uint32_t config,
                    struct byte_set *out);

#endif
