/* tokenizer_wordpiece.c - one pass over the text; the word at hand is kept in its normalised form and cut into pieces when
 * it ends. */
#include "engine/text/tokenizer_wordpiece.h"

#include <string.h>

#include "base/mem.h"
#include "engine/text/normalise.h"
#include "engine/text/unicode.h"

enum { WORD_CHARS_MAX = 100 }; /* BERT's max_input_chars_per_word */
enum { WORD_BYTES_MAX = WORD_CHARS_MAX * 4 };

struct wordpiece {
    const struct vocab *vocab;
    struct str start_mark, inner_mark; /* written before a piece that starts a word, or goes on */
    size_t piece_bytes_max;            /* of any token */
    int32_t unk;
    bool lowercase;
};

struct word {
    char bytes[WORD_BYTES_MAX];
    size_t n;
    int n_chars; /* may pass WORD_CHARS_MAX: then the bytes are not kept */
};

enum err wordpiece_new(struct wordpiece **out, const struct vocab *v,
                       const struct tokenizer_spec *spec, struct errmsg *e)
{
    *out = NULL;
    struct wordpiece *w = xcalloc(1, sizeof *w);
    *w = (struct wordpiece){.vocab = v, .lowercase = spec->lowercase};
    bool hashes = false, blocks = false;
    for (int i = 0; i < vocab_size(v); i++) {
        struct str text = vocab_text(v, i);
        if (text.n > w->piece_bytes_max) w->piece_bytes_max = text.n;
        hashes |= text.n > 2 && str_starts(text, STR("##"));
        blocks |= text.n > 3 && str_starts(text, STR("\xe2\x96\x81"));
    }
    if (hashes || !blocks)
        w->inner_mark = STR("##");
    else
        w->start_mark = STR("\xe2\x96\x81");
    w->unk = spec->unk >= 0 ? spec->unk : vocab_find(v, STR("[UNK]"));
    if (w->unk < 0) {
        mem_free(w);
        return err_set(e, ERR_CORRUPT,
                       "the WordPiece vocabulary has no unknown token, expected [UNK]");
    }
    *out = w;
    return OK;
}

void wordpiece_free(struct wordpiece *w)
{
    mem_free(w);
}

void wordpiece_decode_token(const struct wordpiece *w, struct str written, struct buf *out)
{
    struct str mark = w->inner_mark.n ? w->inner_mark : w->start_mark;
    bool marked = written.n > mark.n && str_starts(written, mark);
    bool inner = w->inner_mark.n ? marked : !marked;
    if (!inner) buf_char(out, ' ');
    buf_str(out, marked ? str_sub(written, mark.n, written.n) : written);
}

/* The id of mark + piece, or -1. */
static int32_t piece_id(const struct wordpiece *w, struct str mark, const char *p, size_t n)
{
    char key[WORD_BYTES_MAX + 8];
    memcpy(key, mark.p ? mark.p : "", mark.n);
    memcpy(key + mark.n, p, n);
    return vocab_find(w->vocab, (struct str){key, mark.n + n});
}

/* Longest piece first; all or nothing. */
static void word_end(const struct wordpiece *w, struct word *word, struct token_list *out)
{
    if (!word->n_chars) return;
    int32_t ids[WORD_CHARS_MAX];
    int n = 0;
    size_t from = 0;
    bool known = word->n_chars <= WORD_CHARS_MAX;
    while (known && from < word->n) {
        struct str mark = from ? w->inner_mark : w->start_mark;
        size_t most = w->piece_bytes_max > mark.n ? w->piece_bytes_max - mark.n : 0;
        size_t end = word->n - from < most ? word->n : from + most;
        int32_t id = -1;
        for (; end > from; end--) {
            if (end < word->n && ((unsigned char)word->bytes[end] & 0xC0) == 0x80)
                continue; /* not between characters */
            id = piece_id(w, mark, word->bytes + from, end - from);
            if (id >= 0) break;
        }
        if (id < 0)
            known = false;
        else
            ids[n++] = id;
        from = end;
    }
    if (known)
        for (int i = 0; i < n; i++)
            token_list_add(out, ids[i]);
    else
        token_list_add(out, w->unk);
    word->n = 0;
    word->n_chars = 0;
}

static void word_add(struct word *word, uint32_t code)
{
    if (++word->n_chars > WORD_CHARS_MAX) {
        word->n_chars = WORD_CHARS_MAX + 1;
        return;
    }
    word->n += utf8_encode(code, word->bytes + word->n);
}

static bool is_punctuation(uint32_t code)
{
    if (code < 0x80)
        return (code >= 33 && code <= 47) || (code >= 58 && code <= 64) ||
               (code >= 91 && code <= 96) || (code >= 123 && code <= 126);
    return unicode_class(code) == UC_P;
}

static void add_char(const struct wordpiece *w, struct word *word, uint32_t code,
                     struct token_list *out)
{
    if (!is_punctuation(code)) {
        word_add(word, code);
        return;
    }
    word_end(w, word, out);
    word_add(word, code);
    word_end(w, word, out);
}

void wordpiece_encode(const struct wordpiece *w, struct str text, struct token_list *out)
{
    struct word word = {.n = 0};
    for (size_t i = 0; i < text.n && !out->failed;) {
        uint32_t code, parts[DECOMPOSED_MAX];
        i += unicode_next(text, i, &code);
        if (code == UNICODE_INVALID || code == 0 || code == 0xFFFD) continue;
        enum unicode_class class = unicode_class(code);
        bool control = (class == UC_CC || class == UC_CF || class == UC_CO) && code != '\t' &&
                       code != '\n' && code != '\r';
        if (control) continue;
        if (unicode_is_space(code)) {
            word_end(w, &word, out);
            continue;
        }
        bool cjk = unicode_is_cjk(code);
        if (cjk) word_end(w, &word, out);
        if (!w->lowercase) {
            add_char(w, &word, code, out);
        } else {
            int n = normalise_decompose(code, false, parts);
            for (int k = 0; k < n; k++)
                if (unicode_class(parts[k]) != UC_MN)
                    add_char(w, &word, unicode_lower(parts[k]), out);
        }
        if (cjk) word_end(w, &word, out);
    }
    word_end(w, &word, out);
}
