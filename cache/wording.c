/* wording.c - see wording.h. */
#include "cache/wording.h"

#include <string.h>

bool wording_is(const struct str values[N_ENTRY_FIELDS])
{
    return values[EF_ROLE].p && str_eqz(values[EF_ROLE], "w");
}

static bool text_of(const struct str *values, enum entry_field f, size_t max, struct str *out)
{
    *out = values[f].p ? values[f] : (struct str){"", 0};
    return out->n <= max;
}

static bool hash_of(const struct str *values, enum entry_field f, struct hash128 *out)
{
    *out = (struct hash128){0, 0};
    return !values[f].p || !values[f].n || hash_from_hex(values[f], out) == OK;
}

static bool read_vetoes(struct str list, struct wording *out)
{
    struct str word;
    while (str_next(&list, ' ', &word)) {
        if (!word.n) continue;
        if (out->n_vetoed == WORDING_VETOES_MAX ||
            hash_from_hex(word, &out->vetoed[out->n_vetoed++]) != OK)
            return false;
    }
    return true;
}

enum err wording_read(struct hash128 id, const struct str values[N_ENTRY_FIELDS],
                      struct wording *out, struct errmsg *e)
{
    int64_t version = 0;
    const struct str none = {"", 0};
    memset(out, 0, sizeof *out);
    out->id = id;
    if (!values[EF_VERSION].p || str_to_i64(values[EF_VERSION], 1, INT64_MAX, &version) != OK)
        return err_set(e, ERR_CORRUPT, "wording field v: not a version");
    if (version > WORDING_VERSION)
        return err_set(e, ERR_UNSUPPORTED, "wording of version %lld, this program knows up to %d",
                       (long long)version, WORDING_VERSION);
    if (!text_of(values, EF_QUESTION, WORDING_TEXT_BYTES_MAX, &out->text) || !out->text.n)
        return err_set(e, ERR_CORRUPT, "wording field q: missing or too long");
    if (!values[EF_PARTITION].p || hash_from_hex(values[EF_PARTITION], &out->partition) != OK)
        return err_set(e, ERR_CORRUPT, "wording field part: not 32 hex digits");
    if (!hash_of(values, EF_OF, &out->of))
        return err_set(e, ERR_CORRUPT, "wording field of: not 32 hex digits");
    if (!read_vetoes(values[EF_NOT].p ? values[EF_NOT] : none, out))
        return err_set(e, ERR_CORRUPT, "wording field not: ids of 32 hex digits, at most %d",
                       WORDING_VETOES_MAX);
    if (!values[EF_CREATED].p || !values[EF_TTL].p ||
        str_to_i64(values[EF_CREATED], 1, INT64_MAX / 4, &out->created_s) != OK ||
        str_to_i64(values[EF_TTL], 1, INT64_MAX / 4, &out->ttl_s) != OK)
        return err_set(e, ERR_CORRUPT, "wording fields created, ttl: not numbers in range");
    if (!text_of(values, EF_TENANT, ENTRY_NAME_BYTES_MAX, &out->tenant) ||
        !text_of(values, EF_MODEL, ENTRY_NAME_BYTES_MAX, &out->model) ||
        !text_of(values, EF_NS, ENTRY_NAME_BYTES_MAX, &out->ns) ||
        !text_of(values, EF_BY, ENTRY_NAME_BYTES_MAX, &out->by) ||
        !text_of(values, EF_EMBEDDER, ENTRY_NAME_BYTES_MAX, &out->embedder) ||
        !text_of(values, EF_VECTOR, ENTRY_DIM_MAX * 2, &out->vector))
        return err_set(e, ERR_CORRUPT, "wording: a field is too long");
    return OK;
}
