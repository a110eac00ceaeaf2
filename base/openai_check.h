/* openai_check.h - private to openai_*.c: what the checks of a request share. A check returns true when all is well; otherwise the
 * error is filled and the request is refused. */
#ifndef DEJA_BASE_OPENAI_CHECK_H
#define DEJA_BASE_OPENAI_CHECK_H
#include "base/openai.h"

struct openai_check {
    struct openai_request *r;
    enum openai_strict strict;
    struct openai_error *e;
    uint64_t names; /* of the body's members, a bit each; others may share it */
};

static inline uint64_t openai_name_bit(struct str name)
{
    return name.n ? 1ull << (((unsigned char)name.p[0] * 7u + name.n) & 63) : 1;
}
/* A member of the body, null taken for absent. Of the many that a body could have it has few: most are not looked up. */
static inline const json_t *openai_given(const struct openai_check *c, const char *name)
{
    return c->names & openai_name_bit(str_of(name)) ? json_given(c->r->body, name) : NULL;
}

/* Always false. Status 400, type invalid_request_error; the message is "<param>: <text>". */
bool openai_refuse(const struct openai_check *c, const char *param, const char *code,
                   const char *fmt, ...) PRINTF_LIKE(4, 5);
/* "<param>: expected <what>, got a number" */
bool openai_refuse_type(const struct openai_check *c, const char *param, const char *expected,
                        const json_t *got);

bool openai_check_format(const struct openai_check *c);
bool openai_check_messages(const struct openai_check *c);
bool openai_check_tools(const struct openai_check *c); /* tools, tool_choice, functions */

#endif
