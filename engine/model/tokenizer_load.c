/* tokenizer_load.c - see tokenizer_load.h. */
#include "engine/model/tokenizer_load.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "engine/model/gguf.h"
#include "engine/text/chat_prompt.h"
#include "engine/text/pretokenize.h"

enum { TOKEN_TEXT_MAX = 64 };

/* Arrays read from the file; all but the strings' bytes are ours to free. */
struct parts {
    struct str *tokens, *merges;
    int32_t *types;
    float *scores;
    char *pre;
    int32_t ends[2];
};

static void parts_fini(struct parts *p)
{
    mem_free(p->tokens);
    mem_free(p->merges);
    mem_free(p->types);
    mem_free(p->scores);
    mem_free(p->pre);
}

static enum err read_id(const struct gguf *g, const char *key, int32_t *out, struct errmsg *e)
{
    uint32_t id = UINT32_MAX;
    *out = -1;
    enum err err = gguf_u32_opt(g, key, &id, e);
    if (err) return err;
    if (id == UINT32_MAX) return OK; /* absent, or written as -1 in 32 bits */
    if (id > INT32_MAX) return err_set(e, ERR_CORRUPT, "%s: %u is no token id", key, id);
    *out = (int32_t)id;
    return OK;
}

static enum err read_ids(const struct gguf *g, struct tokenizer_spec *s, struct parts *p,
                         struct errmsg *e)
{
    int32_t eot = -1, eom = -1;
    const struct {
        const char *key;
        int32_t *id;
    } ids[] = {{"tokenizer.ggml.bos_token_id", &s->bos},
               {"tokenizer.ggml.eos_token_id", &s->eos},
               {"tokenizer.ggml.unknown_token_id", &s->unk},
               {"tokenizer.ggml.padding_token_id", &s->pad},
               {"tokenizer.ggml.cls_token_id", &s->cls},
               {"tokenizer.ggml.seperator_token_id", &s->sep}, /* sic */
               {"tokenizer.ggml.eot_token_id", &eot},
               {"tokenizer.ggml.eom_token_id", &eom}};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        enum err err = read_id(g, ids[i].key, ids[i].id, e);
        if (err) return err;
    }
    if (eot >= 0) p->ends[s->n_ends++] = eot;
    if (eom >= 0) p->ends[s->n_ends++] = eom;
    s->ends = p->ends;
    return OK;
}

static enum err read_kind(const struct gguf *g, struct tokenizer_spec *s, struct errmsg *e)
{
    struct str model;
    enum err err = gguf_str(g, "tokenizer.ggml.model", &model, e);
    if (err) return err == ERR_NOT_FOUND ? ERR_CORRUPT : err;
    if (str_eqz(model, "gpt2"))
        s->kind = TOKENIZER_BPE;
    else if (str_eqz(model, "llama"))
        s->kind = TOKENIZER_SPM;
    else if (str_eqz(model, "bert"))
        s->kind = TOKENIZER_WORDPIECE;
    else if (str_eqz(model, "t5") || str_eqz(model, "unigram"))
        s->kind = TOKENIZER_UNIGRAM;
    else {
        char shown[40];
        return err_set(e, ERR_UNSUPPORTED,
                       "tokenizer.ggml.model: \"%s\" is not supported, expected gpt2, llama, bert, "
                       "t5 or unigram",
                       gguf_printable(model, shown, sizeof shown));
    }
    return OK;
}

