/* test_gguf.c - goal: no file, however damaged, is read beyond its end or believed where it contradicts itself; what a sound
 * file holds comes out right. Method: a small builder makes one file per rule, each broken in one place; every prefix of a
 * sound file is opened at the end of its own allocation, so that the sanitizer sees one byte too many. */
#include "engine/model/gguf.h"

#include "tests/check.h"
#include "tests/unit/model/case_files.h"

struct build {
    struct buf b;
};

static void put(struct build *f, const void *p, size_t n)
{
    buf_add(&f->b, p, n);
}
static void put_u32(struct build *f, uint32_t v)
{
    put(f, &v, 4);
}
static void put_u64(struct build *f, uint64_t v)
{
    put(f, &v, 8);
}
static void put_str(struct build *f, const char *s)
{
    put_u64(f, strlen(s));
    put(f, s, strlen(s));
}
static void start(struct build *f, uint64_t n_tensors, uint64_t n_keys)
{
    buf_init(&f->b, 1 << 20);
    put(f, "GGUF", 4);
    put_u32(f, 3);
    put_u64(f, n_tensors);
    put_u64(f, n_keys);
}
static void put_tensor(struct build *f, const char *name, int64_t cols, int64_t rows, uint32_t type,
                       uint64_t offset)
{
    put_str(f, name);
    put_u32(f, 2);
    put_u64(f, (uint64_t)cols);
    put_u64(f, (uint64_t)rows);
    put_u32(f, type);
    put_u64(f, offset);
}
static void pad(struct build *f, size_t to)
{
    while (f->b.n % to)
        buf_char(&f->b, 0);
}

/* Opens a copy that ends with its allocation; frees the builder. */
static enum err open_built(struct build *f, struct gguf **g, void **copy, struct errmsg *e)
{
    *copy = xmalloc(f->b.n ? f->b.n : 1);
    memcpy(*copy, f->b.p, f->b.n);
    memset(e, 0, sizeof *e);
    enum err code = gguf_from_bytes(g, *copy, f->b.n, e);
    buf_fini(&f->b);
    return code;
}

/* The file must be refused with a message that holds want. */
static void check_refused(struct build *f, const char *want)
{
    struct gguf *g;
    void *copy;
    struct errmsg e;
    enum err code = open_built(f, &g, &copy, &e);
    CHECK(code != OK && g == NULL);
    CHECK_AT(strstr(e.text, want), "message \"%s\" does not say \"%s\"", e.text, want);
    gguf_close(g);
    mem_free(copy);
}

static void one_of_each(struct build *f)
{
    start(f, 2, 6);
    put_str(f, "general.alignment");
    put_u32(f, GGUF_U32);
    put_u32(f, 64);
    put_str(f, "a.text");
    put_u32(f, GGUF_STRING);
    put_str(f, "hello");
    put_str(f, "a.minus");
    put_u32(f, GGUF_I64);
    put_u64(f, (uint64_t)-5);
    put_str(f, "a.words");
    put_u32(f, GGUF_ARRAY);
    put_u32(f, GGUF_STRING);
    put_u64(f, 2);
    put_str(f, "x");
    put_str(f, "");
    put_str(f, "a.numbers");
    put_u32(f, GGUF_ARRAY);
    put_u32(f, GGUF_U8);
    put_u64(f, 3);
    put(f, "\1\2\377", 3);
    put_str(f, "a.pi");
    put_u32(f, GGUF_F64);
    double pi = 3.25;
    put(f, &pi, 8);
    put_tensor(f, "w", 32, 2, TENSOR_Q8_0, 64);
    put_tensor(f, "b", 4, 1, TENSOR_F32, 0);
    pad(f, 64);
    float four[4] = {1, 2, 3, 4};
    put(f, four, sizeof four);
    pad(f, 64);
    for (int i = 0; i < 68; i++)
        buf_char(&f->b, (char)i);
}

