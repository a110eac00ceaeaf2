/* entry.c - entries in memory, as Redis fields, and the checks before one is used. */
#include "cache/entry.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "base/mem.h"

const char *const entry_field_names[N_ENTRY_FIELDS] = {
    "v",   "check", "part", "tenant", "model", "kind", "q",   "a",  "created",
    "ttl", "tags",  "ptok", "ctok",   "lat",   "emb",  "vec", "ns", "trust",
    "ep",  "ah",    "pin",  "net",    "role",  "of",   "not", "by"};

static struct str place(char **at, struct str s)
{
    struct str out = {*at, s.n};
    if (s.n) memcpy(*at, s.p, s.n);
    *at += s.n;
    return out;
}

struct entry *entry_copy(const struct entry *from)
{
    size_t n = sizeof *from + from->tenant.n + from->model.n + from->question.n + from->answer.n +
               from->tags.n + from->embedder.n + from->vector.n + from->ns.n + 1;
    struct entry *e = try_malloc(n);
    if (!e) return NULL;
    *e = *from;
    char *at = (char *)(e + 1);
    e->tenant = place(&at, from->tenant);
    e->model = place(&at, from->model);
    e->question = place(&at, from->question);
    e->answer = place(&at, from->answer);
    e->tags = place(&at, from->tags);
    e->embedder = place(&at, from->embedder);
    e->vector = place(&at, from->vector);
    e->ns = place(&at, from->ns);
    e->tokens = (struct str){"", 0};
    e->bytes = n;
    return e;
}

void entry_free(struct entry *e)
{
    mem_free(e);
}

struct field_reader {
    const struct str *values;
    size_t n;
    struct errmsg *e;
    enum err code;
};

static void spoil(struct field_reader *r, enum entry_field f, const char *why)
{
    if (r->code == OK)
        r->code = err_set(r->e, ERR_CORRUPT, "entry field %s: %s", entry_field_names[f], why);
}

static struct str text_field(struct field_reader *r, enum entry_field f, size_t max, bool required)
{
    struct str s = (size_t)f < r->n ? r->values[f] : (struct str){NULL, 0};
    if (!s.p) {
        if (required) spoil(r, f, "missing");
        return (struct str){"", 0};
    }
    if (s.n > max) spoil(r, f, "too long");
    return s;
}

static int64_t number_field(struct field_reader *r, enum entry_field f, int64_t min, int64_t max,
                            bool required)
{
    struct str s = text_field(r, f, 20, required);
    int64_t v = 0;
    if ((s.n || required) && str_to_i64(s, min, max, &v) != OK)
        spoil(r, f, "not a number in range");
    return v;
}

static uint64_t hex_field(struct field_reader *r, enum entry_field f)
{
    struct str s = text_field(r, f, 16, false);
    uint64_t v = 0;
    for (size_t i = 0; i < s.n; i++) {
        int c = s.p[i], digit = c >= '0' && c <= '9'   ? c - '0'
                                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                                       : -1;
        if (digit < 0) {
            spoil(r, f, "not hex digits");
            return 0;
        }
        v = v << 4 | (uint64_t)digit;
    }
    return v;
}

static struct hash128 hash_field(struct field_reader *r, enum entry_field f, bool required)
{
    struct str s = text_field(r, f, 32, required);
    struct hash128 h = {0, 0};
    if ((s.n || required) && hash_from_hex(s, &h) != OK) spoil(r, f, "not 32 hex digits");
    return h;
}

enum err entry_read(struct hash128 id, const struct str *values, size_t n, bool need_answer,
                    struct entry *out, struct errmsg *e)
{
    struct field_reader r = {.values = values, .n = n, .e = e};
    memset(out, 0, sizeof *out);
    int64_t version = number_field(&r, EF_VERSION, 1, INT64_MAX, true);
    if (r.code == OK && version > ENTRY_VERSION)
        return err_set(e, ERR_UNSUPPORTED, "entry of version %lld, this program knows up to %d",
                       (long long)version, ENTRY_VERSION);
    out->id = id;
    out->check = hash_field(&r, EF_CHECK, true);
    out->partition = hash_field(&r, EF_PARTITION, false);
    out->tenant = text_field(&r, EF_TENANT, ENTRY_NAME_BYTES_MAX, true);
    out->model = text_field(&r, EF_MODEL, ENTRY_NAME_BYTES_MAX, true);
    int64_t kind = number_field(&r, EF_KIND, OPENAI_CHAT, OPENAI_EMBEDDING, true);
    out->kind = kind == OPENAI_COMPLETION  ? OPENAI_COMPLETION
                : kind == OPENAI_EMBEDDING ? OPENAI_EMBEDDING
                                           : OPENAI_CHAT;
    out->question = text_field(&r, EF_QUESTION, ENTRY_QUESTION_BYTES_MAX, false);
    out->answer = text_field(&r, EF_ANSWER, ENTRY_ANSWER_BYTES_MAX, need_answer);
    out->created_s = number_field(&r, EF_CREATED, 1, INT64_MAX / 4, true);
    out->ttl_s = number_field(&r, EF_TTL, 1, INT64_MAX / 4, true);
    out->tags = text_field(&r, EF_TAGS, ENTRY_NAME_BYTES_MAX, false);
    out->prompt_tokens = number_field(&r, EF_PROMPT_TOKENS, 0, INT64_MAX / 4, false);
    out->completion_tokens = number_field(&r, EF_COMPLETION_TOKENS, 0, INT64_MAX / 4, false);
    out->latency_ms = number_field(&r, EF_LATENCY, 0, INT64_MAX / 4, false);
    out->embedder = text_field(&r, EF_EMBEDDER, ENTRY_NAME_BYTES_MAX, false);
    out->vector = text_field(&r, EF_VECTOR, ENTRY_DIM_MAX * 2, false);
    if (out->vector.n % 2) spoil(&r, EF_VECTOR, "odd length");
    out->ns = text_field(&r, EF_NS, ENTRY_NAME_BYTES_MAX, false);
    out->trust = (int)number_field(&r, EF_TRUST, 0, TRUST_OPERATOR, false);
    out->epoch = number_field(&r, EF_EPOCH, 0, INT64_MAX / 4, false);
    out->answer_hash = hex_field(&r, EF_ANSWER_HASH);
    out->pinned = number_field(&r, EF_PINNED, 0, 1, false) == 1;
    if (text_field(&r, EF_ROLE, 16, false).n) spoil(&r, EF_ROLE, "not an entry");
    return r.code;
}