static enum err read_arrays(const struct gguf *g, struct tokenizer_spec *s, struct parts *p,
                            struct errmsg *e)
{
    size_t n, n_types, n_scores, n_merges = 0;
    enum err err = gguf_str_array(g, "tokenizer.ggml.tokens", &p->tokens, &n, e);
    if (err) return err == ERR_NOT_FOUND ? ERR_CORRUPT : err;
    if (n < 1 || n > 1 << 24)
        return err_set(e, ERR_CORRUPT, "tokenizer.ggml.tokens: %zu tokens, expected 1 to 2^24", n);
    if (gguf_has(g, "tokenizer.ggml.token_type")) {
        if ((err = gguf_i32_array(g, "tokenizer.ggml.token_type", &p->types, &n_types, e)))
            return err;
        if (n_types != n)
            return err_set(e, ERR_CORRUPT, "tokenizer.ggml.token_type: %zu elements for %zu tokens",
                           n_types, n);
    }
    if (s->kind == TOKENIZER_UNIGRAM || s->kind == TOKENIZER_SPM) {
        if ((err = gguf_f32_array(g, "tokenizer.ggml.scores", &p->scores, &n_scores, e)))
            return err == ERR_NOT_FOUND ? ERR_CORRUPT : err;
        if (n_scores != n)
            return err_set(e, ERR_CORRUPT, "tokenizer.ggml.scores: %zu elements for %zu tokens",
                           n_scores, n);
        if (gguf_has(g, "tokenizer.ggml.precompiled_charsmap") &&
            (err = gguf_bytes(g, "tokenizer.ggml.precompiled_charsmap", &s->charsmap, e)))
            return err;
    }
    if (s->kind == TOKENIZER_BPE) {
        if ((err = gguf_str_array(g, "tokenizer.ggml.merges", &p->merges, &n_merges, e)))
            return err == ERR_NOT_FOUND ? ERR_CORRUPT : err;
        if (n_merges > 1 << 24)
            return err_set(e, ERR_CORRUPT,
                           "tokenizer.ggml.merges: %zu merges, expected at most 2^24", n_merges);
    }
    s->tokens = p->tokens;
    s->n_tokens = (int)n;
    s->types = p->types;
    s->scores = p->scores;
    s->merges = p->merges;
    s->n_merges = (int)n_merges;
    return OK;
}

static enum err read_switches(const struct gguf *g, struct tokenizer_spec *s, struct parts *p,
                              struct errmsg *e)
{
    struct str pre = {NULL, 0};
    s->add_bos = s->add_eos =
        s->kind == TOKENIZER_UNIGRAM; /* <s> text </s> unless the file says otherwise */
    if (s->kind == TOKENIZER_SPM) s->add_bos = s->add_space_prefix = true;
    s->lowercase = true;
    enum err err = gguf_str_opt(g, "tokenizer.ggml.pre", &pre, e);
    if (err) return err;
    if (pre.n) s->pre = p->pre = xstrndup(pre.p, pre.n < 200 ? pre.n : 200);
    struct pretokenize_rule rule;
    if (s->kind == TOKENIZER_BPE && s->pre && pretokenize_rule_of(s->pre, &rule) == OK)
        s->add_bos = rule.bos;
    err = gguf_bool_opt(g, "tokenizer.ggml.add_bos_token", &s->add_bos, e);
    if (!err) err = gguf_bool_opt(g, "tokenizer.ggml.add_eos_token", &s->add_eos, e);
    if (!err) err = gguf_bool_opt(g, "tokenizer.ggml.lowercase", &s->lowercase, e);
    if (!err) err = gguf_bool_opt(g, "tokenizer.ggml.add_space_prefix", &s->add_space_prefix, e);
    if (!err)
        err = gguf_bool_opt(g, "tokenizer.ggml.remove_extra_whitespaces",
                            &s->remove_extra_whitespaces, e);
    return err;
}

/* Files of the bert kind call the same tokens bos and eos; some name no unknown token but mark one; older ones of the llama
 * kind name neither bos nor eos, as these were the same in all. */
static void fill_gaps(struct tokenizer_spec *s)
{
    if (s->kind == TOKENIZER_SPM && s->n_tokens > 2 && s->types) {
        if (s->bos < 0 && s->types[1] == TOKEN_CONTROL) s->bos = 1;
        if (s->eos < 0 && s->types[2] == TOKEN_CONTROL) s->eos = 2;
    }
    if (s->kind == TOKENIZER_WORDPIECE) {
        if (s->cls < 0) s->cls = s->bos;
        if (s->sep < 0) s->sep = s->eos;
    }
    for (int i = 0; s->unk < 0 && s->types && i < s->n_tokens; i++)
        if (s->types[i] == TOKEN_UNKNOWN) s->unk = i;
}

