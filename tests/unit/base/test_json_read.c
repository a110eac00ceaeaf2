/* Goal: json_read gives just what jansson's parser gives, or nothing. Method: random texts, whole and damaged, through both; each in an
 * allocation of its own size; and usual bodies, which must not be declined. */
#include "base/json_read.h"

#include "base/json.h"
#include "base/mem.h"
#include "tests/check.h"
#include "tests/unit/base/json_texts.h"

static json_t *by_jansson(struct str s)
{
    return json_loadb(s.p, s.n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
}

/* The same values, and members in the same order. */
static void check_same(struct str text, json_t *got)
{
    json_t *want = by_jansson(text);
    CHECK_AT(want && json_equal(got, want), STR_FMT, STR_ARG(text));
    if (!want) return;
    struct buf a, b;
    buf_init(&a, 1 << 20);
    buf_init(&b, 1 << 20);
    json_write(&a, got);
    json_write(&b, want);
    CHECK_AT(str_eq(buf_view(&a), buf_view(&b)), STR_FMT, STR_ARG(text));
    buf_fini(&a);
    buf_fini(&b);
    json_decref(want);
}

TEST(usual_bodies_are_read)
{
    static const char *const good[] = {
        "{\"model\":\"m\",\"temperature\":0.7,\"messages\":[{\"role\":\"user\",\"content\":\"Say "
        "\\\"hi\\\"\\n\\u4f60 \xe4\xbd\xa0\"}],\"n\":1,"
        "\"stream\":false,\"stop\":null,\"seed\":-5}",
        " [ 1 , -0, 1e3, {} , [ ] , \"\" ] ", "\"\\u0000\"", "true",
        "{\"\":{\"a\":1},\"b\":{\"a\":1}}"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        json_t *v = json_read(str_of(good[i]), 64);
        CHECK_AT(v, "declined: %s", good[i]);
        if (v) check_same(str_of(good[i]), v);
        json_decref(v);
    }
}

TEST(objects_of_many_members_are_read_and_keys_given_twice_are_not)
{
    struct buf b;
    buf_init(&b, 1 << 20);
    for (int i = 0; i < 3000; i++)
        buf_printf(&b, "%c\"k%d\":%d", i ? ',' : '{', i, i);
    buf_char(&b, '}');
    json_t *v = json_read(buf_view(&b), 64);
    CHECK_INT(json_object_size(v), 3000);
    json_decref(v);
    b.n--;
    buf_z(&b, ",\"k7\":1}");
    CHECK(!json_read(buf_view(&b), 64));
    buf_fini(&b);
}

TEST(nesting_is_bounded)
{
    json_t *v = json_read(STR("[[[1]]]"), 3);
    CHECK(v);
    json_decref(v);
    CHECK(!json_read(STR("[[[1]]]"), 2));
}

TEST(random_texts_are_read_as_jansson_reads_them)
{
    struct rng rng;
    struct buf b;
    int read = 0;
    rng_seed(&rng, 11);
    buf_init(&b, 1 << 20);
    for (int i = 0; i < 40000; i++) {
        char *p = text_exact(&b, &rng);
        json_t *v = json_read((struct str){p, b.n}, 64);
        if (v) check_same((struct str){p, b.n}, v), read++;
        json_decref(v);
        mem_free(p);
    }
    CHECK(read > 5000);
    buf_fini(&b);
}

TEST_MAIN()
