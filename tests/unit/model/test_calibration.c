/* test_calibration.c - goal: what a calibration holds is what was measured, comes back from its file, and a file of another model, a
 * damaged or a short one is refused with the reason. Method: a tiny model and a text, against maxima taken here; every byte and every
 * length of a small file. That it makes int8 products better is tests/unit/cuda/test_calibration.cpp's business. */
#include "engine/model/calibration.h"

#include <math.h>
#include <unistd.h>

#include "engine/model/calibrate.h"
#include "engine/model/gguf.h"
#include "engine/backend/quant.h"
#include "tests/check.h"
#include "tests/unit/model/case_files.h"

static const char *const MODEL = TEST_DATA "/tiny-llama-mixed.gguf";
static const struct calibration_shape SHAPE = {{7, 9}, 2, {3, 2, 3, 5}, 4};

static struct calibration *filled(void)
{
    struct calibration *c;
    CHECK_INT(calibration_new(&c, &SHAPE), OK);
    c->n_tokens = 77;
    for (int p = 0; p <= calibration_head(&SHAPE); p++) {
        *calibration_a(c, p) = 0.5f;
        for (int j = 0; j < calibration_width(&SHAPE, p); j++) {
            calibration_x(c, p)[j] = (float)(p * 10 + j + 1);
            calibration_w(c, p)[j] = 1.0f / (float)(p + j + 1);
        }
    }
    return c;
}

static uint8_t *bytes_of(const struct calibration *c, size_t *n)
{
    *n = calibration_bytes(&c->shape);
    uint8_t *bytes = xmalloc(*n);
    calibration_write(c, bytes);
    return bytes;
}

TEST(what_is_written_is_read_back)
{
    struct calibration *c = filled(), *back;
    struct errmsg e = {0};
    size_t n;
    uint8_t *bytes = bytes_of(c, &n);
    CHECK_INT(calibration_read(&back, bytes, n, &e), OK);
    CHECK(calibration_same(&back->shape, &SHAPE));
    CHECK_INT((int)back->n_tokens, 77);
    for (int p = 0; p <= calibration_head(&SHAPE); p++) {
        CHECK(*calibration_a(back, p) == 0.5f);
        for (int j = 0; j < calibration_width(&SHAPE, p); j++) {
            CHECK(calibration_x(back, p)[j] == (float)(p * 10 + j + 1));
            CHECK(calibration_w(back, p)[j] == 1.0f / (float)(p + j + 1));
        }
    }
    calibration_free(c);
    calibration_free(back);
    mem_free(bytes);
}

TEST(every_changed_byte_and_every_other_length_is_refused)
{
    struct calibration *c = filled(), *back;
    struct errmsg e = {0};
    size_t n;
    uint8_t *bytes = bytes_of(c, &n);
    for (size_t i = 0; i < n; i++) {
        bytes[i] ^= 4;
        CHECK_INT(calibration_read(&back, bytes, n, &e), ERR_CORRUPT);
        CHECK(!back && e.text[0]);
        bytes[i] ^= 4;
    }
    for (size_t short_n = 0; short_n < n; short_n++) {
        uint8_t *part = xmalloc(short_n ? short_n : 1); /* the sanitizer watches its end */
        memcpy(part, bytes, short_n);
        CHECK_INT(calibration_read(&back, part, short_n, &e), ERR_CORRUPT);
        mem_free(part);
    }
    CHECK(strstr(e.text, "cut short"));
    uint8_t *more = xcalloc(n + 1, 1);
    memcpy(more, bytes, n);
    CHECK_INT(calibration_read(&back, more, n + 1, &e), ERR_CORRUPT);
    CHECK(strstr(e.text, "has more"));
    mem_free(more);
    mem_free(bytes);
    *calibration_x(c, 1) = NAN; /* a right check over what no measurement gives */
    bytes = bytes_of(c, &n);
    CHECK_INT(calibration_read(&back, bytes, n, &e), ERR_CORRUPT);
    CHECK(strstr(e.text, "no measurement gives") && !back);
    mem_free(bytes);
    calibration_free(c);
}