enum err tokenizer_from_gguf(struct tokenizer **out, const struct gguf *g, struct errmsg *e)
{
    *out = NULL;
    struct tokenizer_spec spec = {.n_ends = 0};
    struct parts parts = {.tokens = NULL};
    enum err err = read_kind(g, &spec, e);
    if (!err) err = read_arrays(g, &spec, &parts, e);
    if (!err) err = read_ids(g, &spec, &parts, e);
    if (!err) err = read_switches(g, &spec, &parts, e);
    if (!err) {
        fill_gaps(&spec);
        err = tokenizer_new(out, &spec, e);
        if (err) err_prefix(e, err, "tokenizer");
    }
    parts_fini(&parts);
    return err;
}

void tokenizer_token_text(const struct gguf *g, const char *id_key, char *out, size_t cap)
{
    ASSERT(cap > 0);
    out[0] = 0;
    int32_t id;
    struct str *tokens;
    size_t n;
    if (read_id(g, id_key, &id, NULL) || id < 0 ||
        gguf_str_array(g, "tokenizer.ggml.tokens", &tokens, &n, NULL))
        return;
    if ((size_t)id < n) {
        size_t len = tokens[id].n < cap - 1 ? tokens[id].n : cap - 1;
        memcpy(out, tokens[id].p, len);
        out[len] = 0;
    }
    mem_free(tokens);
}

/* One line at start, as nothing in the answers shows it. */
static void log_traits(const struct chat_traits *traits)
{
    struct buf why;
    buf_init(&why, 4096);
    chat_traits_describe(traits, &why);
    if (traits->dated || traits->rewrites || traits->rewrites_with_tools)
        log_warn("text", "the chat template keeps prompts from being reused: %s", why.p);
    else if (why.n)
        log_info("text", "the chat template keeps part of a conversation from being reused: %s",
                 why.p);
    buf_fini(&why);
}

enum err chat_template_from_gguf(struct chat_template **out, const struct gguf *g,
                                 struct chat_traits *traits, struct errmsg *e)
{
    struct str source;
    char bos[TOKEN_TEXT_MAX], eos[TOKEN_TEXT_MAX];
    *out = NULL;
    enum err err = gguf_str(g, "tokenizer.chat_template", &source, e);
    if (err) return err;
    err = chat_template_new(out, source, e);
    if (err) return err_prefix(e, err, "tokenizer.chat_template");
    if (!traits) return OK;
    tokenizer_token_text(g, "tokenizer.ggml.bos_token_id", bos, sizeof bos);
    tokenizer_token_text(g, "tokenizer.ggml.eos_token_id", eos, sizeof eos);
    *traits = chat_traits_of(*out, bos, eos);
    log_traits(traits);
    return OK;
}

/* ChatML, for files that carry its control tokens but no template. */
static const char chatml[] =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

enum err chat_reader_from_gguf(struct tokenizer **tokenizer, struct chat_template **template,
                               struct chat_reader *text, const struct gguf *g, struct errmsg *e)
{
    *text = (struct chat_reader){0};
    *template = NULL;
    enum err code = tokenizer_from_gguf(tokenizer, g, e);
    if (code) return code;
    e->text[0] = 0;
    code = chat_template_from_gguf(template, g, &text->traits, e);
    if (code == ERR_NOT_FOUND) {
        e->text[0] = 0;
        code = OK;
        if (tokenizer_id_of(*tokenizer, STR("<|im_start|>")) >= 0)
            code = chat_template_new(template, str_of(chatml), e);
    }
    if (code) {
        chat_template_free(*template);
        *template = NULL;
    }
    text->tokenizer = *tokenizer;
    text->template = *template;
    tokenizer_token_text(g, "tokenizer.ggml.bos_token_id", text->bos, sizeof text->bos);
    tokenizer_token_text(g, "tokenizer.ggml.eos_token_id", text->eos, sizeof text->eos);
    return OK;
}
