/* tuning.h - keeps this gateway's settings those that Redis has: an event on the stream of changes is followed at once, and twice a
 * second the version is compared, so a change is in force within a second and one that was missed is caught up with. While Redis is
 * away the last known settings stay in force. Every change is logged: version, who, scope, name, old, new.
 * Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_TUNING_H
#define DEJA_GATEWAY_TUNING_H
#include "gateway/settings.h"

struct exchange;
struct gateway;
struct tuning;

/* Without Redis the start options are all there is. */
struct tuning *tuning_open(struct gateway *gw);
void tuning_close(struct tuning *t); /* NULL is fine */
const struct settings *
tuning_settings(const struct tuning *t); /* until the next turn of the loop */
/* Of the knob "route" or "fallback": as it is set, else the start option. The same. */
struct str tuning_text(const struct tuning *t, const char *knob);
bool tuning_known(const struct tuning *t); /* read once since the start; true without Redis */
/* Puts x's knobs and arm in place; x is keyed or not. */
void tuning_apply(struct exchange *x);
/* The key that names the key space in calls of Functions: "{ns}:config". */
struct str tuning_key(const struct gateway *gw, char out[96]);

#endif