TEST(what_a_sound_file_holds_comes_out)
{
    struct build f;
    struct gguf *g;
    void *copy;
    struct errmsg e;
    one_of_each(&f);
    REQUIRE(open_built(&f, &g, &copy, &e) == OK);
    uint32_t u = 7;
    float v = 0;
    struct str s;
    CHECK(gguf_u32(g, "general.alignment", &u, &e) == OK && u == 64);
    CHECK(gguf_str(g, "a.text", &s, &e) == OK);
    CHECK_STR(s, "hello");
    CHECK(gguf_f32(g, "a.pi", &v, &e) == OK && v == 3.25f);
    CHECK(gguf_u32(g, "a.minus", &u, &e) == ERR_INVALID);
    CHECK_Z(e.text, "a.minus: -5 must lie between 0 and 4294967295");
    CHECK(gguf_u32(g, "a.text", &u, &e) == ERR_INVALID);
    CHECK_Z(e.text, "a.text: must be an integer, the file has string");
    CHECK(gguf_u32(g, "a.none", &u, &e) == ERR_NOT_FOUND && u == 64);
    CHECK(gguf_u32_opt(g, "a.none", &u, &e) == OK && u == 64);
    struct str *words;
    int32_t *numbers;
    size_t n;
    REQUIRE(gguf_str_array(g, "a.words", &words, &n, &e) == OK);
    CHECK_INT(n, 2);
    CHECK_STR(words[0], "x");
    CHECK_STR(words[1], "");
    mem_free(words);
    CHECK(gguf_str_array(g, "a.numbers", &words, &n, &e) == ERR_INVALID);
    REQUIRE(gguf_i32_array(g, "a.numbers", &numbers, &n, &e) == OK);
    CHECK(n == 3 && numbers[0] == 1 && numbers[2] == 255);
    mem_free(numbers);
    CHECK(gguf_bytes(g, "a.numbers", &s, &e) == OK && s.n == 3);
    CHECK_Z(gguf_type_name(g, "a.words"), "array of string");
    CHECK_INT(gguf_n_tensors(g), 2);
    const struct gguf_tensor *t = gguf_tensor(g, "b");
    REQUIRE(t);
    CHECK(t->type == TENSOR_F32 && t->dims[0] == 4 && t->n_bytes == 16);
    memcpy(&v, (const char *)t->bytes + 8, 4);
    CHECK(v == 3.0f);
    t = gguf_tensor(g, "w");
    REQUIRE(t && t->n_bytes == 68);
    CHECK(((const char *)t->bytes)[67] == 67);
    CHECK(gguf_tensor(g, "c") == NULL);
    gguf_close(g);
    mem_free(copy);
}

TEST(every_prefix_of_a_sound_file_is_refused)
{
    struct build whole;
    one_of_each(&whole);
    for (size_t n = 0; n < whole.b.n; n++) {
        struct gguf *g;
        struct errmsg e = {0};
        void *copy = xmalloc(n ? n : 1);
        memcpy(copy, whole.b.p, n);
        enum err code = gguf_from_bytes(&g, copy, n, &e);
        CHECK_AT(code != OK, "a file cut at %zu was accepted", n);
        gguf_close(g);
        mem_free(copy);
    }
    buf_fini(&whole.b);
}

TEST(every_flipped_byte_is_survived)
{
    struct build whole;
    one_of_each(&whole);
    for (size_t at = 0; at < whole.b.n; at++) {
        for (int bit = 0; bit < 8; bit += 7) {
            struct gguf *g;
            struct errmsg e = {0};
            char *copy = xmalloc(whole.b.n);
            memcpy(copy, whole.b.p, whole.b.n);
            copy[at] = (char)(copy[at] ^ 1 << bit);
            if (gguf_from_bytes(&g, copy, whole.b.n, &e) == OK)
                for (size_t i = 0; i < gguf_n_tensors(g); i++) {
                    const struct gguf_tensor *t = gguf_tensor_at(g, i);
                    const char *p = t->bytes;
                    CHECK(p >= copy && p + t->n_bytes <= copy + whole.b.n);
                }
            gguf_close(g);
            mem_free(copy);
        }
    }
    buf_fini(&whole.b);
}

