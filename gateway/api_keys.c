/* api_keys.c - see api_keys.h. Sorted digests, binary search. */
#include "gateway/api_keys.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/crypto.h"
#include "base/mem.h"
#include "gateway/text_file.h"

enum { KEY_TRUST_MAX = 5 /* reviewed */, TRUST_MAX = 9 };
enum { KEYS_MAX = 100000, FILE_BYTES_MAX = 16 * 1024 * 1024, KEY_BYTES_MAX = 512 };

struct api_key {
    uint8_t digest[32];
    struct api_grant grant;
};
/* What holds of a tenant, whichever of its keys asked. */
struct api_tenant {
    char name[TENANT_BYTES];
    int trust, min_trust;
};
struct api_keys {
    struct api_key *items;
    size_t n, cap;
    struct api_tenant *tenants; /* by name */
    size_t n_tenants;
};

static int by_digest(const void *a, const void *b)
{
    return memcmp(((const struct api_key *)a)->digest, ((const struct api_key *)b)->digest, 32);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct api_tenant *)a)->name, ((const struct api_tenant *)b)->name);
}

static struct str next_word(struct str *line)
{
    *line = str_trim(*line);
    size_t n = 0;
    while (n < line->n && line->p[n] != ' ' && line->p[n] != '\t')
        n++;
    struct str word = str_sub(*line, 0, n);
    *line = str_trim(str_sub(*line, n, line->n - n));
    return word;
}

static bool tenant_is_good(struct str t)
{
    if (!t.n || t.n >= TENANT_BYTES) return false;
    for (size_t i = 0; i < t.n; i++) {
        char c = t.p[i];
        bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!word && c != '.' && c != '_' && c != '-') return false;
    }
    return true;
}

static bool read_level(int *out, struct str value, int max)
{
    int64_t v = 0;
    bool good = str_to_i64(value, 0, max, &v) == OK;
    *out = (int)v;
    return good;
}

/* `weight=2`, `class=batch`, `trust=0`. */
static bool read_word(struct api_grant *g, struct str word)
{
    struct str value = word, name;
    if (!str_next(&value, '=', &name)) return false;
    if (str_eqz(name, "weight"))
        return str_to_f64(value, &g->weight) == OK && g->weight >= 0.01 && g->weight <= 100;
    if (str_eqz(name, "trust")) return read_level(&g->trust, value, KEY_TRUST_MAX);
    if (str_eqz(name, "min_trust")) return read_level(&g->min_trust, value, TRUST_MAX);
    g->batch = str_eqz(value, "batch");
    return str_eqz(name, "class") && (g->batch || str_eqz(value, "online"));
}

static enum err add_line(struct api_keys *k, struct str line, const char *where, int line_no,
                         struct errmsg *e)
{
    struct str key = next_word(&line);
    if (!key.n || key.p[0] == '#') return OK;
    struct str tenant = next_word(&line);
    if (key.n > KEY_BYTES_MAX)
        return err_set(e, ERR_INVALID, "%s:%d: the key has more than %d bytes", where, line_no,
                       KEY_BYTES_MAX);
    struct api_grant grant = {.weight = 1, .trust = 1};
    bool good = tenant_is_good(tenant);
    for (struct str word; good && (word = next_word(&line)).n;)
        good = read_word(&grant, word);
    if (!good)
        return err_set(e, ERR_INVALID,
                       "%s:%d: expected `key tenant [weight=0.01..100] [class=online|batch] "
                       "[trust=0..5] [min_trust=0..9]`, the tenant 1 to 64 letters, digits, . _ -",
                       where, line_no);
    if (k->n == KEYS_MAX)
        return err_set(e, ERR_TOO_LARGE, "%s:%d: more than %d keys", where, line_no, KEYS_MAX);
    if (k->n == k->cap) {
        k->cap = k->cap ? k->cap * 2 : 16;
        k->items = xrealloc(k->items, k->cap * sizeof *k->items);
    }
    struct api_key *item = &k->items[k->n++];
    memset(item, 0, sizeof *item);
    sha256_bytes(key, item->digest);
    memcpy(grant.tenant, tenant.p, tenant.n);
    item->grant = grant;
    return OK;
}

