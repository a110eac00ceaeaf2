/* tokenizer.c - the common part: vocabulary, special tokens, added tokens, and which algorithm encodes the text between. */
#include "engine/text/tokenizer.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "engine/text/chat_template.h"
#include "engine/text/special_tokens.h"
#include "engine/text/tokenizer_bpe.h"
#include "engine/text/tokenizer_spm.h"
#include "engine/text/tokenizer_unigram.h"
#include "engine/text/tokenizer_wordpiece.h"

struct tokenizer {
    enum tokenizer_kind kind;
    struct vocab *vocab;
    struct special_tokens *specials;
    uint8_t *flags;   /* [n] TOKEN_HIDDEN, TOKEN_ENDS */
    struct buf bytes; /* what the tokens stand for, one after the other */
    uint32_t *from;   /* [n+1] offsets into bytes */
    struct bpe *bpe;  /* exactly one of the four is set */
    struct spm *spm;
    struct wordpiece *wordpiece;
    struct unigram *unigram;
    int32_t bos, eos, unk, cls, sep;
    bool add_bos, add_eos;
};
enum { TOKEN_HIDDEN = 1, TOKEN_ENDS = 2 };

void token_list_init(struct token_list *l, size_t tokens_max)
{
    *l = (struct token_list){.max = tokens_max};
}

void token_list_fini(struct token_list *l)
{
    mem_free(l->ids);
    *l = (struct token_list){.max = l->max};
}

void token_list_add(struct token_list *l, int32_t id)
{
    if (l->failed) return;
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 64;
        if (cap > l->max) cap = l->max;
        int32_t *ids = cap > l->n ? try_realloc(l->ids, cap * sizeof *ids) : NULL;
        if (!ids) {
            l->failed = true;
            return;
        }
        l->ids = ids;
        l->cap = cap;
    }
    l->ids[l->n++] = id;
}

