/* bounds.c - see bounds.h. */
#include "cache/bounds.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { SLOTS = BOUNDS_ENTRIES_MAX * 2, RUN_MAX = 16 };

struct space {
    uint64_t name; /* hash of the namespace, 0 = free */
    uint64_t heard;
    struct bound bound;
};
struct slot {
    struct hash128 entry;
    uint64_t heard; /* 0 = free */
    struct bound_record record;
};
struct bounds {
    struct space *spaces;
    struct slot *
        slots; /* an entry lies within RUN_MAX places of its home; there the one heard of longest ago makes room */
    uint64_t heard;
};

struct bounds *bounds_new(void)
{
    return xcalloc(1, sizeof(struct bounds));
}

void bounds_free(struct bounds *b)
{
    if (!b) return;
    bounds_clear(b);
    mem_free(b);
}

void bounds_clear(struct bounds *b)
{
    mem_free(b->spaces);
    mem_free(b->slots);
    *b = (struct bounds){0};
}

static uint64_t name_of(struct str ns)
{
    uint64_t h = hash_bytes(0x6e73, ns).lo;
    return h ? h : 1;
}

static struct space *space_find(const struct bounds *b, uint64_t name)
{
    for (int i = 0; b->spaces && i < BOUNDS_NAMESPACES_MAX; i++)
        if (b->spaces[i].name == name) return &b->spaces[i];
    return NULL;
}

static struct space *space_make(struct bounds *b, uint64_t name)
{
    struct space *s = space_find(b, name);
    if (s) return s;
    if (!b->spaces) b->spaces = xcalloc(BOUNDS_NAMESPACES_MAX, sizeof *b->spaces);
    s = &b->spaces[0];
    for (int i = 1; i < BOUNDS_NAMESPACES_MAX && s->name; i++)
        if (!b->spaces[i].name || b->spaces[i].heard < s->heard) s = &b->spaces[i];
    s->name = name;
    bound_init(&s->bound);
    return s;
}

static struct slot *slot_find(const struct bounds *b, struct hash128 entry)
{
    size_t home = (size_t)(entry.lo ^ entry.hi);
    for (size_t i = 0; b->slots && i < RUN_MAX; i++) {
        struct slot *s = &b->slots[(home + i) % SLOTS];
        if (s->heard && hash_eq(s->entry, entry)) return s;
    }
    return NULL;
}

static struct slot *slot_make(struct bounds *b, struct hash128 entry)
{
    struct slot *s = slot_find(b, entry), *oldest = NULL;
    size_t home = (size_t)(entry.lo ^ entry.hi);
    if (s) return s;
    if (!b->slots) b->slots = try_calloc(SLOTS, sizeof *b->slots);
    for (size_t i = 0; b->slots && i < RUN_MAX; i++) {
        s = &b->slots[(home + i) % SLOTS];
        if (!oldest || s->heard < oldest->heard) oldest = s;
    }
    if (oldest) *oldest = (struct slot){.entry = entry};
    return oldest;
}

void bounds_learn(struct bounds *b, const struct evidence *e)
{
    struct space *space = space_make(b, name_of(e->ns));
    struct slot *slot = slot_make(b, e->entry);
    space->heard = ++b->heard;
    if (slot) slot->heard = b->heard;
    bound_learn(&space->bound, &e->v, slot ? &slot->record : NULL, e->right, e->weight);
}

const struct bound *bounds_of(const struct bounds *b, struct str ns)
{
    const struct space *s = space_find(b, name_of(ns));
    return s ? &s->bound : NULL;
}

const struct bound_record *bounds_record(const struct bounds *b, struct hash128 entry)
{
    const struct slot *s = slot_find(b, entry);
    return s ? &s->record : NULL;
}

/* --- as fields */
static const char *const field_names[EVIDENCE_FIELDS] = {
    "entry", "ns", "right", "weight", "cosine", "floor", "rival", "agree", "verifier", "zh"};

void evidence_write(const struct evidence *e, struct str names[EVIDENCE_FIELDS],
                    struct str values[EVIDENCE_FIELDS], char texts[EVIDENCE_TEXT_BYTES])
{
    const double numbers[EVIDENCE_FIELDS] = {
        0,          0,          e->right ? 1 : 0, e->weight,     e->v.cosine,
        e->v.floor, e->v.rival, e->v.agree,       e->v.verifier, e->v.chinese ? 1 : 0};
    for (int i = 0; i < EVIDENCE_FIELDS; i++) {
        char *at = texts + i * (EVIDENCE_TEXT_BYTES / EVIDENCE_FIELDS);
        int n = snprintf(at, EVIDENCE_TEXT_BYTES / EVIDENCE_FIELDS, "%.6g", numbers[i]);
        names[i] = str_of(field_names[i]);
        values[i] = (struct str){at, (size_t)n};
    }
    hash_hex(e->entry, texts);
    values[0] = (struct str){texts, 32};
    values[1] = e->ns;
}

static enum err number_of(struct str text, double min, double max, double *out)
{
    if (str_to_f64(text, out) != OK || *out < min || *out > max) return ERR_CORRUPT;
    return OK;
}

enum err evidence_read(const struct str *fields, size_t n_fields, struct evidence *out)
{
    struct str v[EVIDENCE_FIELDS] = {{NULL, 0}};
    double right, zh;
    for (size_t i = 0; i + 1 < n_fields; i += 2)
        for (int k = 0; k < EVIDENCE_FIELDS; k++)
            if (str_eqz(fields[i], field_names[k])) v[k] = fields[i + 1];
    memset(out, 0, sizeof *out);
    if (!v[1].p || hash_from_hex(v[0], &out->entry) != OK) return ERR_CORRUPT;
    out->ns = v[1];
    if (number_of(v[2], 0, 1, &right) != OK || number_of(v[3], 0, 1, &out->weight) != OK ||
        number_of(v[4], -1.01, 1.01, &out->v.cosine) != OK ||
        number_of(v[5], -1, 1, &out->v.floor) != OK ||
        number_of(v[6], -1.01, 1.01, &out->v.rival) != OK ||
        number_of(v[7], 0, 1, &out->v.agree) != OK ||
        number_of(v[8], -1, 1, &out->v.verifier) != OK || number_of(v[9], 0, 1, &zh) != OK)
        return ERR_CORRUPT;
    out->right = right >= 0.5;
    out->v.chinese = zh >= 0.5;
    return OK;
}
