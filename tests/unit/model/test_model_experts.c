/* test_model_experts.c - what a file says of its mixture of experts is read, and what we would compute wrongly is refused with the key or
 * tensor and what would be right (what is computed: test_reference.c, tests/unit/backend/test_moe.c). Method: copies of the tiny models
 * with bytes overwritten, or with keys and tensors put in. */
#include "base/mem.h"
#include "engine/model/model_plan.h"
#include "tests/check.h"
#include "tests/unit/model/case_files.h"

enum { HEADER = 24, U32 = 4, F32 = 6, TEXT = 8, BOOL = 7, ALIGN = 32, FAR = 1 << 20 };

static void put(struct buf *b, uint64_t v, int n)
{
    buf_add(b, &v, (size_t)n);
}
static void put_text(struct buf *b, const char *s)
{
    put(b, strlen(s), 8);
    buf_add(b, s, strlen(s));
}

struct change {
    const char *from, *to; /* of the same length: overwritten once */
    const char *key;       /* put in, of `type` */
    int type;
    uint32_t bits;
    const char *tensor; /* put in: 32 zeros FAR behind the others */
};

/* The file with the change as a plan. What is put in is filled up with a text key, so that tensors stay aligned. */
static enum err plan_changed(const char *file, const struct change *c, struct model_plan *plan,
                             struct errmsg *e)
{
    char path[512];
    struct buf in, keys, out;
    struct gguf *g;
    snprintf(path, sizeof path, TEST_DATA "/%s", file);
    buf_init(&in, 1 << 20), buf_init(&keys, 1 << 12), buf_init(&out, 4 * FAR);
    if (!case_read_file(path, &in)) abort();
    if (c->from) {
        ptrdiff_t at = str_find(buf_view(&in), str_of(c->from));
        if (at < 0 || strlen(c->from) != strlen(c->to)) abort();
        memcpy(in.p + at, c->to, strlen(c->to));
    }
    uint64_t n_tensors, n_keys;
    memcpy(&n_tensors, in.p + 8, 8), memcpy(&n_keys, in.p + 16, 8);
    if (c->key) {
        put_text(&keys, c->key), put(&keys, (uint64_t)c->type, 4);
        put(&keys, c->bits, c->type == BOOL ? 1 : 4);
    }
    ptrdiff_t infos = str_find(buf_view(&in), STR("token_embd.weight")) - 8;
    size_t tensor = c->tensor ? 8 + strlen(c->tensor) + 4 + 8 + 4 + 8 : 0;
    put_text(&keys, "filler"), put(&keys, TEXT, 4);
    size_t fill = ALIGN - (keys.n + 8 + tensor) % ALIGN;
    put(&keys, fill, 8);
    for (size_t i = 0; i < fill; i++)
        buf_z(&keys, "x");
    buf_add(&out, in.p, 8), put(&out, n_tensors + !!c->tensor, 8);
    put(&out, n_keys + 1 + !!c->key, 8), buf_add(&out, keys.p, keys.n);
    buf_add(&out, in.p + HEADER, (size_t)infos - HEADER);
    if (c->tensor)
        put_text(&out, c->tensor), put(&out, 1, 4), put(&out, 32, 8), put(&out, 0, 4),
            put(&out, FAR, 8);
    buf_add(&out, in.p + infos, in.n - (size_t)infos);
    size_t n = out.n + (c->tensor ? FAR : 0);
    void *aligned = xcalloc(n, 1);
    memcpy(aligned, out.p, out.n);
    enum err code = gguf_from_bytes(&g, aligned, n, e);
    if (!code) {
        code = model_plan_read(plan, g, e);
        gguf_close(g);
    }
    mem_free(aligned);
    buf_fini(&in), buf_fini(&keys), buf_fini(&out);
    return code;
}

