/* kv_batch.c - see kv_batch.h. Positional and named fields take the same way: a position is a name. */
#include "cache/kv_batch.h"

#include <string.h>

#include "base/mem.h"
#include "base/msgpack.h"

enum { BLOCK_TOKENS_MAX = 4096, GROUPS_MAX = 1 << 16 };

struct reading {
    struct kv_event ev;
    bool known;
    uint64_t *hashes;
    int32_t *tokens;
};

static uint64_t fold(struct str bytes)
{
    uint64_t v = 0;
    for (size_t i = bytes.n > 8 ? bytes.n - 8 : 0; i < bytes.n; i++)
        v = v << 8 | (uint8_t)bytes.p[i];
    return v;
}

static enum err read_hash(struct msgpack *m, uint64_t *out)
{
    struct msgpack_value v;
    if (msgpack_next(m, &v) != OK) return ERR_CORRUPT;
    if (v.kind != MSGPACK_INT && v.kind != MSGPACK_BIN && v.kind != MSGPACK_STR) return ERR_CORRUPT;
    *out = v.kind == MSGPACK_INT ? v.number : fold(v.bytes);
    return OK;
}

static enum err read_hashes(struct msgpack *m, struct reading *r)
{
    struct msgpack_value v;
    if (msgpack_next(m, &v) != OK || v.kind != MSGPACK_ARRAY) return ERR_CORRUPT;
    mem_free(r->hashes);
    r->hashes = try_calloc(v.n + 1, sizeof *r->hashes);
    if (!r->hashes) return ERR_FULL;
    for (uint32_t i = 0; i < v.n; i++)
        if (read_hash(m, &r->hashes[i]) != OK) return ERR_CORRUPT;
    r->ev.hashes = r->hashes;
    r->ev.n_hashes = v.n;
    return OK;
}

static enum err read_tokens(struct msgpack *m, struct reading *r)
{
    struct msgpack_value v;
    if (msgpack_next(m, &v) != OK) return ERR_CORRUPT;
    if (v.kind == MSGPACK_NIL) return OK;
    if (v.kind != MSGPACK_ARRAY) return ERR_CORRUPT;
    uint32_t n = v.n;
    mem_free(r->tokens);
    r->tokens = try_calloc((size_t)n + 1, sizeof *r->tokens);
    if (!r->tokens) return ERR_FULL;
    for (uint32_t i = 0; i < n; i++) {
        if (msgpack_next(m, &v) != OK) return ERR_CORRUPT;
        if (v.kind == MSGPACK_INT && !v.negative && v.number <= INT32_MAX) {
            r->tokens[i] = (int32_t)v.number;
            continue;
        }
        r->ev.plain = false; /* pairs of tokens and the like: not ours to understand */
        if (v.kind != MSGPACK_ARRAY && v.kind != MSGPACK_MAP) continue;
        for (uint64_t k = v.kind == MSGPACK_MAP ? 2 * (uint64_t)v.n : v.n; k; k--)
            if (msgpack_skip(m) != OK) return ERR_CORRUPT;
    }
    r->ev.tokens = r->tokens;
    r->ev.n_tokens = n;
    return OK;
}

static enum prefix_tier tier_of(struct str medium)
{
    if (str_ieq(medium, STR("cpu")) || str_ieq(medium, STR("cpu_pinned")) ||
        str_ieq(medium, STR("cpu_tier1")) || str_ieq(medium, STR("host")))
        return PREFIX_HOST;
    return !medium.n || str_ieq(medium, STR("gpu")) ? PREFIX_DEVICE : PREFIX_DISK;
}

static enum err read_number(struct msgpack *m, uint64_t max, int *out)
{
    struct msgpack_value v;
    if (msgpack_next(m, &v) != OK) return ERR_CORRUPT;
    if (v.kind == MSGPACK_NIL) return OK;
    if (v.kind != MSGPACK_INT || v.negative || v.number > max) return ERR_CORRUPT;
    *out = (int)v.number;
    return OK;
}

/* Anything but nil, and empty or all-nil lists, makes the event one of its own kind. */
static enum err read_extra(struct msgpack *m, struct reading *r)
{
    struct msgpack_value v;
    if (msgpack_next(m, &v) != OK) return ERR_CORRUPT;
    if (v.kind == MSGPACK_NIL) return OK;
    if (v.kind != MSGPACK_ARRAY) r->ev.plain = false;
    for (uint64_t k = v.kind == MSGPACK_MAP     ? 2 * (uint64_t)v.n
                      : v.kind == MSGPACK_ARRAY ? v.n
                                                : 0;
         k; k--) {
        if (m->p < m->end && *m->p != 0xc0) r->ev.plain = false;
        if (msgpack_skip(m) != OK) return ERR_CORRUPT;
    }
    return OK;
}

