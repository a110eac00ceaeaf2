/* test_calibration.cpp - int8 products with a calibration (engine/model/calibration.h), in emulation: on inputs with a few large channels the error
 * against double arithmetic falls, alone and in a whole model beside float32 on the CPU; other products do not look at it; a file that does
 * not fit is an error of opening. */
#include <algorithm>
#include <string>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wshadow" /* C names a struct and a function alike */
extern "C" {
#include "base/half.h"
#include "engine/backend/backend.h"
#include "engine/backend/device.h"
#include "engine/model/calibrate.h"
#include "engine/model/gguf.h"
#include "engine/model/model.h"
}
#include "engine/backend/cuda/device.h"
#include "tests/unit/cuda/rig.hpp"

enum { ROWS = 257, N_IN = 128, N_OUT = 32 };
static const int large[] = {3, 40, 77}; /* channels */

/* Root of the mean square error of a product, in units of its own. x f32[ROWS][N_IN]. */
static double off(const char *products, const std::vector<float> &x, const std::vector<float> &w,
                  const float *spread, std::vector<float> *got)
{
    struct backend *be = nullptr;
    struct backend_options o = {};
    struct errmsg e = {};
    struct weight *weight;
    backend_register(&cuda_device);
    o.n_threads = 1, o.device = "cuda", o.products = products;
    CHECK_INT(backend_open(&be, &o, &e), OK);
    size_t row = tensor_row_bytes(TENSOR_F16, N_IN);
    std::vector<uint8_t> bytes(N_OUT * row);
    for (size_t i = 0; i < N_OUT; i++)
        quantise_row(TENSOR_F16, &w[i * N_IN], &bytes[i * row], N_IN);
    CHECK_INT(weight_new(&weight, be, TENSOR_F16, N_OUT, N_IN, bytes.data(), &e), OK);
    float *dx = backend_floats(be, x.size()), *out = backend_floats(be, ROWS * N_OUT),
          *ds = backend_floats(be, N_IN);
    backend_write(be, dx, x.data(), x.size());
    if (spread) backend_write(be, ds, spread, N_IN);
    struct linear l = {};
    l.n_weights = 1, l.weight[0] = weight, l.out[0] = out, l.x = dx, l.n_rows = ROWS;
    l.spread = spread ? ds : nullptr;
    backend_linear(be, &l);
    got->resize(ROWS * N_OUT);
    CHECK_INT(backend_read(be, got->data(), out, got->size(), &e), OK);
    double error = 0, size = 0;
    for (size_t r = 0; r < ROWS; r++)
        for (size_t k = 0; k < N_OUT; k++) {
            double sum = 0;
            for (size_t i = 0; i < N_IN; i++)
                sum += (double)x[r * N_IN + i] * w[k * N_IN + i];
            double d = (*got)[r * N_OUT + k] - sum;
            error += d * d, size += sum * sum;
        }
    for (float *p : {dx, out, ds})
        backend_floats_free(be, p);
    weight_free(weight);
    backend_close(be);
    return sqrt(error / size);
}

TEST(large_channels_moved_into_the_weights_lose_less_in_int8_and_nothing_elsewhere)
{
    auto x = random_values(8, ROWS * N_IN, 1.0f), w = random_values(7, N_OUT * N_IN, 0.1f);
    std::vector<float> most(N_IN, 0), spread(N_IN), got, again;
    for (size_t r = 0; r < ROWS; r++)
        for (int c : large)
            x[r * N_IN + (size_t)c] *= 60;
    for (size_t k = 0; k < N_OUT; k++) /* a model that has such channels gives them small weights */
        for (int c : large)
            w[k * N_IN + (size_t)c] /= 60;
    for (size_t k = 0; k < w.size(); k++)
        w[k] = f16_to_f32(f32_to_f16(w[k]));
    for (size_t i = 0; i < N_IN; i++) {
        float a = 0, b = 0;
        for (size_t r = 0; r < ROWS; r++)
            a = fmaxf(a, fabsf(x[r * N_IN + i]));
        for (size_t k = 0; k < N_OUT; k++)
            b = fmaxf(b, fabsf(w[k * N_IN + i]));
        spread[i] = sqrtf(a / b);
    }
    double plain = off("int8", x, w, nullptr, &got), moved = off("int8", x, w, spread.data(), &got);
    /* 60 times larger channels leave the others 2 of 127 steps; evened out they have all of them */
    CHECK_AT(plain > 0.1 && moved < 0.02, "off by %g, with the spread by %g", plain, moved);
    for (const char *p : {"own", "bf16", "fp8"}) {
        off(p, x, w, nullptr, &got);
        off(p, x, w, spread.data(), &again);
        CHECK_AT(got == again, "%s", p);
    }
}

/* ---- a model ---- */
/* tiny-llama-f32.gguf with float16 matrices and, in each layer, norms with large channels and the columns behind them as much smaller: the
 * same function, harder to round. */