static void gather_tenants(struct api_keys *k)
{
    struct api_tenant *all = xcalloc(k->n, sizeof *all);
    size_t n = 0;
    for (size_t i = 0; i < k->n; i++) {
        const struct api_grant *g = &k->items[i].grant;
        all[i] = (struct api_tenant){.trust = g->trust, .min_trust = g->min_trust};
        memcpy(all[i].name, g->tenant, sizeof all[i].name);
    }
    qsort(all, k->n, sizeof *all, by_name);
    for (size_t i = 0; i < k->n; i++) {
        struct api_tenant *last = n ? &all[n - 1] : NULL;
        if (!last || by_name(last, &all[i]) != 0) {
            all[n++] = all[i];
            continue;
        }
        if (all[i].trust < last->trust) last->trust = all[i].trust;
        if (all[i].min_trust > last->min_trust) last->min_trust = all[i].min_trust;
    }
    k->tenants = all;
    k->n_tenants = n;
}

enum err api_keys_parse(struct api_keys **out, struct str text, const char *where, struct errmsg *e)
{
    struct api_keys *k = xcalloc(1, sizeof *k);
    struct str line;
    enum err code = OK;
    for (int line_no = 1; code == OK && str_next(&text, '\n', &line); line_no++)
        code = add_line(k, line, where, line_no, e);
    if (code == OK && !k->n) code = err_set(e, ERR_INVALID, "%s: no key in it", where);
    if (code == OK) {
        qsort(k->items, k->n, sizeof *k->items, by_digest);
        for (size_t i = 1; i < k->n && code == OK; i++)
            if (!by_digest(&k->items[i - 1], &k->items[i]))
                code = err_set(e, ERR_INVALID, "%s: a key stands in it twice", where);
    }
    if (code != OK) {
        api_keys_free(k);
        return code;
    }
    gather_tenants(k);
    *out = k;
    return OK;
}

enum err api_keys_load(struct api_keys **out, const char *path, struct errmsg *e)
{
    struct buf text;
    buf_init(&text, FILE_BYTES_MAX);
    enum err code = text_file_read(&text, "api_keys", path, e);
    if (code == OK) code = api_keys_parse(out, buf_view(&text), path, e);
    if (text.p) memset(text.p, 0, text.n);
    buf_fini(&text);
    return code;
}

void api_keys_free(struct api_keys *k)
{
    if (!k) return;
    mem_free(k->items);
    mem_free(k->tenants);
    mem_free(k);
}

const struct api_grant *api_keys_find(const struct api_keys *k, struct str key)
{
    struct api_key wanted;
    if (!key.n || key.n > KEY_BYTES_MAX) return NULL;
    sha256_bytes(key, wanted.digest);
    const struct api_key *found = bsearch(&wanted, k->items, k->n, sizeof *k->items, by_digest);
    return found ? &found->grant : NULL;
}

size_t api_keys_count(const struct api_keys *k)
{
    return k->n;
}

void api_keys_of_tenant(const struct api_keys *k, const char *tenant, int *trust, int *min_trust)
{
    struct api_tenant wanted = {.trust = 1};
    str_copy(wanted.name, sizeof wanted.name, str_of(tenant));
    const struct api_tenant *found =
        bsearch(&wanted, k->tenants, k->n_tenants, sizeof *k->tenants, by_name);
    if (!found) found = &wanted;
    *trust = found->trust;
    *min_trust = found->min_trust;
}

void api_keys_open_tenant(struct str bearer, char out[TENANT_BYTES])
{
    char hex[65];
    if (!bearer.n) {
        memcpy(out, "public", sizeof "public");
        return;
    }
    sha256_hex(bearer, hex);
    memcpy(out, "key-", 4);
    memcpy(out + 4, hex, 24);
    out[28] = 0;
}

bool address_is_loopback(const char *host)
{
    struct str h = str_of(host);
    return str_starts(h, STR("127.")) || str_eqz(h, "::1") || str_eqz(h, "[::1]") ||
           str_ieq(h, STR("localhost"));
}
