/* experiment.c - see experiment.h. */
#include "gateway/experiment.h"

#include <math.h>
#include <string.h>

static bool take_name(char *out, size_t cap, const json_t *object, const char *member)
{
    struct str s = json_member_str(object, member);
    if (!s.n || s.n >= cap || memchr(s.p, 0, s.n)) return false;
    memcpy(out, s.p, s.n);
    out[s.n] = 0;
    return true;
}

static bool take_split(enum experiment_split *out, const json_t *doc)
{
    static const char *const names[] = {"request", "user", "tenant"};
    struct str s = json_member_str(doc, "split");
    for (int i = 0; i < 3; i++)
        if (str_eqz(s, names[i])) return *out = (enum experiment_split)i, true;
    return false;
}

enum err experiment_parse(struct experiment *out, const json_t *doc, struct errmsg *e)
{
    struct experiment x = {0};
    const json_t *arms = json_object_get(doc, "arms");
    double sum = 0;
    if (!take_name(x.name, sizeof x.name, doc, "name"))
        return err_set(e, ERR_INVALID, "experiment.name: expected 1 to 40 bytes");
    if (!take_name(x.salt, sizeof x.salt, doc, "salt"))
        return err_set(e, ERR_INVALID, "experiment.salt: expected 1 to 40 bytes");
    if (json_member_str(doc, "ns").n && !take_name(x.ns, sizeof x.ns, doc, "ns"))
        return err_set(e, ERR_INVALID, "experiment.ns: expected at most 64 bytes");
    if (!take_split(&x.split, doc))
        return err_set(e, ERR_INVALID, "experiment.split: expected request, user or tenant");
    if (json_array_size(arms) < 2 || json_array_size(arms) > EXPERIMENT_ARMS_MAX)
        return err_set(e, ERR_INVALID, "experiment.arms: expected 2 to %d", EXPERIMENT_ARMS_MAX);
    for (size_t i = 0; i < json_array_size(arms); i++) {
        const json_t *arm = json_array_get(arms, i), *percent = json_object_get(arm, "percent");
        struct experiment_arm *a = &x.arms[x.n_arms++];
        a->percent = json_number_value(percent);
        sum += a->percent;
        if (!take_name(a->name, sizeof a->name, arm, "name") || !json_is_number(percent) ||
            !(a->percent > 0) || a->percent > 100 || sum > 100.001)
            return err_set(
                e, ERR_INVALID,
                "experiment.arms[%zu]: expected a name and a percent above 0, 100 in all", i);
    }
    *out = x;
    return OK;
}

/* -share / ln(u), u in (0,1) from the hash. */
static double score(const struct experiment *x, const char *arm, double percent, struct str unit)
{
    struct hasher h;
    hasher_open(&h, 0);
    hasher_field(&h, 's', str_of(x->salt));
    hasher_field(&h, 'a', str_of(arm));
    hasher_field(&h, 'u', unit);
    double u = ((double)(hasher_close(&h).lo >> 11) + 0.5) / 9007199254740992.0;
    return -percent / log(u);
}

int experiment_arm(const struct experiment *x, struct str ns, struct str tenant, struct str user,
                   struct hash128 request)
{
    char hex[33];
    double sum = 0, best = 0;
    int arm = -1;
    if (x->ns[0] && !str_eqz(ns, x->ns)) return -1;
    if (x->split == SPLIT_USER && !user.n) return -1;
    hash_hex(request, hex);
    /* two tenants' users of one name are two users */
    struct hasher h;
    hasher_open(&h, 0);
    if (x->split != SPLIT_REQUEST) hasher_field(&h, 't', tenant);
    if (x->split == SPLIT_USER) hasher_field(&h, 'u', user);
    if (x->split == SPLIT_REQUEST) hasher_field(&h, 'r', str_of(hex));
    hash_hex(hasher_close(&h), hex);
    for (int i = 0; i < x->n_arms; i++) {
        double s = score(x, x->arms[i].name, x->arms[i].percent, str_of(hex));
        sum += x->arms[i].percent;
        if (s > best) best = s, arm = i;
    }
    if (sum < 99.999 && score(x, "", 100 - sum, str_of(hex)) > best) return -1;
    return arm;
}
