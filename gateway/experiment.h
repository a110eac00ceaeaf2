/* experiment.h - which arm of a running experiment a request belongs to. Arms differ in knobs of the cache's policy; whatever is split
 * by (tenant, the body's `user`, or the request itself) keeps its arm on every replica and over restarts: the arm is a function of the
 * recorded salt, the arms' names and shares, and the unit alone. Pure.
 * Source: weighted rendezvous hashing (Thaler & Ravishankar 1998; weights after Schindler & others): the arm with the largest
 * -share / ln(u) wins, u from a hash of salt, arm and unit. Changing one arm's share moves only units into or out of that arm. */
#ifndef DEJA_GATEWAY_EXPERIMENT_H
#define DEJA_GATEWAY_EXPERIMENT_H
#include "base/hash.h"
#include "base/json.h"

enum experiment_split { SPLIT_REQUEST, SPLIT_USER, SPLIT_TENANT };
enum { EXPERIMENT_ARMS_MAX = 8, EXPERIMENT_NAME_BYTES = 41 };

struct experiment_arm {
    char name[EXPERIMENT_NAME_BYTES];
    double percent;
};
struct experiment {
    char name[EXPERIMENT_NAME_BYTES], salt[EXPERIMENT_NAME_BYTES];
    char ns[65]; /* only requests of this namespace; "" = all */
    enum experiment_split split;
    struct experiment_arm arms[EXPERIMENT_ARMS_MAX];
    int n_arms; /* their shares sum up to 100 at most; the rest takes no part */
};

/* {"name","salt","ns","split","arms":[{"name","percent"}]}; ERR_INVALID says what is wrong. Other members are passed over. */
MUST enum err experiment_parse(struct experiment *out, const json_t *doc, struct errmsg *e);
/* Index of the arm, or -1: takes no part (another namespace, no user to split by, the rest of the shares). ns: the request's, may be
 * empty; user empty = the body has none. */
int experiment_arm(const struct experiment *x, struct str ns, struct str tenant, struct str user,
                   struct hash128 request);

#endif
