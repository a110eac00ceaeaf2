/* plan_probe.h - how fast this machine reads memory and multiplies, in about two seconds. Threading: starts its own threads. */
#ifndef DEJA_ENGINE_PLAN_PROBE_H
#define DEJA_ENGINE_PLAN_PROBE_H
#include "engine/plan.h"

/* Fills read_bytes_per_s and macs_per_s. n_threads and isa as in engine_options. */
MUST enum err plan_probe(struct plan_machine *out, int n_threads, const char *isa,
                         struct errmsg *e);

#endif
