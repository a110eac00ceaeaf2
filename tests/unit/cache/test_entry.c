/* test_entry.c - goal: what is written is read back alike, and nothing malformed, foreign or stale is taken for an entry.
 * Method: round trips, one field spoilt at a time, vectors against their originals. */
#include "cache/entry.h"

#include <math.h>

#include "base/mem.h"
#include "base/rng.h"
#include "tests/check.h"

static struct entry sample(unsigned char *vec, size_t dim)
{
    float v[64];
    for (size_t i = 0; i < dim; i++)
        v[i] = 1.0f / sqrtf((float)dim) * (i % 2 ? -1 : 1);
    entry_pack_vector(v, dim, vec);
    return (struct entry){.id = {1, 2},
                          .check = {3, 4},
                          .partition = {5, 6},
                          .kind = OPENAI_CHAT,
                          .tenant = STR("t"),
                          .model = STR("m"),
                          .question = STR("q?"),
                          .answer = STR("{}"),
                          .tags = STR("a,b"),
                          .ns = STR("faq"),
                          .trust = TRUST_GATEWAY,
                          .epoch = 12,
                          .answer_hash = 0xfedcba9876543210u,
                          .embedder = STR("e"),
                          .vector = {(char *)vec, dim * 2},
                          .created_s = 1000,
                          .ttl_s = 60,
                          .latency_ms = 7,
                          .prompt_tokens = 8,
                          .completion_tokens = 9};
}

TEST(an_entry_survives_its_written_form)
{
    unsigned char vec[128];
    char texts[ENTRY_TEXTS_BYTES];
    struct str values[N_ENTRY_FIELDS];
    struct entry e = sample(vec, 64), back;
    struct errmsg why = {0};
    entry_write(&e, values, texts);
    REQUIRE(entry_read(e.id, values, N_ENTRY_FIELDS, true, &back, &why) == OK);
    CHECK(hash_eq(back.id, e.id) && hash_eq(back.check, e.check) &&
          hash_eq(back.partition, e.partition) && back.kind == e.kind);
    CHECK(str_eq(back.tenant, e.tenant) && str_eq(back.model, e.model) &&
          str_eq(back.question, e.question) && str_eq(back.answer, e.answer) &&
          str_eq(back.tags, e.tags) && str_eq(back.vector, e.vector));
    CHECK(back.created_s == 1000 && back.ttl_s == 60 && back.latency_ms == 7 &&
          back.prompt_tokens == 8 && back.completion_tokens == 9);
    CHECK(str_eq(back.ns, e.ns) && back.trust == TRUST_GATEWAY && back.epoch == 12 &&
          back.answer_hash == e.answer_hash);
    struct entry *copy = entry_copy(&back);
    CHECK(str_eq(copy->question, e.question) && copy->question.p != e.question.p &&
          copy->bytes > sizeof *copy);
    entry_free(copy);
    CHECK(!entry_expired(&back, 1059) && entry_expired(&back, 1060));
}

TEST(a_spoilt_field_is_named_and_refused)
{
    static char long_name[600];
    memset(long_name, 'x', sizeof long_name - 1);
    const struct {
        enum entry_field f;
        const char *value;
        enum err want;
    } cases[] = {{EF_VERSION, NULL, ERR_CORRUPT},
                 {EF_VERSION, "2", ERR_UNSUPPORTED},
                 {EF_VERSION, "x", ERR_CORRUPT},
                 {EF_VERSION, "", ERR_CORRUPT},
                 {EF_CHECK, "", ERR_CORRUPT},
                 {EF_CREATED, "", ERR_CORRUPT},
                 {EF_CHECK, "12", ERR_CORRUPT},
                 {EF_CHECK, NULL, ERR_CORRUPT},
                 {EF_PARTITION, "zz", ERR_CORRUPT},
                 {EF_CREATED, "-5", ERR_CORRUPT},
                 {EF_CREATED, "9223372036854775807", ERR_CORRUPT},
                 {EF_TTL, "0", ERR_CORRUPT},
                 {EF_TTL, NULL, ERR_CORRUPT},
                 {EF_KIND, "9", ERR_CORRUPT},
                 {EF_TENANT, long_name, ERR_CORRUPT},
                 {EF_ANSWER, NULL, ERR_CORRUPT},
                 {EF_VECTOR, "odd", ERR_CORRUPT},
                 {EF_LATENCY, "1e9", ERR_CORRUPT},
                 {EF_TRUST, "10", ERR_CORRUPT},
                 {EF_EPOCH, "-1", ERR_CORRUPT},
                 {EF_ANSWER_HASH, "zz", ERR_CORRUPT},
                 {EF_ROLE, "w", ERR_CORRUPT}};
    unsigned char vec[128];
    char texts[ENTRY_TEXTS_BYTES];
    struct entry e = sample(vec, 64), back;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct str values[N_ENTRY_FIELDS];
        struct errmsg why = {0};
        entry_write(&e, values, texts);
        values[cases[i].f] = cases[i].value ? str_of(cases[i].value) : (struct str){NULL, 0};
        CHECK_INT(entry_read(e.id, values, N_ENTRY_FIELDS, true, &back, &why), cases[i].want);
        CHECK(why.text[0]);
    }
    struct str values[N_ENTRY_FIELDS];
    struct errmsg why = {0};
    entry_write(&e, values, texts);
    values[EF_ANSWER] = (struct str){NULL, 0};
    CHECK_INT(entry_read(e.id, values, N_ENTRY_FIELDS, false, &back, &why),
              OK); /* the index does not need it */
    CHECK_INT(entry_read(e.id, values, 3, true, &back, &why), ERR_CORRUPT); /* too few fields */
}

