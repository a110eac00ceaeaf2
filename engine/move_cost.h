/* move_cost.h - what it takes to move a KV block between the pool and host memory, as it was measured. A slow measurement (memory that had
 * no pages yet, a busy machine) makes the scheduler move nothing, and then nothing would be measured any more: what is not tried is
 * therefore forgotten step by step. Pure. */
#ifndef DEJA_ENGINE_MOVE_COST_H
#define DEJA_ENGINE_MOVE_COST_H

struct move_cost {
    double us;    /* of one block; 0 = not measured yet */
    double least; /* no memory is faster */
};

static inline struct move_cost move_cost_of(double block_bytes)
{
    return (struct move_cost){0, block_bytes / 20e3}; /* 20 GB/s */
}

/* One block took us microseconds; a clean measurement. */
static inline void move_cost_told(struct move_cost *c, double us)
{
    c->us = c->us > 0 ? 0.9 * c->us + 0.1 * us : us;
}

/* A step went by in which nothing was moved. */
static inline void move_cost_untried(struct move_cost *c)
{
    if (c->us > c->least) c->us += 0.005 * (c->least - c->us);
}

#endif
