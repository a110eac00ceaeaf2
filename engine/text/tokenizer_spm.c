/* tokenizer_spm.c - see tokenizer_spm.h. */
#include "engine/text/tokenizer_spm.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/text/merge_heap.h"
#include "engine/text/unicode.h"

enum {
    SMALL = 64,              /* characters of a word joined by scanning; beyond it a heap wins */
    PIECE_BYTES_MAX = 1024,  /* longer tokens are never matched */
    NEIGHBOUR_BITS = 1 << 20 /* 128 KiB; 260,000 pieces set a fifth of them */
};
#define WORD_MARK "\xe2\x96\x81"

struct spm {
    const struct vocab *vocab;
    int32_t *
        rank; /* [n tokens] the higher the score the lower; MERGE_NEVER: text never becomes this token */
    uint8_t
        *unused; /* [n tokens], or NULL when there are none: pieces that are taken apart again */
    int32_t byte_id[256]; /* -1: no such token */
    int32_t unk;          /* -1: none */
    bool has_bytes, prefix, tidy;
    uint64_t *
        neighbours; /* a bit for each pair of characters that stand side by side in some piece, by hash */
};

int spm_byte_of(struct str written)
{
    if (written.n != 6 || memcmp(written.p, "<0x", 3) || written.p[5] != '>') return -1;
    int v = 0;
    for (int i = 3; i < 5; i++) {
        char c = written.p[i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                       : -1;
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

/* --- construction */

static inline uint32_t neighbour_bit(uint32_t a, uint32_t b)
{
    uint64_t h = ((uint64_t)a << 32 | b) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(h >> 44); /* the top 20 bits */
}

static inline bool may_join(const struct spm *s, uint32_t a, uint32_t b)
{
    uint32_t bit = neighbour_bit(a, b);
    return s->neighbours[bit / 64] >> bit % 64 & 1;
}

static void note_neighbours(struct spm *s, struct str piece)
{
    uint32_t before = 0, code;
    for (size_t i = 0, n; i < piece.n; i += n, before = code) {
        n = unicode_next(piece, i, &code);
        if (!i) continue;
        uint32_t bit = neighbour_bit(before, code);
        s->neighbours[bit / 64] |= (uint64_t)1 << bit % 64;
    }
}

/* An integer that falls as the score rises. */
static int32_t rank_of(float score)
{
    int32_t bits;
    score += 0.0f; /* -0 and 0 are the same */
    memcpy(&bits, &score, sizeof bits);
    return ~(bits ^ (bits >> 31 & INT32_MAX));
}

static enum token_type type_of(const struct tokenizer_spec *spec, int32_t id)
{
    if (!spec->types)
        return spm_byte_of(spec->tokens[id]) >= 0 ? TOKEN_BYTE
               : id == spec->unk                  ? TOKEN_UNKNOWN
                                                  : TOKEN_NORMAL;
    return (enum token_type)spec->types[id];
}

static enum err read_pieces(struct spm *s, const struct tokenizer_spec *spec, struct errmsg *e)
{
    for (int32_t i = 0; i < spec->n_tokens; i++) {
        struct str text = vocab_text(s->vocab, i);
        enum token_type type = type_of(spec, i);
        s->rank[i] = MERGE_NEVER;
        if (type == TOKEN_BYTE) {
            int byte = spm_byte_of(text);
            if (byte < 0)
                return err_set(e, ERR_CORRUPT, "token %d is a byte, but not written as <0xNN>",
                               (int)i);
            s->byte_id[byte] = i;
            s->has_bytes = true;
        }
        if ((type != TOKEN_NORMAL && type != TOKEN_USER_DEFINED && type != TOKEN_UNUSED) ||
            text.n == 0 || text.n > PIECE_BYTES_MAX)
            continue;
        if (!isfinite(spec->scores[i]))
            return err_set(e, ERR_CORRUPT, "the score of token %d is not finite", (int)i);
        s->rank[i] = rank_of(spec->scores[i]);
        if (type == TOKEN_UNUSED) {
            if (!s->unused) s->unused = xcalloc((size_t)spec->n_tokens, 1);
            s->unused[i] = 1;
        }
        note_neighbours(s, text);
    }
    return OK;
}

enum err spm_new(struct spm **out, const struct vocab *v, const struct tokenizer_spec *spec,
                 struct errmsg *e)
{
    *out = NULL;
    if (!spec->scores) return err_set(e, ERR_CORRUPT, "a SentencePiece vocabulary needs scores");
    struct spm *s = xcalloc(1, sizeof *s);
    s->vocab = v;
    s->unk = spec->unk;
    s->prefix = spec->add_space_prefix;
    s->tidy = spec->remove_extra_whitespaces;
    s->rank = xmalloc((size_t)spec->n_tokens * sizeof *s->rank);
    s->neighbours = xcalloc(NEIGHBOUR_BITS / 64, sizeof *s->neighbours);
    for (int i = 0; i < 256; i++)
        s->byte_id[i] = -1;
    enum err err = read_pieces(s, spec, e);
    if (!err && !s->has_bytes && s->unk < 0)
        err = err_set(e, ERR_CORRUPT,
                      "a SentencePiece vocabulary has neither byte tokens nor an unknown token");
    if (err)
        spm_free(s);
    else
        *out = s;
    return err;
}

void spm_free(struct spm *s)
{
    if (!s) return;
    mem_free(s->rank);
    mem_free(s->unused);
    mem_free(s->neighbours);
    mem_free(s);
}

/* --- words */

/* The piece that reads like text, or -1. */
static inline int32_t piece_of(const struct spm *s, struct str text)
{
    if (text.n > PIECE_BYTES_MAX) return -1;
    int32_t id = vocab_find(s->vocab, text);
    return id >= 0 && s->rank[id] != MERGE_NEVER ? id : -1;
}

/* One symbol of the result; id -1 = not looked up yet. */
static void put(const struct spm *s, struct str text, int32_t id, struct token_list *out)
{
    if (id < 0) id = piece_of(s, text);
    if (id >= 0) {
        token_list_add(out, id);
        return;
    }
    for (size_t i = 0; i < text.n && s->has_bytes; i++) {
        int32_t byte = s->byte_id[(unsigned char)text.p[i]];
        if (byte < 0) byte = s->unk;
        if (byte >= 0) token_list_add(out, byte);
    }
    if (s->has_bytes) return;
    if (!out->n || out->ids[out->n - 1] != s->unk) /* neighbours become one */
        token_list_add(out, s->unk);
}

/* A word of n characters, which start at the given bytes (start[n] is its end). Changes start. */
static void encode_small(const struct spm *s, const char *text, uint32_t *start, int n,
                         struct token_list *out)
{
    int32_t id[SMALL], joint[SMALL],
        rank[SMALL]; /* of symbol i; of symbols i and i+1 together; its rank */
#define JOIN(i)                                                                                    \
    do {                                                                                           \
        joint[i] = piece_of(s, (struct str){text + start[i], start[(i) + 2] - start[i]});          \
        rank[i] = joint[i] >= 0 ? s->rank[joint[i]] : MERGE_NEVER;                                 \
    } while (0)
    for (int i = 0; i < n; i++)
        id[i] = -1;
    for (int i = 0; i + 1 < n; i++)
        JOIN(i);
    while (n > 1) {
        int best = 0;
        for (int i = 1; i < n - 1; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == MERGE_NEVER) break;
        id[best] = joint[best];
        n--;
        for (int i = best + 1; i < n; i++) {
            start[i] = start[i + 1];
            id[i] = id[i + 1];
            joint[i - 1] = joint[i];
            rank[i - 1] = rank[i];
        }
        start[n] = start[n + 1];
        if (best > 0) JOIN(best - 1);
        if (best + 1 < n) JOIN(best);
    }
#undef JOIN
    for (int i = 0; i < n; i++)
        put(s, (struct str){text + start[i], start[i + 1] - start[i]}, id[i], out);
}

/* Long words: a doubly linked list of symbols and a heap of the pairs that may join. Entries whose symbols have changed
 * meanwhile are skipped. */
struct symbol {
    uint32_t at, n; /* bytes; n 0 = joined to its left neighbour */
    int32_t id, prev, next;
    int32_t joined; /* when it was joined to its left neighbour, from 1 on */
};
struct long_word {
    const char *text;
    struct symbol *sym; /* one a character, and one more for the end */
    struct merge_heap heap;
};

static void consider(const struct spm *s, struct long_word *w, int32_t left)
{
    if (left < 0 || w->sym[left].next < 0) return;
    const struct symbol *l = &w->sym[left];
    uint32_t n = l->n + w->sym[l->next].n;
    int32_t id = piece_of(s, (struct str){w->text + l->at, n});
    if (id >= 0) merge_push(&w->heap, (struct merge_candidate){s->rank[id], left, id, (int32_t)n});
}

static void join_all(const struct spm *s, struct long_word *w)
{
    int32_t joined = 0;
    while (w->heap.n) {
        struct merge_candidate c = merge_pop(&w->heap); /* x: the token, y: its bytes */
        struct symbol *l = &w->sym[c.left];
        if (!l->n || l->next < 0 || l->n + w->sym[l->next].n != (uint32_t)c.y) continue;
        struct symbol *r = &w->sym[l->next];
        l->id = c.x;
        l->n += r->n;
        l->next = r->next;
        r->n = 0;
        r->joined = ++joined;
        if (l->next >= 0) w->sym[l->next].prev = c.left;
        consider(s, w, l->prev);
        consider(s, w, c.left);
    }
}

/* The characters from..to-1 as one token; one that is not to be used falls apart where it was joined last. */
static void put_used(const struct spm *s, const struct long_word *w, int32_t from, int32_t to,
                     struct token_list *out)
{
    struct str text = {w->text + w->sym[from].at, w->sym[to].at - w->sym[from].at};
    int32_t id = piece_of(s, text), cut = from + 1;
    if (id < 0 || !s->unused || !s->unused[id] || to - from < 2) {
        put(s, text, id, out);
        return;
    }
    for (int32_t i = from + 2; i < to; i++)
        if (w->sym[i].joined > w->sym[cut].joined) cut = i;
    put_used(s, w, from, cut, out); /* at most as deep as the piece has characters */
    put_used(s, w, cut, to, out);
}

static void encode_long(const struct spm *s, struct str word, struct token_list *out)
{
    struct long_word w = {word.p, NULL, {NULL, 0}};
    if (word.n <= INT32_MAX / 4) {
        w.sym = try_malloc((word.n + 1) * sizeof *w.sym);
        w.heap.at = try_malloc(3 * word.n * sizeof *w.heap.at);
    }
    if (!w.sym || !w.heap.at) {
        out->failed = true;
        goto out;
    }
    int32_t n = 0;
    for (size_t i = 0, bytes; i < word.n; i += bytes, n++) {
        uint32_t code;
        bytes = unicode_next(word, i, &code);
        w.sym[n] = (struct symbol){(uint32_t)i, (uint32_t)bytes, -1, n - 1, n + 1, 0};
    }
    w.sym[n] = (struct symbol){.at = (uint32_t)word.n};
    w.sym[n - 1].next = -1;
    for (int32_t i = 0; i + 1 < n; i++)
        consider(s, &w, i);
    join_all(s, &w);
    for (int32_t i = 0; i >= 0; i = w.sym[i].next)
        put_used(s, &w, i, w.sym[i].next < 0 ? n : w.sym[i].next, out);
out:
    mem_free(w.sym);
    mem_free(w.heap.at);
}

/* Cuts at the places that no piece spans: nothing joins across them, whatever stands around. */
static void encode_words(const struct spm *s, struct str text, struct token_list *out)
{
    uint32_t start[SMALL + 1], code, before = 0;
    for (size_t from = 0, i = 0; from < text.n && !out->failed; from = i) {
        int n = 0;
        for (size_t bytes; i < text.n; i += bytes, before = code) {
            bytes = unicode_next(text, i, &code);
            if (i > from && !may_join(s, before, code)) break;
            if (n < SMALL) start[n] = (uint32_t)(i - from);
            n += n <= SMALL;
        }
        if (n == 1) {
            put(s, str_sub(text, from, i - from), -1, out);
        } else if (n <= SMALL && !s->unused) {
            start[n] = (uint32_t)(i - from);
            encode_small(s, text.p + from, start, n, out);
        } else {
            encode_long(s, str_sub(text, from, i - from), out);
        }
    }
}

/* Spaces as word marks. Tidy vocabularies saw neither runs of spaces nor spaces at the ends. */
static void mark_spaces(const struct spm *s, struct str text, bool starts, bool ends,
                        struct buf *out)
{
    bool after_space = starts;
    while (s->tidy && ends && text.n && text.p[text.n - 1] == ' ')
        text.n--;
    if (s->prefix && starts && (text.n || !ends)) buf_z(out, WORD_MARK);
    for (size_t i = 0; i < text.n;) {
        if (text.p[i] == ' ') {
            if (!s->tidy || !after_space) buf_z(out, WORD_MARK);
            after_space = true;
            i++;
            continue;
        }
        const char *space = memchr(text.p + i, ' ', text.n - i);
        size_t n = space ? (size_t)(space - text.p) - i : text.n - i;
        buf_add(out, text.p + i, n);
        after_space = false;
        i += n;
    }
}

void spm_encode(const struct spm *s, struct str text, bool starts, bool ends,
                struct token_list *out)
{
    struct buf marked;
    buf_init(&marked, text.n < SIZE_MAX / 4 ? text.n * 3 + 3 : 0);
    mark_spaces(s, text, starts, ends, &marked);
    if (buf_failed(&marked))
        out->failed = true;
    else
        encode_words(s, buf_view(&marked), out);
    buf_fini(&marked);
}
