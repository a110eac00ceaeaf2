/* settings.h - what the operator has set, as Redis tells it (lua/config.lua): knobs for everybody, for a namespace, for an arm of the
 * running experiment. A narrower scope wins: the gateway's start options < global < ns:NAMESPACE < arm. Settings never change once
 * made; a newer version replaces the whole. Limits have scopes of their own (limit_rules.h). What this program does not know (a newer
 * one's knob) is passed over and counted. Pure. */
#ifndef DEJA_GATEWAY_SETTINGS_H
#define DEJA_GATEWAY_SETTINGS_H
#include "cache/knobs.h"
#include "gateway/experiment.h"
#include "gateway/limit_rules.h"

struct settings;
enum { SETTINGS_MAX = 4096 };

/* Nothing set, version 0. base: from the start options. Free with settings_free. */
struct settings *settings_new(const struct cache_knobs *base);
/* {"version":n,"settings":[{"scope","name","value"}],"experiment":null|{...}}. ERR_INVALID: no such document; *out is untouched. */
MUST enum err settings_parse(struct settings **out, const json_t *doc,
                             const struct cache_knobs *base, struct errmsg *e);
void settings_free(struct settings *s);
uint64_t settings_version(const struct settings *s);
size_t settings_count(const struct settings *s);                        /* in force */
size_t settings_passed(const struct settings *s);                       /* passed over */
const struct experiment *settings_experiment(const struct settings *s); /* NULL = none */
const struct limit_rules *settings_limits(const struct settings *s);
/* A knob that is a text (knob_texts), as it is set; p NULL = it is not. Borrowed. */
struct str settings_text(const struct settings *s, const char *name);
/* ns empty = no namespace; arm -1 = no arm. */
struct cache_knobs settings_knobs(const struct settings *s, struct str ns, int arm);

#endif