TEST(a_file_is_for_one_model)
{
    const char *path = "/tmp/deja-test-calibration";
    struct calibration *c = filled(), *back;
    struct calibration_shape other = SHAPE;
    struct errmsg e = {0};
    char name[64];
    snprintf(name, sizeof name, "%s.%d", path, (int)getpid());
    CHECK_INT(calibration_save(c, name, &e), OK);
    CHECK_INT(calibration_load(&back, name, &SHAPE, &e), OK);
    calibration_free(back);
    other.model.lo++;
    CHECK_INT(calibration_load(&back, name, &other, &e), ERR_INVALID);
    CHECK(strstr(e.text, "another model file") && strstr(e.text, name));
    other = SHAPE, other.width[SITE_DOWN] = 1;
    CHECK_INT(calibration_load(&back, name, &other, &e), ERR_INVALID);
    CHECK_INT(truncate(name, 100), 0);
    CHECK_INT(calibration_load(&back, name, &SHAPE, &e), ERR_CORRUPT);
    CHECK(strstr(e.text, "cut short"));
    CHECK(case_write_file(name, "GGUF", 4));
    CHECK_INT(calibration_load(&back, name, &SHAPE, &e), ERR_CORRUPT);
    CHECK(strstr(e.text, "no calibration file"));
    unlink(name);
    CHECK_INT(calibration_load(&back, name, &SHAPE, &e), ERR_NOT_FOUND);
    CHECK_INT(calibration_save(c, "/nowhere/at/all", &e), ERR_IO);
    calibration_free(c);
}

TEST(a_spread_takes_its_share_from_both_sides_and_passes_over_dead_channels)
{
    struct calibration *c = filled();
    float s[5];
    int p = calibration_place(1, SITE_DOWN);
    calibration_x(c, p)[1] = 0;
    calibration_w(c, p)[2] = 0;
    calibration_x(c, p)[3] = 1e30f;
    CHECK(!calibration_spread(c, p, 0, s));
    CHECK(calibration_spread(c, p, 0.5f, s));
    CHECK_NEAR(s[0], sqrt(71.0 * 8), 1e-3); /* x 71, w 1/8 */
    CHECK(s[1] == 1 && s[2] == 1 && s[3] == 1e4f);
    CHECK(calibration_spread(c, p, 1, s));
    CHECK_NEAR(s[0], 71, 1e-3);
    calibration_free(c);
}

/* The largest of a column, from the file. */
static float column_most(const struct gguf_tensor *t, int j)
{
    size_t n = (size_t)t->dims[0], bytes = tensor_row_bytes(t->type, (int)n);
    float most = 0, *row = xmalloc(n * sizeof *row);
    for (int64_t r = 0; r < t->dims[1]; r++) {
        dequantise_row(t->type, (const char *)t->bytes + (size_t)r * bytes, row, (int)n);
        most = fmaxf(most, fabsf(row[j]));
    }
    mem_free(row);
    return most;
}

TEST(a_model_is_measured_with_its_weights_and_bound_to_its_file)
{
    struct calibration *c;
    struct errmsg e = {0};
    struct buf text;
    struct gguf *g;
    char name[64];
    snprintf(name, sizeof name, "/tmp/deja-test-calibrate.%d", (int)getpid());
    buf_init(&text, 1 << 16);
    for (int i = 0; i < 300; i++)
        buf_printf(&text, "%d words and %d others, ", i * i % 97, i);
    CHECK(case_write_file(name, text.p, text.n));
    struct calibrate_options o = {.model_path = MODEL, .text_path = name, .n_threads = 1};
    CHECK_INT(calibrate_model(&c, &o, &e), OK);
    CHECK_INT(gguf_open(&g, MODEL, &e), OK);
    CHECK(hash_eq(c->shape.model, hash_bytes(0, gguf_file_bytes(g))));
    CHECK_INT(c->shape.n_layers, 3);
    CHECK(c->n_tokens > 300);
    int down = calibration_place(2, SITE_DOWN), qkv = calibration_place(1, SITE_QKV);
    for (int j = 0; j < 64; j += 9) {
        CHECK(calibration_w(c, down)[j] == column_most(gguf_tensor(g, "blk.2.ffn_down.weight"), j));
        float q = column_most(gguf_tensor(g, "blk.1.attn_q.weight"), j),
              k = column_most(gguf_tensor(g, "blk.1.attn_k.weight"), j),
              v = column_most(gguf_tensor(g, "blk.1.attn_v.weight"), j);
        CHECK(calibration_w(c, qkv)[j] == fmaxf(q, fmaxf(k, v)));
    }
    for (int p = 0; p <= calibration_head(&c->shape); p++)
        for (int j = 0; j < calibration_width(&c->shape, p); j++)
            CHECK(calibration_x(c, p)[j] > 0 && calibration_x(c, p)[j] < 1e3f);
    gguf_close(g);
    calibration_free(c);
    CHECK(case_write_file(name, "few words", 9));
    CHECK_INT(calibrate_model(&c, &o, &e), ERR_INVALID);
    CHECK(strstr(e.text, "at least 64"));
    unlink(name);
    CHECK_INT(calibrate_model(&c, &o, &e), ERR_NOT_FOUND);
    buf_fini(&text);
}

TEST_MAIN()
