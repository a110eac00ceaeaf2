/* tokenizer_unigram.c - see tokenizer_unigram.h. */
#include "engine/text/tokenizer_unigram.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/text/charsmap.h"
#include "engine/text/normalise.h"
#include "engine/text/piece_trie.h"
#include "engine/text/unicode.h"

static const uint32_t word_start = 0x2581;
enum {
    PIECE_BYTES_MAX = 256
}; /* longer tokens are never matched: the search looks this far ahead */

struct unigram {
    struct charsmap *map;    /* NULL: NFKC with SentencePiece's white space rules */
    struct piece_trie *trie; /* the pieces that text may become */
    float *score;            /* [n tokens] */
    float unk_score;
    int32_t unk;
};

static bool matches_text(const struct tokenizer_spec *s, int32_t id)
{
    if (id == s->unk || id == s->bos || id == s->eos || id == s->pad) return false;
    if (!s->types) return true;
    return s->types[id] == TOKEN_NORMAL || s->types[id] == TOKEN_USER_DEFINED;
}

static enum err read_pieces(struct unigram *u, const struct vocab *v,
                            const struct tokenizer_spec *spec, struct errmsg *e)
{
    struct piece *pieces = xcalloc((size_t)spec->n_tokens, sizeof *pieces);
    size_t n = 0;
    float least = 0;
    enum err err = OK;
    u->score = xmalloc((size_t)spec->n_tokens * sizeof *u->score);
    for (int i = 0; i < spec->n_tokens && !err; i++) {
        struct str text = vocab_text(v, i);
        u->score[i] = spec->scores[i];
        if (!isfinite(u->score[i]))
            err = err_set(e, ERR_CORRUPT, "the score of token %d is not finite", i);
        if (!matches_text(spec, i) || text.n == 0 || text.n > PIECE_BYTES_MAX) continue;
        pieces[n++] = (struct piece){text, i};
        if (u->score[i] < least) least = u->score[i];
    }
    u->unk_score = least - 10.0f; /* SentencePiece's penalty for an unknown character */
    if (!err) err = piece_trie_new(&u->trie, pieces, n, e);
    mem_free(pieces);
    return err;
}

enum err unigram_new(struct unigram **out, const struct vocab *v, const struct tokenizer_spec *spec,
                     struct errmsg *e)
{
    *out = NULL;
    if (!spec->scores) return err_set(e, ERR_CORRUPT, "a unigram vocabulary needs scores");
    if (spec->unk < 0)
        return err_set(e, ERR_CORRUPT, "a unigram vocabulary needs an unknown token");
    struct unigram *u = xcalloc(1, sizeof *u);
    u->unk = spec->unk;
    enum err err = read_pieces(u, v, spec, e);
    if (!err && spec->charsmap.n) err = charsmap_new(&u->map, spec->charsmap, e);
    if (err)
        unigram_free(u);
    else
        *out = u;
    return err;
}

void unigram_free(struct unigram *u)
{
    if (!u) return;
    charsmap_free(u->map);
    piece_trie_free(u->trie);
    mem_free(u->score);
    mem_free(u);
}

void unigram_decode_token(struct str written, struct buf *out)
{
    for (size_t i = 0; i < written.n;) {
        uint32_t code;
        size_t n = unicode_next(written, i, &code);
        if (code == word_start)
            buf_char(out, ' ');
        else
            buf_add(out, written.p + i, n);
        i += n;
    }
}

