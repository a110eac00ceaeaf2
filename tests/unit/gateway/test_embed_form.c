/* Goal: lists of embeddings are read in either encoding and any order, refused when they are not whole, written so that every f32 comes
 * back exactly, and survive being kept as answers; tokens dealt out add up. */
#include "base/mem.h"
#include "base/rng.h"
#include "gateway/embed_form.h"
#include "tests/check.h"

#define ROW(i, e) "{\"object\":\"embedding\",\"index\":" #i ",\"embedding\":" e "}"
#define LIST(rows)                                                                                 \
    "{\"object\":\"list\",\"data\":[" rows "],\"model\":\"mm\",\"usage\":{\"prompt_tokens\":7}}"

static float value(const struct embed_list *l, size_t i, size_t k)
{
    float f = 0;
    if ((k + 1) * sizeof f <= l->at[i].values.n)
        memcpy(&f, l->at[i].values.p + k * sizeof f, sizeof f);
    return f;
}

TEST(both_encodings_are_read_and_the_index_decides_the_place)
{
    struct embed_list l;
    struct errmsg e = {0};
    embed_list_init(&l, 2);
    REQUIRE(embed_read(&l, STR(LIST(ROW(1, "[0.5,-2]") "," ROW(0, "\"AAAAPwAAAMA=\""))), &e) == OK);
    CHECK(value(&l, 0, 0) == 0.5f && value(&l, 0, 1) == -2.0f);
    CHECK(value(&l, 1, 0) == 0.5f && value(&l, 1, 1) == -2.0f);
    CHECK_Z(l.model, "mm");
    CHECK_INT(l.tokens, 7);
    embed_list_fini(&l);
}

TEST(what_is_no_whole_list_of_numbers_is_refused)
{
    static const char *const bad[] = {"",
                                      "[]",
                                      "{}",
                                      "{\"data\":{}}",
                                      LIST(ROW(0, "[1]")),
                                      LIST(ROW(0, "[1]") "," ROW(0, "[1]")),
                                      LIST(ROW(0, "[1]") "," ROW(2, "[1]")),
                                      LIST(ROW(0, "[1]") "," ROW(1, "[]")),
                                      LIST(ROW(0, "[1]") "," ROW(1, "[\"a\"]")),
                                      LIST(ROW(0, "[1]") "," ROW(1, "[1e300]")),
                                      LIST(ROW(0, "[1]") "," ROW(1, "\"AAAAP\"")),
                                      LIST(ROW(0, "[1]") "," ROW(1, "\"AAAA\"")),
                                      LIST(ROW(0, "[1]") "," ROW(1, "\"AADAfw==\"")), /* NaN */
                                      LIST(ROW(0, "[1]") "," ROW(-1, "[1]")),
                                      LIST("7," ROW(0, "[1]"))};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct embed_list l;
        struct errmsg e = {0};
        embed_list_init(&l, 2);
        CHECK_AT(embed_read(&l, str_of(bad[i]), &e) == ERR_INVALID, "%s is taken", bad[i]);
        CHECK(e.text[0]);
        embed_list_fini(&l);
    }
}

static void fill(struct embed_vector *v, struct rng *rng, size_t dim)
{
    for (size_t k = 0; k < dim; k++) {
        float f = (float)((rng_f64(rng) - 0.5) * pow(10, (double)rng_below(rng, 20) - 10));
        buf_add(&v->values, &f, sizeof f);
    }
}

TEST(what_is_written_reads_back_bit_for_bit_in_either_encoding)
{
    struct rng rng;
    rng_seed(&rng, 3);
    for (int base64 = 0; base64 < 2; base64++) {
        struct embed_list l, back;
        struct errmsg e = {0};
        struct buf out;
        embed_list_init(&l, 3);
        embed_list_init(&back, 3);
        buf_init(&out, 1 << 20);
        for (size_t i = 0; i < 3; i++) {
            fill(&l.at[i], &rng, 200);
            l.at[i].tokens = i ? (int64_t)i : -1;
        }
        snprintf(l.model, sizeof l.model, "m\"q");
        embed_write(&out, &l, base64);
        REQUIRE(embed_read(&back, buf_view(&out), &e) == OK);
        for (size_t i = 0; i < 3; i++)
            CHECK(str_eq(buf_view(&l.at[i].values), buf_view(&back.at[i].values)));
        CHECK_INT(back.tokens, 3);
        CHECK_Z(back.model, "m\"q");
        embed_list_fini(&l);
        embed_list_fini(&back);
        buf_fini(&out);
    }
}

TEST(a_vector_survives_being_kept_as_an_answer)
{
    struct rng rng;
    struct embed_list l;
    struct openai_answer a, read;
    struct errmsg e = {0};
    struct buf json;
    rng_seed(&rng, 5);
    embed_list_init(&l, 2);
    fill(&l.at[0], &rng, 384);
    l.at[0].tokens = 12;
    embed_to_answer(&l.at[0], "mm", &a);
    buf_init(&json, 1 << 20);
    openai_answer_write_json(&json, &a);
    REQUIRE(openai_answer_parse(&read, OPENAI_EMBEDDING, buf_view(&json), &e) == OK);
    CHECK(embed_from_answer(&l.at[1], &read) == OK);
    CHECK(str_eq(buf_view(&l.at[0].values), buf_view(&l.at[1].values)));
    CHECK_INT(l.at[1].tokens, 12);
    CHECK_Z(read.model, "mm");
    openai_answer_fini(&read);
    openai_answer_fini(&a);
    embed_list_fini(&l);
    buf_fini(&json);
}

TEST(tokens_dealt_out_add_up_and_one_text_has_them_all)
{
    struct rng rng;
    rng_seed(&rng, 9);
    for (int round = 0; round < 200; round++) {
        struct embed_list l;
        size_t bytes[20], n = 1 + rng_below(&rng, 20);
        int64_t sum = 0;
        embed_list_init(&l, n);
        l.tokens = (int64_t)rng_below(&rng, 5000);
        for (size_t i = 0; i < n; i++)
            bytes[i] = rng_below(&rng, 3) ? rng_below(&rng, 400) : 0;
        embed_share_tokens(&l, bytes);
        for (size_t i = 0; i < n; i++) {
            CHECK(l.at[i].tokens >= 0);
            sum += l.at[i].tokens;
        }
        CHECK_INT(sum, l.tokens);
        embed_list_fini(&l);
    }
}

TEST_MAIN()