/* Control tokens that end a turn by their name, whatever the file says of eos. */
static bool ends_by_name(struct str text)
{
    static const char *const names[] = {
        "<|im_end|>",    "<|endoftext|>", "<|eot_id|>", "<|eom_id|>",    "<|end_of_text|>",
        "<end_of_turn>", "<|end|>",       "<|return|>", "<|eot|>",       "<|eom|>",
        "</s>",          "<eos>",         "<EOT>",      "<|endofturn|>", "<|END_OF_TURN_TOKEN|>"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (str_eqz(text, names[i])) return true;
    return false;
}

static enum token_type type_of(const struct tokenizer_spec *spec, int id)
{
    return spec->types ? (enum token_type)spec->types[id] : TOKEN_NORMAL;
}

static void add_bytes(struct tokenizer *t, struct str text, enum token_type type)
{
    int byte;
    if (type == TOKEN_BYTE && (byte = spm_byte_of(text)) >= 0)
        buf_char(&t->bytes, (char)byte);
    else if (type != TOKEN_NORMAL)
        buf_str(&t->bytes, text);
    else if (t->kind == TOKENIZER_BPE)
        bpe_decode_token(text, &t->bytes);
    else if (t->kind == TOKENIZER_UNIGRAM || t->kind == TOKENIZER_SPM)
        unigram_decode_token(text, &t->bytes);
    else
        wordpiece_decode_token(t->wordpiece, text, &t->bytes);
}

static enum err describe_tokens(struct tokenizer *t, const struct tokenizer_spec *spec,
                                struct errmsg *e)
{
    int n = spec->n_tokens;
    buf_init(&t->bytes, UINT32_MAX);
    t->from = try_malloc(((size_t)n + 1) * sizeof *t->from);
    t->flags = try_calloc((size_t)n, 1);
    if (!t->from || !t->flags) return err_set(e, ERR_TOO_LARGE, "no memory for %d tokens", n);
    struct special_token *specials = xcalloc((size_t)n, sizeof *specials);
    int n_specials = 0;
    for (int i = 0; i < n; i++) {
        struct str text = vocab_text(t->vocab, i);
        enum token_type type = type_of(spec, i);
        bool control = type == TOKEN_CONTROL || type == TOKEN_UNKNOWN;
        t->from[i] = (uint32_t)t->bytes.n;
        add_bytes(t, text, type);
        if (control || type == TOKEN_UNUSED) t->flags[i] |= TOKEN_HIDDEN;
        if (control && ends_by_name(text)) t->flags[i] |= TOKEN_ENDS;
        if (text.n && (control || type == TOKEN_USER_DEFINED))
            specials[n_specials++] = (struct special_token){text, i, control};
    }
    t->from[n] = (uint32_t)t->bytes.n;
    t->specials = special_tokens_new(specials, n_specials);
    mem_free(specials);
    return buf_failed(&t->bytes) ? err_set(e, ERR_TOO_LARGE, "the vocabulary's text is too long")
                                 : OK;
}

static enum err check_ids(const struct tokenizer_spec *s, struct errmsg *e)
{
    const struct {
        const char *name;
        int32_t id;
    } ids[] = {{"bos", s->bos},     {"eos", s->eos}, {"unknown", s->unk},
               {"padding", s->pad}, {"cls", s->cls}, {"separator", s->sep}};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        if (ids[i].id < -1 || ids[i].id >= s->n_tokens)
            return err_set(e, ERR_CORRUPT,
                           "the %s token is %d, expected below the vocabulary's size %d",
                           ids[i].name, (int)ids[i].id, s->n_tokens);
    for (int i = 0; i < s->n_ends; i++)
        if (s->ends[i] < 0 || s->ends[i] >= s->n_tokens)
            return err_set(e, ERR_CORRUPT, "end token %d is not below the vocabulary's size %d",
                           (int)s->ends[i], s->n_tokens);
    return OK;
}

static enum err open_bpe(struct tokenizer *t, const struct tokenizer_spec *spec, struct errmsg *e)
{
    const char *pre = spec->pre && strcmp(spec->pre, "default") != 0 ? spec->pre : NULL;
    if (!pre)
        log_warn("text", "the model file names no pre-tokenizer: assuming gpt-2; token ids may "
                         "differ from training");
    struct pretokenize_rule rule;
    if (pretokenize_rule_of(pre ? pre : "gpt-2", &rule))
        return err_set(e, ERR_UNSUPPORTED,
                       "pre-tokenizer \"%.60s\" is not supported: its words are cut in a way that "
                       "this program does not know (it knows gpt-2, smollm, llama-bpe, qwen2, "
                       "gpt-4o, tekken, deepseek-v3 and %zu more)",
                       pre, pretokenize_names() - 7);
    return bpe_new(&t->bpe, t->vocab, rule, spec, e);
}

enum err tokenizer_new(struct tokenizer **out, const struct tokenizer_spec *spec, struct errmsg *e)
{
    *out = NULL;
    struct tokenizer *t = xcalloc(1, sizeof *t);
    t->kind = spec->kind;
    t->bos = spec->bos;
    t->eos = spec->eos;
    t->unk = spec->unk;
    t->cls = spec->cls;
    t->sep = spec->sep;
    t->add_bos = spec->add_bos;
    t->add_eos = spec->add_eos;
    enum err err = check_ids(spec, e);
    if (!err) err = vocab_new(&t->vocab, spec->tokens, spec->n_tokens, e);
    if (!err && spec->kind == TOKENIZER_BPE) err = open_bpe(t, spec, e);
    if (!err && spec->kind == TOKENIZER_SPM) err = spm_new(&t->spm, t->vocab, spec, e);
    if (!err && spec->kind == TOKENIZER_WORDPIECE)
        err = wordpiece_new(&t->wordpiece, t->vocab, spec, e);
    if (!err && spec->kind == TOKENIZER_UNIGRAM) err = unigram_new(&t->unigram, t->vocab, spec, e);
    if (!err) err = describe_tokens(t, spec, e);
    if (err) {
        tokenizer_free(t);
        return err;
    }
    if (spec->eos >= 0) t->flags[spec->eos] |= TOKEN_ENDS;
    for (int i = 0; i < spec->n_ends; i++)
        t->flags[spec->ends[i]] |= TOKEN_ENDS;
    *out = t;
    return OK;
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t) return;
    bpe_free(t->bpe);
    spm_free(t->spm);
    wordpiece_free(t->wordpiece);
    unigram_free(t->unigram);
    special_tokens_free(t->specials);
    vocab_free(t->vocab);
    buf_fini(&t->bytes);
    mem_free(t->from);
    mem_free(t->flags);
    mem_free(t);
}