TEST(what_would_be_computed_wrongly_is_refused_by_name)
{
    static const struct {
        const char *file;
        struct change c;
        const char *want;
    } cases[] = {
        {"tiny-mixtral.gguf",
         {.from = "expert_used_count",
          .to = "expert_usual_coun",
          .key = "llama.expert_used_count",
          .type = U32,
          .bits = 9},
         "llama.expert_used_count: 9 of 4 experts"},
        {"tiny-qwen2moe.gguf",
         {.from = "expert_count", .to = "expert_cunto"},
         "qwen2moe.expert_count: is missing or 0"},
        {"tiny-mixtral.gguf",
         {.from = "expert_used_count", .to = "expert_usual_coun"},
         "llama.expert_used_count"},
        {"tiny-mixtral.gguf",
         {.from = "blk.1.ffn_gate_inp", .to = "blk.1.ffn_gate_ink"},
         "tensor blk.1.ffn_gate_inp.weight is missing"},
        {"tiny-qwen2moe.gguf",
         {.from = "blk.0.ffn_gate_inp_shexp", .to = "blk.0.ffn_gate_inp_shelf"},
         "tensor blk.0.ffn_gate_inp_shexp.weight is missing"},
        {"tiny-olmoe.gguf",
         {.from = "blk.0.attn_k_norm", .to = "blk.0.attn_k_nose"},
         "tensor blk.0.attn_k_norm.weight is missing"},
        {"tiny-olmoe.gguf",
         {.from = "blk.1.ffn_down_exps.weight", .to = "blk.1.ffn_dawn_exps.weight"},
         "tensor blk.1.ffn_down_exps.weight is missing"},
        {"tiny-mixtral.gguf",
         {.key = "llama.expert_gating_func", .type = U32, .bits = 2},
         "llama.expert_gating_func: 2 is not supported, only 1 is"},
        {"tiny-olmoe.gguf",
         {.key = "olmoe.expert_group_count", .type = U32, .bits = 4},
         "olmoe.expert_group_count: 4 is not supported"},
        {"tiny-olmoe.gguf",
         {.key = "olmoe.leading_dense_block_count", .type = U32, .bits = 1},
         "olmoe.leading_dense_block_count: 1 is not supported, only 0 is"},
        {"tiny-olmoe.gguf",
         {.key = "olmoe.attention.clamp_kqv", .type = F32, .bits = 0x41000000},
         "olmoe.attention.clamp_kqv: 8 is not supported, only 0 is"},
        {"tiny-mixtral.gguf",
         {.key = "llama.expert_shared_feed_forward_length", .type = U32, .bits = 64},
         "a shared expert is not supported in this architecture"},
        {"tiny-qwen3.gguf",
         {.key = "qwen3.expert_count", .type = U32, .bits = 4},
         "qwen3.expert_count: 4: this architecture has no experts here"},
        {"tiny-llama-mixed.gguf",
         {.key = "llama.expert_count", .type = U32, .bits = 4},
         "llama.expert_used_count"},
        {"tiny-mixtral.gguf",
         {.tensor = "blk.0.ffn_gate.0.weight"},
         "tensor blk.0.ffn_gate.0.weight: experts in tensors of their own are an old layout"},
        {"tiny-qwen3moe.gguf",
         {.tensor = "blk.0.ffn_gate_up_exps.weight"},
         "tensor blk.0.ffn_gate_up_exps.weight: gate and up of the experts in one tensor"},
        {"tiny-mixtral.gguf", {.tensor = "blk.0.ffn_gate_exps.bias"}, "the file has"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_plan plan;
        struct errmsg e = {0};
        enum err code = plan_changed(cases[i].file, &cases[i].c, &plan, &e);
        CHECK_AT(code != OK && strstr(e.text, cases[i].want),
                 "case %zu: \"%s\" does not say \"%s\"", i, e.text, cases[i].want);
        if (!code) model_plan_fini(&plan);
    }
}

TEST(a_wrong_width_of_the_experts_shows_in_the_shape)
{
    struct model_plan plan;
    struct errmsg e = {0};
    struct change c = {.key = "llama.expert_feed_forward_length2", .type = U32, .bits = 0};
    CHECK_INT(plan_changed("tiny-mixtral.gguf", &c, &plan, &e), OK); /* unknown keys are fine */
    CHECK_INT(plan.experts.n, 4);
    CHECK_INT(plan.experts.n_used, 2);
    CHECK_INT(plan.experts.n_ff, 96);
    CHECK_INT(plan.experts.n_ff_shared, 0);
    CHECK(plan.experts.normalise && plan.experts.scale == 1);
    model_plan_fini(&plan);
    c = (struct change){.from = "expert_feed_forward_length", .to = "expert_feed_backward_lengt"};
    CHECK_INT(plan_changed("tiny-qwen3moe.gguf", &c, &plan, &e), ERR_CORRUPT);
    CHECK_AT(strstr(e.text, "tensor blk.0.ffn_gate_exps.weight has shape [64, 32, 5, 1], must be "
                            "[64, 96, 5, 1]"),
             "%s", e.text);
}

TEST(architectures_weigh_their_experts_as_they_do_unless_the_file_says_otherwise)
{
    static const struct {
        const char *file, *norm;
        bool normalise;
        int n_ff_shared;
    } cases[] = {{"tiny-mixtral.gguf", "llama.expert_weights_norm", true, 0},
                 {"tiny-qwen2moe.gguf", "qwen2moe.expert_weights_norm", false, 96},
                 {"tiny-qwen3moe.gguf", "qwen3moe.expert_weights_norm", true, 0},
                 {"tiny-olmoe.gguf", "olmoe.expert_weights_norm", false, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_plan plan;
        struct errmsg e = {0};
        struct change none = {.key = "filler2", .type = U32},
                      other = {.key = cases[i].norm, .type = BOOL, .bits = !cases[i].normalise};
        REQUIRE(plan_changed(cases[i].file, &none, &plan, &e) == OK);
        CHECK_INT(plan.experts.normalise, cases[i].normalise);
        CHECK_INT(plan.experts.n_ff_shared, cases[i].n_ff_shared);
        CHECK(plan.layers[0].mixture.router && !plan.layers[0].gate.weight);
        model_plan_fini(&plan);
        REQUIRE(plan_changed(cases[i].file, &other, &plan, &e) == OK);
        CHECK_INT(plan.experts.normalise, !cases[i].normalise);
        model_plan_fini(&plan);
    }
}

TEST_MAIN()