TEST(wrong_heads_are_named)
{
    struct build f;
    buf_init(&f.b, 100);
    put(&f, "GGML", 4);
    check_refused(&f, "does not start with");
    buf_init(&f.b, 100);
    put(&f, "GGUF", 4);
    put_u32(&f, 1);
    check_refused(&f, "version 1 is not supported");
    start(&f, 0, UINT64_MAX);
    check_refused(&f, "metadata keys do not fit");
    start(&f, UINT64_MAX / 8, 0);
    check_refused(&f, "tensors do not fit");
}

TEST(twice_the_same_key_or_tensor_is_refused)
{
    struct build f;
    start(&f, 0, 2);
    for (int i = 0; i < 2; i++) {
        put_str(&f, "k");
        put_u32(&f, GGUF_BOOL);
        buf_char(&f.b, 1);
    }
    check_refused(&f, "k: the key is there twice");
    start(&f, 2, 0);
    put_tensor(&f, "t", 8, 1, TENSOR_F32, 0);
    put_tensor(&f, "t", 8, 1, TENSOR_F32, 32);
    pad(&f, 32);
    for (int i = 0; i < 64; i++)
        buf_char(&f.b, 0);
    check_refused(&f, "tensor t: the name is there twice");
}

TEST(tensors_that_overlap_or_lie_askew_are_refused)
{
    static const struct {
        uint64_t offset;
        const char *want;
    } cases[] = {{0, "tensors a and b overlap"},
                 {31, "not a multiple of general.alignment 32"},
                 {64, "pass the end of the data"},
                 {UINT64_MAX - 31, "pass the end of the data"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct build f;
        start(&f, 2, 0);
        put_tensor(&f, "a", 8, 1, TENSOR_F32, 0);
        put_tensor(&f, "b", 8, 1, TENSOR_F32, cases[i].offset);
        pad(&f, 32);
        for (int j = 0; j < 64; j++)
            buf_char(&f.b, 0);
        check_refused(&f, cases[i].want);
    }
}

TEST(unknown_types_are_named)
{
    struct build f;
    start(&f, 1, 0);
    put_tensor(&f, "t", 256, 1, 19, 0);
    pad(&f, 32);
    for (int i = 0; i < 1024; i++)
        buf_char(&f.b, 0);
    check_refused(&f, "tensor t: type 19 (IQ1_S) is not supported");
    start(&f, 1, 0);
    put_tensor(&f, "t", 33, 1, TENSOR_Q4_0, 0);
    check_refused(&f, "row length 33 is not a multiple of 32, the block of Q4_0");
    start(&f, 1, 0);
    put_tensor(&f, "t", INT64_MAX / 4, 4, TENSOR_F16, 0);
    check_refused(&f, "tensor t: its size passes");
}

TEST(arrays_are_bounded_by_the_file)
{
    struct build f;
    start(&f, 0, 1);
    put_str(&f, "k");
    put_u32(&f, GGUF_ARRAY);
    put_u32(&f, GGUF_U64);
    put_u64(&f, UINT64_MAX / 8 + 2);
    put_u64(&f, 0);
    check_refused(&f, "k: array of");
    start(&f, 0, 1);
    put_str(&f, "k");
    put_u32(&f, GGUF_ARRAY);
    put_u32(&f, GGUF_ARRAY);
    put_u64(&f, 1);
    put_u64(&f, 0);
    check_refused(&f, "k: an array of arrays is not supported");
}

TEST(a_file_on_disk_is_mapped_and_its_name_is_in_the_message)
{
    struct gguf *g;
    struct errmsg e = {0};
    CHECK(gguf_open(&g, TEST_DATA "/tiny-llama-f32.gguf", &e) == OK);
    if (g) CHECK_INT(gguf_n_tensors(g), 20);
    gguf_close(g);
    CHECK(gguf_open(&g, TEST_DATA "/none.gguf", &e) == ERR_IO);
    CHECK(strstr(e.text, "none.gguf: No such file"));
    CHECK(gguf_open(&g, TEST_DATA, &e) == ERR_IO);
    CHECK(strstr(e.text, "not a regular file"));
    CHECK(gguf_open(&g, TEST_DATA "/gguf_bad.jsonl", &e) == ERR_CORRUPT);
    CHECK(strstr(e.text, "not a GGUF file"));
}

TEST_MAIN()
