/* arch.c - the table of decoder architectures. See arch.h. */
#include "engine/model/arch.h"

static const struct model_arch archs[] = {
    {.name = "llama"},
    {.name = "qwen2", .half_split = true, .qkv_bias = true},
    {.name = "qwen3", .half_split = true, .qk_norm = true},
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
    return "llama, qwen2, qwen3, gemma2 and gemma3";
}
