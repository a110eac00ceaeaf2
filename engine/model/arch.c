/* arch.c - the table of decoder architectures. See arch.h. */
#include "engine/model/arch.h"

static const struct model_arch archs[] = {
    {.name = "llama", .experts = EXPERTS_MAYBE, .experts_sum_to_1 = true},
    {.name = "qwen2", .half_split = true, .qkv_bias = true},
    {.name = "qwen2moe",
     .half_split = true,
     .qkv_bias = true,
     .experts = EXPERTS_ALWAYS,
     .shared_expert = true},
    {.name = "qwen3", .half_split = true, .qk_norm = true},
    {.name = "qwen3moe",
     .half_split = true,
     .qk_norm = true,
     .experts = EXPERTS_ALWAYS,
     .experts_sum_to_1 = true},
    {.name = "olmoe", .half_split = true, .qk_norm_wide = true, .experts = EXPERTS_ALWAYS},
    {.name = "gemma2",
     .half_split = true,
     .post_norms = true,
     .gelu = true,
     .embed_scaled = true,
     .window_period = 2,
     .window = 4096,
     .attn_softcap = 50,
     .final_softcap = 30,
     .has_softcaps = true,
     .wide_scale_layers = 46},
    {.name = "gemma3",
     .half_split = true,
     .qk_norm = true,
     .post_norms = true,
     .gelu = true,
     .embed_scaled = true,
     .window_period = 6,
     .local_base = 10000,
     .has_softcaps = true,
     .wide_scale_layers = 62},
};

const struct model_arch *model_arch_find(struct str name)
{
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++)
        if (str_eqz(name, archs[i].name)) return &archs[i];
    return NULL;
}

const char *model_arch_names(void)
{
    return "llama, qwen2, qwen2moe, qwen3, qwen3moe, olmoe, gemma2 and gemma3";
}
