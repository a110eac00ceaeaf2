/* tokenizer.h - text <-> token ids, one interface over byte-level BPE, SentencePiece, WordPiece and unigram vocabularies.
 * Built from a plain description, so that this room knows no file format. Immutable after construction:
 * any thread may encode and decode. */
#ifndef DEJA_ENGINE_TEXT_TOKENIZER_H
#define DEJA_ENGINE_TEXT_TOKENIZER_H
#include "base/buf.h"

struct tokenizer;

enum tokenizer_kind { TOKENIZER_BPE, TOKENIZER_SPM, TOKENIZER_WORDPIECE, TOKENIZER_UNIGRAM };
/* GGUF token types (tokenizer.ggml.token_type). */
enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_USER_DEFINED,
    TOKEN_UNUSED,
    TOKEN_BYTE
};

struct tokenizer_spec {
    enum tokenizer_kind kind;
    const char *
        pre; /* pre-tokenizer family ("smollm", "qwen2", "gpt-2", "llama-bpe"...); NULL = "gpt-2", logged loudly */
    int n_tokens;
    const struct str *tokens; /* [n_tokens] as stored in the file; everything here is copied */
    const int32_t *types;     /* [n_tokens] enum token_type, or NULL = all normal */
    const float *scores;      /* [n_tokens] for SPM and unigram, else NULL */
    int n_merges;
    const struct str *merges;             /* "left right", rank = index; BPE only */
    int32_t bos, eos, unk, pad, cls, sep; /* -1 = none */
    bool add_bos, add_eos;                /* added by TOKENIZE_ADD_SPECIAL */
    bool lowercase;                       /* WordPiece: lower-case and strip accents */
    bool add_space_prefix;                /* SPM: text starts with a word mark */
    bool remove_extra_whitespaces;        /* SPM: no runs of spaces, none at the ends */
    const int32_t *ends;                  /* [n_ends] further end-of-generation tokens (eot, eom) */
    int n_ends;
    struct str
        charsmap; /* unigram: SentencePiece's precompiled normaliser; empty = NFKC with its white space rules */
};

enum tokenize_flags {
    TOKENIZE_ADD_SPECIAL = 1, /* bos/eos, or [CLS]..[SEP] / <s>..</s> */
    TOKENIZE_PARSE_SPECIAL =
        2 /* control tokens written in the text become their ids: only for template text, never for
                                * what a user wrote. User-defined tokens (<tool_call>) are words of the text and always
                                * recognised, as in training */
};

struct token_list {
    int32_t *ids; /* free with token_list_fini */
    size_t n, cap, max;
    bool failed; /* more than max were produced, or memory is gone */
};
void token_list_init(struct token_list *l, size_t tokens_max);
void token_list_fini(struct token_list *l);
void token_list_add(struct token_list *l, int32_t id);

/* ERR_CORRUPT / ERR_UNSUPPORTED with the reason (unknown pre family, merge whose result is no token, duplicate token...). */
MUST enum err tokenizer_new(struct tokenizer **out, const struct tokenizer_spec *spec,
                            struct errmsg *e);
void tokenizer_free(struct tokenizer *t);

/* Appends the ids of text (valid or invalid UTF-8 alike; never fails but by out->failed). */
void tokenizer_encode(const struct tokenizer *t, struct str text, unsigned flags,
                      struct token_list *out);
/* The same for a rendered chat: control tokens are recognised inside template segments only, but text is cut into words
 * across segments, so that ids equal those of the plain text. segments cover text in order (chat_template.h).
 * TOKENIZE_ADD_SPECIAL does not double a bos that the template wrote. */
struct chat_segment;
void tokenizer_encode_segments(const struct tokenizer *t, struct str text,
                               const struct chat_segment *segments, size_t n_segments,
                               unsigned flags, struct token_list *out);
/* The raw bytes one token stands for ("" for control tokens unless special is true). Borrowed until tokenizer_free. */
struct str tokenizer_bytes(const struct tokenizer *t, int32_t id, bool special);
/* End-of-generation: eos, <|im_end|>, <|eot_id|>, <end_of_turn>, <|endoftext|>... as the file marks them. */
bool tokenizer_is_end(const struct tokenizer *t, int32_t id);
int tokenizer_size(const struct tokenizer *t);
int32_t tokenizer_id_of(const struct tokenizer *t, struct str token); /* -1 when there is none */
int32_t tokenizer_unk(const struct tokenizer *t);

#endif
