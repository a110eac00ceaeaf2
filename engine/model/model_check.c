/* model_check.c - see model_check.h. */
#include "engine/model/model_check.h"

#include <jansson.h>

#include "engine/model/encoder.h"
#include "engine/model/gguf.h"
#include "engine/model/model_plan.h"
#include "engine/model/tokenizer_load.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"

enum { PROBE_TEXT_MAX = 1 << 16, PROBE_STEPS_MAX = 1 << 18 };

/* A template that cannot render one plain question in bounded time would fail every request. */
static enum err render_probe(const struct chat_template *t, const struct gguf *g, struct errmsg *e)
{
    char bos[64], eos[64];
    tokenizer_token_text(g, "tokenizer.ggml.bos_token_id", bos, sizeof bos);
    tokenizer_token_text(g, "tokenizer.ggml.eos_token_id", eos, sizeof eos);
    json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "Hello");
    struct chat_render_options o = {
        .messages = (const struct json_t *)messages,
        .add_generation_prompt = true,
        .bos_token = bos,
        .eos_token = eos,
        .text_max = PROBE_TEXT_MAX,
        .steps_max = PROBE_STEPS_MAX,
    };
    struct chat_rendering r;
    enum err code = chat_template_render(t, &o, &r, e);
    if (!code) chat_rendering_fini(&r);
    json_decref(messages);
    return code ? err_prefix(e, code, "tokenizer.chat_template") : OK;
}

static enum err check_text(const struct gguf *g, bool is_decoder, struct errmsg *e)
{
    struct tokenizer *tokenizer;
    struct chat_template *t;
    enum err code = tokenizer_from_gguf(&tokenizer, g, e);
    if (code) return code;
    tokenizer_free(tokenizer);
    if (!is_decoder || !gguf_has(g, "tokenizer.chat_template")) return OK;
    if ((code = chat_template_from_gguf(&t, g, NULL, e))) return code;
    code = render_probe(t, g, e);
    chat_template_free(t);
    return code;
}

static enum err check_decoder(const struct gguf *g, struct buf *summary, struct errmsg *e)
{
    struct model_plan p;
    enum err code = model_plan_read(&p, g, e);
    if (code) return code;
    if (summary)
        buf_printf(summary,
                   STR_FMT " decoder: %d layers, width %d, %d/%d heads of %d, feed-forward %d, "
                           "vocabulary %d, context %d, "
                           "%.1f MB of weights",
                   STR_ARG(p.name), p.n_layer, p.n_embd, p.n_head, p.n_kv_head, p.head_dim, p.n_ff,
                   p.n_vocab, p.context_length, (double)p.weight_bytes / 1e6);
    const struct plan_experts *x = &p.experts;
    if (summary && x->n)
        buf_printf(summary, ", %d of %d experts of %d a token%s", x->n_used, x->n, x->n_ff,
                   x->n_ff_shared ? " and a shared one" : "");
    model_plan_fini(&p);
    return OK;
}

enum err model_check(const char *path, struct buf *summary, struct errmsg *e)
{
    struct gguf *g;
    struct str arch = {NULL, 0};
    enum err code = gguf_open(&g, path, e);
    if (code) return code;
    code = gguf_str_opt(g, "general.architecture", &arch, e);
    bool is_encoder = str_eqz(arch, "bert");
    if (!code) code = is_encoder ? encoder_check(g, summary, e) : check_decoder(g, summary, e);
    if (!code) code = check_text(g, !is_encoder, e);
    gguf_close(g);
    return code ? err_prefix(e, code, "%s", path) : OK;
}
