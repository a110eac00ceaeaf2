/* api_keys.c - see api_keys.h. Sorted digests, binary search. */
#include "gateway/api_keys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/crypto.h"
#include "base/mem.h"

enum { KEYS_MAX = 100000, FILE_BYTES_MAX = 16 * 1024 * 1024, KEY_BYTES_MAX = 512 };

struct api_key {
    uint8_t digest[32];
    char tenant[TENANT_BYTES];
};
struct api_keys {
    struct api_key *items;
    size_t n, cap;
};

static int by_digest(const void *a, const void *b)
{
    return memcmp(((const struct api_key *)a)->digest, ((const struct api_key *)b)->digest, 32);
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

static enum err add_line(struct api_keys *k, struct str line, const char *where, int line_no,
                         struct errmsg *e)
{
    struct str key = next_word(&line);
    if (!key.n || key.p[0] == '#') return OK;
    struct str tenant = next_word(&line);
    if (key.n > KEY_BYTES_MAX)
        return err_set(e, ERR_INVALID, "%s:%d: the key has more than %d bytes", where, line_no,
                       KEY_BYTES_MAX);
    if (!tenant_is_good(tenant) || line.n)
        return err_set(e, ERR_INVALID,
                       "%s:%d: expected `key tenant`, the tenant 1 to 64 letters, digits, . _ -",
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
    memcpy(item->tenant, tenant.p, tenant.n);
    return OK;
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
    *out = k;
    return OK;
}

enum err api_keys_load(struct api_keys **out, const char *path, struct errmsg *e)
{
    struct buf text;
    char piece[4096];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(e, ERR_NOT_FOUND, "api_keys: cannot open %s: %s", path, strerror(errno));
    buf_init(&text, FILE_BYTES_MAX);
    ssize_t got;
    while ((got = read(fd, piece, sizeof piece)) > 0)
        buf_add(&text, piece, (size_t)got);
    close(fd);
    enum err code;
    if (got < 0)
        code = err_set(e, ERR_IO, "api_keys: cannot read %s", path);
    else if (buf_failed(&text))
        code =
            err_set(e, ERR_TOO_LARGE, "api_keys: %s has more than %d bytes", path, FILE_BYTES_MAX);
    else
        code = api_keys_parse(out, buf_view(&text), path, e);
    if (text.p) memset(text.p, 0, text.n);
    buf_fini(&text);
    return code;
}

void api_keys_free(struct api_keys *k)
{
    if (!k) return;
    mem_free(k->items);
    mem_free(k);
}

struct str api_keys_find(const struct api_keys *k, struct str key)
{
    struct api_key wanted;
    if (!key.n || key.n > KEY_BYTES_MAX) return (struct str){0};
    sha256_bytes(key, wanted.digest);
    const struct api_key *found = bsearch(&wanted, k->items, k->n, sizeof *k->items, by_digest);
    return found ? str_of(found->tenant) : (struct str){0};
}

size_t api_keys_count(const struct api_keys *k)
{
    return k->n;
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