static enum err read_field(struct msgpack *m, struct str name, struct reading *r)
{
    struct msgpack_value v;
    struct msgpack at = *m;
    if (str_eqz(name, "block_hashes")) return read_hashes(m, r);
    if (str_eqz(name, "token_ids")) return read_tokens(m, r);
    if (str_eqz(name, "block_size")) return read_number(m, BLOCK_TOKENS_MAX, &r->ev.block_tokens);
    if (str_eqz(name, "group_idx")) return read_number(m, GROUPS_MAX, &r->ev.group);
    if (str_eqz(name, "extra_keys")) return read_extra(m, r);
    if (msgpack_skip(m) != OK || msgpack_next(&at, &v) != OK) return ERR_CORRUPT;
    bool nil = v.kind == MSGPACK_NIL;
    if (str_eqz(name, "lora_id") || str_eqz(name, "lora_name")) r->ev.plain &= nil;
    if (str_eqz(name, "medium") && v.kind == MSGPACK_STR) r->ev.tier = tier_of(v.bytes);
    if (str_eqz(name, "parent_block_hash") && !nil) {
        r->ev.has_parent = true;
        r->ev.parent = v.kind == MSGPACK_INT ? v.number : fold(v.bytes);
    }
    return OK;
}

static void read_type(struct str type, struct reading *r)
{
    r->known = true;
    if (str_eqz(type, "BlockStored"))
        r->ev.kind = KV_EVENT_STORED;
    else if (str_eqz(type, "BlockRemoved"))
        r->ev.kind = KV_EVENT_REMOVED;
    else if (str_eqz(type, "AllBlocksCleared"))
        r->ev.kind = KV_EVENT_CLEARED;
    else
        r->known = false;
}

static enum err read_array_event(struct msgpack *m, uint32_t n, struct reading *r)
{
    static const char *const stored[] = {"block_hashes", "parent_block_hash", "token_ids",
                                         "block_size",   "lora_id",           "medium",
                                         "lora_name",    "extra_keys",        "group_idx"},
                             *const removed[] = {"block_hashes", "medium", "group_idx"};
    struct msgpack_value tag;
    if (!n || msgpack_next(m, &tag) != OK || tag.kind != MSGPACK_STR) return ERR_CORRUPT;
    read_type(tag.bytes, r);
    bool is_stored = r->ev.kind == KV_EVENT_STORED, is_removed = r->ev.kind == KV_EVENT_REMOVED;
    for (uint32_t i = 0; i + 1 < n; i++) {
        const char *name = !r->known             ? ""
                           : is_stored && i < 9  ? stored[i]
                           : is_removed && i < 3 ? removed[i]
                                                 : "";
        enum err code = read_field(m, str_of(name), r);
        if (code != OK) return code;
    }
    return OK;
}

static enum err read_map_event(struct msgpack *m, uint32_t n, struct reading *r)
{
    struct msgpack_value name;
    for (uint32_t i = 0; i < n; i++) {
        if (msgpack_next(m, &name) != OK || name.kind != MSGPACK_STR) return ERR_CORRUPT;
        if (str_eqz(name.bytes, "type")) {
            struct msgpack_value type;
            if (msgpack_next(m, &type) != OK || type.kind != MSGPACK_STR) return ERR_CORRUPT;
            read_type(type.bytes, r);
            continue;
        }
        enum err code = read_field(m, name.bytes, r);
        if (code != OK) return code;
    }
    return OK;
}

static enum err read_event(struct msgpack *m, int rank,
                           void (*on_event)(void *arg, const struct kv_event *ev), void *arg)
{
    struct msgpack_value v;
    struct reading r = {.ev = {.plain = true, .rank = rank}};
    if (msgpack_next(m, &v) != OK || (v.kind != MSGPACK_ARRAY && v.kind != MSGPACK_MAP))
        return ERR_CORRUPT;
    enum err code =
        v.kind == MSGPACK_ARRAY ? read_array_event(m, v.n, &r) : read_map_event(m, v.n, &r);
    if (code == OK && r.known) on_event(arg, &r.ev);
    mem_free(r.hashes);
    mem_free(r.tokens);
    return code;
}

/* Finds the list of events and the rank, which stands behind it. */
static enum err read_frame(struct msgpack *m, struct msgpack *events, int *rank)
{
    struct msgpack_value v, name;
    bool found = false;
    if (msgpack_next(m, &v) != OK || (v.kind != MSGPACK_ARRAY && v.kind != MSGPACK_MAP))
        return ERR_CORRUPT;
    for (uint32_t i = 0; i < v.n; i++) {
        struct str field = i == 1 ? STR("events") : i == 2 ? STR("data_parallel_rank") : STR("");
        if (v.kind == MSGPACK_MAP) {
            if (msgpack_next(m, &name) != OK || name.kind != MSGPACK_STR) return ERR_CORRUPT;
            field = name.bytes;
        }
        bool is_rank = str_eqz(field, "data_parallel_rank");
        if (str_eqz(field, "events")) *events = *m, found = true;
        enum err code = is_rank ? read_number(m, 1 << 16, rank) : msgpack_skip(m);
        if (code != OK) return code;
    }
    return found ? OK : ERR_CORRUPT;
}

enum err kv_batch_read(struct str payload, void (*on_event)(void *arg, const struct kv_event *ev),
                       void *arg)
{
    struct msgpack m = msgpack_of(payload), events;
    struct msgpack_value v;
    int rank = 0;
    enum err code = read_frame(&m, &events, &rank);
    if (code != OK) return code;
    if (msgpack_next(&events, &v) != OK || v.kind != MSGPACK_ARRAY) return ERR_CORRUPT;
    for (uint32_t i = 0; i < v.n && code == OK; i++)
        code = read_event(&events, rank, on_event, arg);
    return code;
}
