/* openai_check.h - private to openai_*.c: what the checks of a request share. A check returns true when all is well; otherwise the
 * error is filled and the request is refused. */
#ifndef DEJA_BASE_OPENAI_CHECK_H
#define DEJA_BASE_OPENAI_CHECK_H
#include "base/openai.h"

struct openai_check {
    struct openai_request *r;
    enum openai_strict strict;
    struct openai_error *e;
};

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