static std::string model_with_large_channels()
{
    std::string from = SOURCE_DIR "/tests/data/tiny-llama-f32.gguf",
                path = "/tmp/deja-test-large." + std::to_string(getpid());
    FILE *f = fopen(from.c_str(), "rb");
    std::vector<uint64_t> words(1 << 17);
    size_t n = fread(words.data(), 1, words.size() * 8, f);
    fclose(f);
    char *bytes = (char *)words.data();
    struct gguf *g;
    struct errmsg e = {};
    CHECK_INT(gguf_from_bytes(&g, words.data(), n, &e), OK);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        std::string name(t->name.p, t->name.n);
        float *v = (float *)t->bytes;
        bool behind = name.find("attn_q") != name.npos || name.find("attn_k") != name.npos ||
                      name.find("attn_v") != name.npos || name.find("ffn_gate") != name.npos ||
                      name.find("ffn_up") != name.npos;
        bool norm = name.find("blk") == 0 && t->n_dims == 1;
        size_t cols = (size_t)t->dims[0];
        for (int64_t r = 0; (norm || behind) && r < t->dims[1]; r++)
            for (int c : {5, 23, 50})
                v[(size_t)r * cols + (size_t)c] *= norm ? 40.0f : 1.0f / 40;
        if (t->n_dims == 1) continue;
        for (size_t k = 0; k < cols * (size_t)t->dims[1]; k++) {
            uint16_t h = f32_to_f16(v[k]);
            memcpy((char *)t->bytes + 2 * k, &h, 2);
        }
        /* its entry in the head: name, number of dimensions, dimensions, type */
        char *entry = std::search(bytes, bytes + n, name.begin(), name.end()) + name.size();
        uint32_t type = TENSOR_F16;
        memcpy(entry + 4 + 8 * t->n_dims, &type, 4);
    }
    gguf_close(g);
    f = fopen(path.c_str(), "wb");
    CHECK_INT((long)fwrite(bytes, 1, n, f), (long)n);
    fclose(f);
    return path;
}

enum { TOKENS = 258, BLOCK_TOKENS = 64, TABLE = 5 };

static struct model *open_model(const std::string &path, const char *products,
                                const char *calibration, struct errmsg *e)
{
    struct model *m = nullptr;
    struct model_options o = {};
    o.n_threads = 1, o.block_tokens = BLOCK_TOKENS, o.n_blocks = TABLE, o.max_batch_tokens = TOKENS;
    o.max_seqs = 1, o.exact = !products;
    if (products) o.device = "cuda", o.products = products, o.calibration = calibration;
    backend_register(&cuda_device);
    return model_open(&m, path.c_str(), &o, e) == OK ? m : nullptr;
}

/* Logits of all tokens of one prompt. */
static std::vector<float> said(const std::string &path, const char *products,
                               const char *calibration)
{
    struct errmsg e = {};
    struct model *m = open_model(path, products, calibration, &e);
    if (!m) {
        CHECK_AT(false, "%s", e.text);
        abort();
    }
    std::vector<int32_t> token(TOKENS), pos(TOKENS), seq(TOKENS), table;
    for (int i = 0; i < TOKENS; i++)
        token[(size_t)i] = (i * 37 + i * i * 11 + 3) % 250, pos[(size_t)i] = i;
    for (int i = 0; i < TABLE; i++)
        table.push_back((i * 2 + 1) % TABLE);
    const int32_t *tables[] = {table.data()};
    struct model_batch b = {};
    b.n_rows = b.n_out = TOKENS, b.token = token.data(), b.pos = b.out_row = pos.data();
    b.seq = seq.data(), b.n_seqs = 1, b.block_table = tables;
    std::vector<float> logits((size_t)(TOKENS * model_info(m)->n_vocab));
    model_forward(m, &b, logits.data());
    CHECK(!model_failure(m));
    model_close(m);
    return logits;
}

/* Mean difference of logits in units of their own spread. */
static double apart(const std::vector<float> &a, const std::vector<float> &b)
{
    double off = 0, size = 0;
    for (size_t i = 0; i < a.size(); i++)
        off += (a[i] - b[i]) * (a[i] - b[i]), size += a[i] * a[i];
    return sqrt(off / size);
}

TEST(a_calibrated_model_with_large_channels_is_nearer_to_float32)
{
    std::string path = model_with_large_channels(), text = path + ".txt", file = path + ".cal";
    struct errmsg e = {};
    FILE *f = fopen(text.c_str(), "wb");
    for (int i = 0; i < 200; i++)
        fprintf(f, "%d words and %d others, ", i * i % 97, i);
    fclose(f);
    struct calibrate_options o = {};
    struct calibration *c;
    o.model_path = path.c_str(), o.text_path = text.c_str(), o.n_threads = 1;
    CHECK_INT(calibrate_model(&c, &o, &e), OK);
    for (int layer = 0; layer < c->shape.n_layers; layer++)
        for (enum calibration_site site : {SITE_QKV, SITE_GATE})
            CHECK(*calibration_a(c, calibration_place(layer, site)) > 0);
    CHECK_INT(calibration_save(c, file.c_str(), &e), OK);
    auto exact = said(path, nullptr, nullptr), plain = said(path, "int8", nullptr),
         moved = said(path, "int8", file.c_str());
    double without = apart(exact, plain), with = apart(exact, moved);
    CHECK_AT(with < without / 3, "off by %g, calibrated by %g", without, with);

    c->shape.model.hi++;
    CHECK_INT(calibration_save(c, file.c_str(), &e), OK);
    CHECK(!open_model(path, "int8", file.c_str(), &e) && strstr(e.text, "another model file"));
    calibration_free(c);
    for (auto &p : {path, text, file})
        unlink(p.c_str());
    CHECK(!open_model(SOURCE_DIR "/tests/data/tiny-llama-f32.gguf", "int8", file.c_str(), &e));
    CHECK_INT(device_bytes_left(), 0);
}

TEST_MAIN()