void entry_write(const struct entry *e, struct str values[N_ENTRY_FIELDS],
                 char texts[ENTRY_TEXTS_BYTES])
{
    char *at = texts, *end = texts + ENTRY_TEXTS_BYTES;
    const struct {
        enum entry_field f;
        int64_t v;
    } numbers[] = {{EF_VERSION, ENTRY_VERSION},
                   {EF_KIND, e->kind},
                   {EF_CREATED, e->created_s},
                   {EF_TTL, e->ttl_s},
                   {EF_PROMPT_TOKENS, e->prompt_tokens},
                   {EF_COMPLETION_TOKENS, e->completion_tokens},
                   {EF_LATENCY, e->latency_ms},
                   {EF_TRUST, e->trust},
                   {EF_EPOCH, e->epoch}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int n = snprintf(at, (size_t)(end - at), "%lld", (long long)numbers[i].v);
        values[numbers[i].f] = (struct str){at, (size_t)n};
        at += n + 1;
    }
    hash_hex(e->check, at);
    values[EF_CHECK] = (struct str){at, 32};
    at += 33;
    hash_hex(e->partition, at);
    values[EF_PARTITION] = (struct str){at, 32};
    at += 33;
    int n = snprintf(at, (size_t)(end - at), "%016llx", (unsigned long long)e->answer_hash);
    values[EF_ANSWER_HASH] = (struct str){at, (size_t)n};
    ASSERT(at + 17 <= end);
    values[EF_TENANT] = e->tenant;
    values[EF_MODEL] = e->model;
    values[EF_QUESTION] = e->question;
    values[EF_ANSWER] = e->answer;
    values[EF_TAGS] = e->tags;
    values[EF_EMBEDDER] = e->embedder;
    values[EF_VECTOR] = e->vector;
    values[EF_NS] = e->ns;
    values[EF_TOKENS] = e->tokens;
    values[EF_PINNED] = e->pinned ? STR("1") : STR("0");
    for (int f = N_ENTRY_WRITTEN; f < N_ENTRY_FIELDS; f++)
        values[f] = (struct str){NULL, 0};
}

uint64_t entry_answer_hash(const struct openai_answer *a)
{
    struct buf text;
    buf_init(&text, ENTRY_ANSWER_BYTES_MAX);
    for (int i = 0; i < a->n_choices; i++) {
        json_write_canonical(&text, a->choices[i].message);
        buf_char(&text, '\n');
    }
    uint64_t h = hash_bytes(0x616e7377, buf_view(&text)).lo;
    buf_fini(&text);
    return h ? h : 1;
}

bool entry_expired(const struct entry *e, int64_t now_s)
{
    return now_s >= e->created_s + e->ttl_s;
}

bool entry_fits_exact(const struct entry *e, const struct cache_key *k)
{
    return hash_eq(e->id, k->exact) && hash_eq(e->check, k->check) && e->kind == k->kind &&
           str_eq(e->tenant, k->tenant) && str_eq(e->model, k->model) &&
           str_eq(e->question, str_sub(k->user_text, 0, ENTRY_QUESTION_BYTES_MAX));
}

bool entry_fits_partition(const struct entry *e, const struct cache_key *k)
{
    return hash_eq(e->partition, k->partition) && e->kind == k->kind &&
           str_eq(e->tenant, k->tenant) && str_eq(e->model, k->model);
}

bool entry_fits_curated(const struct entry *e, const struct cache_key *k, struct hash128 partition)
{
    bool all = hash_eq(partition, k->curated[1]);
    if (!all && !hash_eq(partition, k->curated[0])) return false;
    return hash_eq(e->partition, partition) && e->kind == k->kind && str_eq(e->ns, k->ns) &&
           (all ? str_eqz(e->tenant, "*") : str_eq(e->tenant, k->tenant)) &&
           (!e->model.n || str_eq(e->model, k->model)) &&
           (k->max_tokens < 0 || e->completion_tokens <= k->max_tokens);
}

void entry_pack_vector(const float *v, size_t dim, unsigned char *out)
{
    for (size_t i = 0; i < dim; i++) {
        uint16_t h = f32_to_f16(v[i]);
        out[2 * i] = (unsigned char)(h & 255u);
        out[2 * i + 1] = (unsigned char)(h >> 8);
    }
}

enum err entry_unpack_vector(struct str bytes, size_t dim, float *out)
{
    const unsigned char *b = (const unsigned char *)bytes.p;
    double length = 0;
    if (bytes.n != dim * 2) return ERR_CORRUPT;
    for (size_t i = 0; i < dim; i++) {
        out[i] = f16_to_f32((uint16_t)(b[2 * i] | b[2 * i + 1] << 8));
        length += (double)out[i] * (double)out[i];
    }
    length = sqrt(length);
    if (!(length > 0.99 && length < 1.01)) return ERR_CORRUPT; /* NaN fails too */
    for (size_t i = 0; i < dim; i++)
        out[i] = (float)(out[i] / length);
    return OK;
}
