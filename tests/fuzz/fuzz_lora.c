/* fuzz_lora.c - any bytes as an adapter file for a small llama: refused, or read inside their bounds and applied to one row. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "engine/model/lora.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { EMBD = 8, FF = 16, LAYERS = 2 };

static struct gguf_tensor square = {.dims = {EMBD, EMBD, 1, 1}}, wide = {.dims = {EMBD, FF, 1, 1}},
                          narrow = {.dims = {FF, EMBD, 1, 1}};

static void apply(struct backend *be, struct lora *l)
{
    static float weights[EMBD * EMBD], x[EMBD], out[3][EMBD], low[4 * LORA_RANK_MAX], high[EMBD];
    struct weight *w;
    struct errmsg e = {0};
    int32_t row = 0, seq = 0, adapter = 0;
    struct lora_rows rows = {.row = &row};
    struct lora_scratch s = {
        .low = low, .high = high, .high_floats = EMBD, .rows = 1, .rank_max = lora_rank_max(l)};
    if (weight_new(&w, be, TENSOR_F32, EMBD, EMBD, weights, &e)) return;
    struct linear qkv = {
        .n_weights = 3, .weight = {w, w, w}, .out = {out[0], out[1], out[2]}, .x = x, .n_rows = 1};
    lora_group(&rows, &seq, 1, &adapter);
    for (int i = 0; i < LAYERS; i++)
        lora_apply(be, &l, &rows, &qkv, lora_place(i, LORA_Q), &s);
    weight_free(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static struct backend *be;
    struct errmsg e = {0};
    struct backend_options bo = {.n_threads = 1};
    struct plan_layer layers[LAYERS];
    struct model_plan plan = {.name = STR("llama"),
                              .arch = model_arch_find(STR("llama")),
                              .n_layer = LAYERS,
                              .n_embd = EMBD,
                              .layers = layers};
    struct gguf *g;
    struct lora *l;
    memset(layers, 0, sizeof layers);
    for (int i = 0; i < LAYERS; i++) {
        layers[i].q.weight = layers[i].k.weight = layers[i].v.weight = &square;
        layers[i].attn_out.weight = &square;
        layers[i].gate.weight = layers[i].up.weight = &wide;
        layers[i].down.weight = &narrow;
    }
    if (!be && backend_open(&be, &bo, &e)) return 0;
    void *copy = xmalloc(n ? n : 1); /* aligned, and the sanitizer watches its end */
    memcpy(copy, bytes, n);
    if (gguf_from_bytes(&g, copy, n, &e) == OK) {
        if (lora_from_gguf(&l, be, &plan, g, 0.5f, &e) == OK) {
            apply(be, l);
            lora_free(l);
        }
        gguf_close(g);
    }
    mem_free(copy);
    return 0;
}