TEST(an_entry_of_an_earlier_program_lacks_the_later_fields_and_is_read)
{
    unsigned char vec[128];
    char texts[ENTRY_TEXTS_BYTES];
    struct str values[N_ENTRY_FIELDS];
    struct entry e = sample(vec, 64), back;
    struct errmsg why = {0};
    entry_write(&e, values, texts);
    REQUIRE(entry_read(e.id, values, EF_VECTOR + 1, true, &back, &why) == OK);
    CHECK(!back.ns.n && back.trust == TRUST_CLIENT && !back.epoch && !back.answer_hash);
}

TEST(a_curated_answer_fits_its_tenant_namespace_model_and_length)
{
    unsigned char vec[128];
    struct entry e = sample(vec, 64);
    e.model = STR("");
    struct cache_key k = {.curated = {{5, 6}, {7, 8}},
                          .kind = OPENAI_CHAT,
                          .tenant = STR("t"),
                          .model = STR("any"),
                          .ns = STR("faq"),
                          .max_tokens = -1};
    CHECK(entry_fits_curated(&e, &k, k.curated[0]) && !entry_fits_curated(&e, &k, k.curated[1]));
    struct cache_key other = k;
    other.tenant = STR("u");
    CHECK(!entry_fits_curated(&e, &other, other.curated[0]));
    other = k, other.ns = STR("");
    CHECK(!entry_fits_curated(&e, &other, other.curated[0]));
    other = k, other.max_tokens = 8;
    CHECK(!entry_fits_curated(&e, &other, other.curated[0]));
    e.model = STR("m");
    CHECK(!entry_fits_curated(&e, &k, k.curated[0]));
    e.model = STR(""), e.tenant = STR("*"), e.partition = k.curated[1];
    CHECK(entry_fits_curated(&e, &k, k.curated[1]));
}

TEST(an_entry_answers_only_the_key_it_was_made_for)
{
    unsigned char vec[128];
    struct entry e = sample(vec, 64);
    struct cache_key k = {.exact = {1, 2},
                          .check = {3, 4},
                          .partition = {5, 6},
                          .kind = OPENAI_CHAT,
                          .tenant = STR("t"),
                          .model = STR("m"),
                          .user_text = STR("q?")};
    CHECK(entry_fits_exact(&e, &k) && entry_fits_partition(&e, &k));
    struct cache_key other = k;
    other.check.lo++; /* a collision of the first hash */
    CHECK(!entry_fits_exact(&e, &other));
    other = k, other.tenant = STR("u");
    CHECK(!entry_fits_exact(&e, &other) && !entry_fits_partition(&e, &other));
    other = k, other.model = STR("l");
    CHECK(!entry_fits_exact(&e, &other) && !entry_fits_partition(&e, &other));
    other = k, other.kind = OPENAI_COMPLETION;
    CHECK(!entry_fits_exact(&e, &other) && !entry_fits_partition(&e, &other));
    other = k, other.user_text = STR("r?");
    CHECK(!entry_fits_exact(&e, &other) && entry_fits_partition(&e, &other));
    other = k, other.partition.hi++;
    CHECK(!entry_fits_partition(&e, &other));
}

TEST(vectors_come_back_within_half_precision_and_bad_ones_not_at_all)
{
    struct rng r;
    rng_seed(&r, 5);
    for (int round = 0; round < 50; round++) {
        float v[384], back[384];
        unsigned char packed[768];
        double len = 0, dot = 0;
        for (int i = 0; i < 384; i++)
            v[i] = (float)(rng_f64(&r) - 0.5) * (i % 50 == 0 ? 1e-6f : 1.0f),
            len += (double)v[i] * v[i];
        for (int i = 0; i < 384; i++)
            v[i] = (float)(v[i] / sqrt(len));
        entry_pack_vector(v, 384, packed);
        REQUIRE(entry_unpack_vector((struct str){(char *)packed, 768}, 384, back) == OK);
        for (int i = 0; i < 384; i++)
            dot += (double)v[i] * back[i];
        CHECK_NEAR(dot, 1.0, 1e-6);
        CHECK_INT(entry_unpack_vector((struct str){(char *)packed, 766}, 384, back), ERR_CORRUPT);
        packed[1] = 0x7c; /* infinity */
        packed[0] = 0;
        CHECK_INT(entry_unpack_vector((struct str){(char *)packed, 768}, 384, back), ERR_CORRUPT);
        packed[1] = 0x7e; /* not a number */
        CHECK_INT(entry_unpack_vector((struct str){(char *)packed, 768}, 384, back), ERR_CORRUPT);
    }
    unsigned char zero[8] = {0};
    float back[4];
    CHECK_INT(entry_unpack_vector((struct str){(char *)zero, 8}, 4, back), ERR_CORRUPT);
}

TEST_MAIN()
