/* tokenizer_bpe.c - see tokenizer_bpe.h. */
#include "engine/text/tokenizer_bpe.h"

#include <string.h>

#include "base/mem.h"
#include "engine/text/merge_heap.h"
#include "engine/text/normalise.h"
#include "engine/text/unicode.h"

enum {
    SMALL = 64,           /* symbols merged by scanning; beyond it a heap wins */
    WHOLE_BYTES_MAX = 256 /* longer words are never looked up as a whole */
};

struct merge {
    uint64_t pair; /* left << 32 | right */
    int32_t rank, result;
};
struct bpe {
    struct pretokenize_rule rule;
    const struct vocab *vocab;
    uint8_t
        *is_word; /* [n tokens] words of this text stay whole; NULL: the family has no such rule */
    int32_t byte_id[256]; /* -1: no token */
    struct merge *merges; /* open addressing, pair ~0 = free */
    uint64_t mask;
};
static const uint64_t free_pair = UINT64_MAX;

/* GPT-2's alphabet: printable Latin-1 bytes stand for themselves, the others follow from U+0100 on in byte order. */
static uint32_t letter_of_byte(int byte)
{
    if ((byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174)
        return (uint32_t)byte;
    if (byte <= 32) return 256 + (uint32_t)byte;
    return byte <= 160 ? 256 + 33 + (uint32_t)(byte - 127) : 256 + 67; /* 173 is the last */
}

static int byte_of_letter(uint32_t code)
{
    if ((code >= 33 && code <= 126) || (code >= 161 && code <= 172) || (code >= 174 && code <= 255))
        return (int)code;
    if (code < 256 || code > 256 + 67) return -1;
    uint32_t k = code - 256;
    return k <= 32 ? (int)k : k < 67 ? 127 + (int)(k - 33) : 173;
}

void bpe_decode_token(struct str written, struct buf *out)
{
    for (size_t i = 0; i < written.n;) {
        uint32_t code;
        size_t n = unicode_next(written, i, &code);
        int byte = code == UNICODE_INVALID ? -1 : byte_of_letter(code);
        if (byte >= 0)
            buf_char(out, (char)byte);
        else
            buf_add(out, written.p + i, n);
        i += n;
    }
}

static inline uint64_t slot_of(const struct bpe *b, uint64_t pair)
{
    uint64_t h = pair * 0x9E3779B97F4A7C15u;
    return (h ^ h >> 32) & b->mask;
}

static inline const struct merge *merge_find(const struct bpe *b, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    for (uint64_t i = slot_of(b, pair);; i = (i + 1) & b->mask) {
        const struct merge *m = &b->merges[i];
        if (m->pair == pair) return m;
        if (m->pair == free_pair) return NULL;
    }
}

static enum err add_merge(struct bpe *b, const struct vocab *v, struct str line, int rank,
                          struct buf *joined, struct errmsg *e)
{
    ptrdiff_t cut = line.n > 2 ? str_find_char(str_sub(line, 1, line.n), ' ') : -1;
    if (cut < 0)
        return err_set(e, ERR_CORRUPT, "merge %d is not two tokens with a space between them",
                       rank);
    struct str left = {line.p, (size_t)cut + 1},
               right = {line.p + cut + 2, line.n - (size_t)cut - 2};
    buf_clear(joined);
    buf_str(joined, left);
    buf_str(joined, right);
    int32_t l = vocab_find(v, left), r = vocab_find(v, right),
            result = vocab_find(v, buf_view(joined));
    if (l < 0 || r < 0)
        return err_set(e, ERR_CORRUPT, "merge %d: its %s part is no token", rank,
                       l < 0 ? "left" : "right");
    if (result < 0) return err_set(e, ERR_CORRUPT, "merge %d: its result is no token", rank);
    uint64_t pair = (uint64_t)(uint32_t)l << 32 | (uint32_t)r;
    for (uint64_t i = slot_of(b, pair);; i = (i + 1) & b->mask) {
        if (b->merges[i].pair == pair) return OK;
        if (b->merges[i].pair != free_pair) continue;
        b->merges[i] = (struct merge){pair, rank, result};
        return OK;
    }
}

static void note_words(struct bpe *b, const struct tokenizer_spec *spec)
{
    b->is_word = xcalloc((size_t)spec->n_tokens, 1);
    for (int i = 0; i < spec->n_tokens; i++)
        b->is_word[i] = !spec->types || spec->types[i] == TOKEN_NORMAL;
}

enum err bpe_new(struct bpe **out, const struct vocab *v, struct pretokenize_rule rule,
                 const struct tokenizer_spec *spec, struct errmsg *e)
{
    const int n_merges = spec->n_merges;
    *out = NULL;
    if (n_merges < 0 || n_merges > 1 << 24)
        return err_set(e, ERR_TOO_LARGE, "%d merges, expected at most 2^24", n_merges);
    struct bpe *b = xcalloc(1, sizeof *b);
    b->rule = rule;
    b->vocab = v;
    if (rule.whole_words) note_words(b, spec);
    uint64_t n_slots = 16;
    while (n_slots < (uint64_t)n_merges * 3 / 2)
        n_slots *= 2;
    b->mask = n_slots - 1;
    b->merges = try_malloc(n_slots * sizeof *b->merges);
    enum err err = b->merges ? OK : err_set(e, ERR_TOO_LARGE, "no memory for %d merges", n_merges);
    for (uint64_t i = 0; !err && i < n_slots; i++)
        b->merges[i].pair = free_pair;
    for (int i = 0; i < 256; i++) {
        char utf8[4];
        size_t n = utf8_encode(letter_of_byte(i), utf8);
        b->byte_id[i] = vocab_find(v, (struct str){utf8, n});
    }
    struct buf joined;
    buf_init(&joined, (size_t)1 << 30);
    for (int i = 0; !err && i < n_merges; i++)
        err = add_merge(b, v, spec->merges[i], i, &joined, e);
    buf_fini(&joined);
    if (err)
        bpe_free(b);
    else
        *out = b;
    return err;
}

void bpe_free(struct bpe *b)
{
    if (!b) return;
    mem_free(b->merges);
    mem_free(b->is_word);
    mem_free(b);
}

/* Up to SMALL symbols: the ranks of neighbouring pairs in an array; the lowest is merged until none is left. */
static void encode_small(const struct bpe *b, struct str word, struct token_list *out)
{
    int32_t id[SMALL], rank[SMALL], result[SMALL];
    int n = 0;
    for (size_t i = 0; i < word.n; i++) {
        int32_t one = b->byte_id[(unsigned char)word.p[i]];
        if (one >= 0) id[n++] = one;
    }
    for (int i = 0; i + 1 < n; i++) {
        const struct merge *m = merge_find(b, id[i], id[i + 1]);
        rank[i] = m ? m->rank : MERGE_NEVER;
        result[i] = m ? m->result : -1;
    }
    while (n > 1) {
        int best = 0;
        for (int i = 1; i < n - 1; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == MERGE_NEVER) break;
        id[best] = result[best];
        n--;
        for (int i = best + 1; i < n; i++) {
            id[i] = id[i + 1];
            rank[i - 1] = rank[i];
            result[i - 1] = result[i];
        }
        for (int i = best - 1; i <= best; i++) {
            if (i < 0 || i + 1 >= n) continue;
            const struct merge *m = merge_find(b, id[i], id[i + 1]);
            rank[i] = m ? m->rank : MERGE_NEVER;
            result[i] = m ? m->result : -1;
        }
    }
    for (int i = 0; i < n; i++)
        token_list_add(out, id[i]);
}

/* Long words: a doubly linked list of symbols and a heap of the pairs that may merge. Entries whose symbols have changed
 * meanwhile are skipped. */
struct symbol {
    int32_t id, prev, next; /* -1 = none; id -1 = merged into its left neighbour */
};
struct long_word {
    struct symbol *sym;
    struct merge_heap heap;
};

static void consider(const struct bpe *b, struct long_word *w, int32_t left)
{
    if (left < 0 || w->sym[left].next < 0) return;
    int32_t l = w->sym[left].id, r = w->sym[w->sym[left].next].id;
    const struct merge *m = merge_find(b, l, r);
    if (m) merge_push(&w->heap, (struct merge_candidate){m->rank, left, l, r});
}

static void encode_long(const struct bpe *b, struct str word, struct token_list *out)
{
    struct long_word w = {try_malloc(word.n * sizeof *w.sym), {NULL, 0}};
    w.heap.at = word.n > INT32_MAX / 4 ? NULL : try_malloc(3 * word.n * sizeof *w.heap.at);
    if (!w.sym || !w.heap.at) {
        out->failed = true;
        goto out;
    }
    int32_t n = 0;
    for (size_t i = 0; i < word.n; i++) {
        int32_t one = b->byte_id[(unsigned char)word.p[i]];
        if (one < 0) continue;
        w.sym[n] = (struct symbol){one, n - 1, n + 1};
        n++;
    }
    if (!n) goto out;
    w.sym[n - 1].next = -1;
    for (int32_t i = 0; i + 1 < n; i++)
        consider(b, &w, i);
    while (w.heap.n) {
        struct merge_candidate c = merge_pop(&w.heap); /* x and y: the ids of its symbols */
        struct symbol *l = &w.sym[c.left];
        if (l->id != c.x || l->next < 0 || w.sym[l->next].id != c.y) continue;
        struct symbol *r = &w.sym[l->next];
        l->id = merge_find(b, c.x, c.y)->result;
        l->next = r->next;
        r->id = -1;
        if (l->next >= 0) w.sym[l->next].prev = c.left;
        consider(b, &w, l->prev);
        consider(b, &w, c.left);
    }
    for (int32_t i = 0; i >= 0; i = w.sym[i].next)
        token_list_add(out, w.sym[i].id);
out:
    mem_free(w.sym);
    mem_free(w.heap.at);
}

/* The token that reads like the whole word, or -1. */
static int32_t whole_word(const struct bpe *b, struct str word)
{
    char letters[2 * WHOLE_BYTES_MAX];
    size_t n = 0;
    if (!b->is_word || word.n > WHOLE_BYTES_MAX) return -1;
    for (size_t i = 0; i < word.n; i++)
        n += utf8_encode(letter_of_byte((unsigned char)word.p[i]), letters + n);
    int32_t id = vocab_find(b->vocab, (struct str){letters, n});
    return id >= 0 && b->is_word[id] ? id : -1;
}

static void encode_words(const struct bpe *b, struct str text, struct token_list *out)
{
    struct pretokenize_walk walk;
    struct str word;
    pretokenize_start(&walk, b->rule.family, text);
    while (!out->failed && pretokenize_next(&walk, &word)) {
        int32_t id = word.n == 1 ? b->byte_id[(unsigned char)*word.p] : whole_word(b, word);
        if (id >= 0) {
            token_list_add(out, id);
        } else if (word.n == 1) {
            continue;
        } else if (word.n <= SMALL) {
            encode_small(b, word, out);
        } else {
            encode_long(b, word, out);
        }
    }
}

void bpe_encode(const struct bpe *b, struct str text, struct token_list *out)
{
    if (!b->rule.nfc || !normalise_may_change_nfc(text)) {
        encode_words(b, text, out);
        return;
    }
    struct buf nfc;
    buf_init(
        &nfc,
        text.n * 3 +
            64); /* no character grows more than threefold in NFC (UAX #15, table of expansion factors) */
    normalise(NORMAL_NFC, text, &nfc);
    if (buf_failed(&nfc))
        out->failed = true;
    else
        encode_words(b, buf_view(&nfc), out);
    buf_fini(&nfc);
}