/* What SentencePiece's nmt_nfkc rules do beyond NFKC: most control characters vanish, odd spaces become spaces. */
static bool vanishes(uint32_t c)
{
    return (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F ||
           c == 0x9F;
}
static bool becomes_space(uint32_t c)
{
    return c == '\t' || c == '\n' || c == '\f' || c == '\r' || c == 0x1680 ||
           (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0xFEFF ||
           c == 0xFFFD || c == word_start || c == UNICODE_INVALID;
}

static void normalise_nmt(struct str text, struct buf *out)
{
    struct buf kept;
    buf_init(&kept, text.n + 64);
    for (size_t i = 0; i < text.n;) {
        uint32_t code;
        size_t n = unicode_next(text, i, &code);
        if (code == 0xFF5E) { /* the fullwidth tilde stays as it is */
            normalise(NORMAL_NFKC, buf_view(&kept), out);
            buf_clear(&kept);
            buf_utf8(out, code);
        } else if (becomes_space(code)) {
            buf_char(&kept, ' ');
        } else if (!vanishes(code)) {
            buf_add(&kept, text.p + i, n);
        }
        i += n;
    }
    normalise(NORMAL_NFKC, buf_view(&kept), out);
    out->failed |= buf_failed(&kept);
    buf_fini(&kept);
}

/* Normalised, white space collapsed and off both ends, each word led by U+2581. */
static void prepare(const struct unigram *u, struct str text, struct buf *out)
{
    struct buf plain;
    buf_init(&plain, text.n * 20 + 256); /* the largest expansion is 3 bytes to 33 (U+FDFA) */
    if (u->map)
        charsmap_apply(u->map, text, &plain);
    else
        normalise_nmt(text, &plain);
    struct str s = buf_view(&plain);
    bool at_start = true;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == ' ') {
            at_start = true;
            continue;
        }
        if (at_start) buf_utf8(out, word_start);
        at_start = false;
        buf_char(out, s.p[i]);
    }
    out->failed |= buf_failed(&plain);
    buf_fini(&plain);
}

/* Best way to reach a byte offset; only offsets between characters are ever reached. Sums are kept in double, so that ties
 * between equal sums fall as in the common implementation. */
struct reach {
    double score;
    int32_t id;
    uint32_t from;
};

static bool between_chars(struct str s, size_t at)
{
    return at == s.n || ((unsigned char)s.p[at] & 0xC0) != 0x80;
}

static void search(const struct unigram *u, struct str s, struct reach *at)
{
    for (size_t i = 0; i <= s.n; i++)
        at[i] = (struct reach){-INFINITY, -1, 0};
    at[0].score = 0;
    for (size_t i = 0, next; i < s.n; i = next) {
        uint32_t code, node = PIECE_TRIE_ROOT;
        next = i + unicode_next(s, i, &code);
        for (size_t end = i; end < s.n;) {
            node = piece_trie_step(u->trie, node, (unsigned char)s.p[end++]);
            if (node == PIECE_TRIE_ROOT) break;
            int32_t id = piece_trie_id(u->trie, node);
            if (id < 0 || end < next || !between_chars(s, end)) continue;
            double score = at[i].score + (double)u->score[id];
            if (score > at[end].score) at[end] = (struct reach){score, id, (uint32_t)i};
        }
        double unknown = at[i].score + (double)u->unk_score;
        if (unknown > at[next].score) at[next] = (struct reach){unknown, u->unk, (uint32_t)i};
    }
}

void unigram_encode(const struct unigram *u, struct str text, struct token_list *out)
{
    struct buf s;
    buf_init(&s, (size_t)1 << 30);
    prepare(u, text, &s);
    struct reach *at = buf_failed(&s) || !s.n ? NULL : try_malloc((s.n + 1) * sizeof *at);
    if (!at) {
        out->failed |= buf_failed(&s) || s.n;
        buf_fini(&s);
        return;
    }
    search(u, buf_view(&s), at);
    /* Walk back, turning the chain around by storing each step's successor in its start. */
    uint32_t next = (uint32_t)s.n;
    for (size_t i = s.n; i > 0;) {
        uint32_t from = at[i].from;
        at[i].from = next; /* now: where the piece after this one ends */
        next = (uint32_t)i;
        i = from;
    }
    int32_t last = -1;
    for (size_t i = next;; i = at[i].from) {
        if (at[i].id != u->unk || last != u->unk) token_list_add(out, at[i].id);
        last = at[i].id;
        if (i == s.n) break;
    }
    mem_free(at);
    buf_fini(&s);
}
