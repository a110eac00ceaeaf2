/* kv_transfer.h - KV blocks out of and into a running engine, for others to carry (server_give.c, server_fetch.c): the blocks of a request
 * whose prompt is computed here for another engine, handed out in order as they become full; and blocks that another engine computed, put
 * into the host tier as if they had been spilled, where the next prompt that begins with them finds them.
 * Knows no wire and no HTTP; whoever brings a block has checked it. Never waits. Threading: the step thread, but engine_import. */
#ifndef DEJA_ENGINE_KV_TRANSFER_H
#define DEJA_ENGINE_KV_TRANSFER_H
#include "engine/engine_private.h"

/* NULL where o wants no blocks. */
struct kv_export *kv_export_new(const struct engine_submit_options *o);
/* Copies what may be copied now, for about a millisecond; ends exports that have nothing more to come. True: something was done. */
bool kv_transfer_export(struct engine *g);
/* Nothing more of r's blocks is wanted, or can be had. */
void kv_export_end(struct request *r);
bool kv_export_is_over(const struct request *r); /* also where there is none */
/* Before requests of this turn are handed to the scheduler: what engine_import brought. */
void kv_transfer_import(struct engine *g);
void kv_imports_free(struct engine *g); /* what was never taken */

#endif
