/* jinja_lex.h - cuts a template into tokens: text, tags and what stands in them. White space control is done here, with
 * trim_blocks and lstrip_blocks on, as the templates in model files expect. Private to the room. Pure; any thread.
 * Source: Jinja 3 documentation, "Template Designer Documentation" (behaviour checked against Jinja2 3.1). */
#ifndef DEJA_ENGINE_TEXT_JINJA_LEX_H
#define DEJA_ENGINE_TEXT_JINJA_LEX_H
#include "base/mem.h"
#include "base/str.h"

enum jinja_token_kind {
    JINJA_T_TEXT, /* text outside tags */
    JINJA_T_BLOCK_BEGIN,
    JINJA_T_BLOCK_END,
    JINJA_T_PRINT_BEGIN,
    JINJA_T_PRINT_END,
    JINJA_T_NAME,
    JINJA_T_STRING, /* text is decoded */
    JINJA_T_INT,
    JINJA_T_FLOAT,
    JINJA_T_OPERATOR,
    JINJA_T_END
};
enum { JINJA_SOURCE_MAX = 1 << 20 }; /* bytes; the longest template seen in the wild has 30 KB */

struct jinja_token {
    enum jinja_token_kind kind;
    int line;        /* from 1 */
    struct str text; /* lives in the arena */
    int64_t i;
    double f;
};
struct jinja_tokens {
    struct jinja_token *at; /* ends with JINJA_T_END; free with mem_free */
    size_t n;
};

/* ERR_INVALID with the line, ERR_TOO_LARGE. On failure nothing needs freeing but the arena. */
MUST enum err jinja_lex(struct arena *arena, struct str source, struct jinja_tokens *out,
                        struct errmsg *e);

#endif