/* starts: the text begins here, or follows a control token; ends: it ends here, or a control token follows. */
static void encode_plain(const struct tokenizer *t, struct str text, bool starts, bool ends,
                         struct token_list *out)
{
    if (!text.n && !(t->spm && starts && !ends)) return;
    if (t->spm)
        spm_encode(t->spm, text, starts, ends, out);
    else if (t->bpe)
        bpe_encode(t->bpe, text, out);
    else if (t->wordpiece)
        wordpiece_encode(t->wordpiece, text, out);
    else
        unigram_encode(t->unigram, text, out);
}

static void add_prefix(const struct tokenizer *t, struct token_list *out)
{
    if (t->kind == TOKENIZER_WORDPIECE && t->cls >= 0)
        token_list_add(out, t->cls);
    else if (t->add_bos && t->bos >= 0)
        token_list_add(out, t->bos);
}

static void add_suffix(const struct tokenizer *t, struct token_list *out)
{
    if (t->kind == TOKENIZER_WORDPIECE && t->sep >= 0)
        token_list_add(out, t->sep);
    else if (t->add_eos && t->eos >= 0)
        token_list_add(out, t->eos);
}

void tokenizer_encode(const struct tokenizer *t, struct str text, unsigned flags,
                      struct token_list *out)
{
    struct chat_segment all = {0, text.n, !(flags & TOKENIZE_PARSE_SPECIAL)};
    tokenizer_encode_segments(t, text, &all, text.n ? 1 : 0, flags, out);
}

/* Walks over a text and its segments, which say where control tokens may be. */
struct walk {
    struct str text;
    const struct chat_segment *seg, *end;
    size_t at; /* everything before it has been encoded */
};

/* The next token at or after w->at that stands for itself: *from is where. A control token counts only where it lies
 * inside one segment of template text. */
static bool next_special(const struct tokenizer *t, struct walk *w, size_t *from,
                         struct special_match *m)
{
    bool user = special_tokens_any(t->specials, false);
    for (size_t i = w->at; i < w->text.n; i++) {
        while (w->seg < w->end && w->seg->from + w->seg->n <= i)
            w->seg++;
        bool template = w->seg < w->end && w->seg->from <= i && !w->seg->is_content;
        if (!user && !template) { /* nothing to look for here: on to the next segment */
            while (w->seg < w->end && (w->seg->is_content || w->seg->from + w->seg->n <= i))
                w->seg++;
            if (w->seg == w->end) return false;
            i = w->seg->from - 1;
            continue;
        }
        if (special_tokens_at(t->specials, w->text, i, template ? w->seg->from + w->seg->n : i,
                              m)) {
            *from = i;
            return true;
        }
    }
    return false;
}

void tokenizer_encode_segments(const struct tokenizer *t, struct str text,
                               const struct chat_segment *segments, size_t n_segments,
                               unsigned flags, struct token_list *out)
{
    struct walk w = {text, segments, segments + n_segments, 0};
    struct special_match m;
    size_t from = 0;
    bool found = next_special(t, &w, &from, &m);
    bool has_bos = found && from == 0 && m.control && m.id == t->bos;
    if (flags & TOKENIZE_ADD_SPECIAL && !has_bos) add_prefix(t, out);
    bool starts = true;
    for (; found && !out->failed; found = next_special(t, &w, &from, &m)) {
        encode_plain(t, str_sub(text, w.at, from - w.at), starts, m.control, out);
        token_list_add(out, m.id);
        w.at = from + m.n;
        starts = m.control;
    }
    encode_plain(t, str_sub(text, w.at, text.n - w.at), starts, true, out);
    if (flags & TOKENIZE_ADD_SPECIAL) add_suffix(t, out);
}

struct str tokenizer_bytes(const struct tokenizer *t, int32_t id, bool special)
{
    ASSERT(id >= 0 && id < vocab_size(t->vocab));
    if (t->flags[id] & TOKEN_HIDDEN && !special) return (struct str){"", 0};
    return (struct str){t->bytes.p + t->from[id], t->from[id + 1] - t->from[id]};
}

bool tokenizer_is_end(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && id < vocab_size(t->vocab) && t->flags[id] & TOKEN_ENDS;
}

int tokenizer_size(const struct tokenizer *t)
{
    return vocab_size(t->vocab);
}
int32_t tokenizer_id_of(const struct tokenizer *t, struct str token)
{
    return vocab_find(t->vocab, token);
}
int32_t tokenizer_unk(const struct tokenizer *t)
{
    return t->unk;
}
