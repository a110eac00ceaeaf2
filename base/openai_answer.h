/* openai_answer.h - private to openai_*.c: pieces of reading an answer that the JSON reader and the collector share. Pure. */
#ifndef DEJA_BASE_OPENAI_ANSWER_H
#define DEJA_BASE_OPENAI_ANSWER_H
#include "base/openai.h"

/* Cuts on a whole character and at a NUL. */
void openai_copy_str(char *out, size_t cap, struct str s);
struct openai_usage openai_usage_read(const json_t *usage);
/* Sets a member, making *object on first use; null is passed over, arrays are joined. */
void openai_keep(json_t **object, const char *key, json_t *value);
/* True for {"error":...} and {"object":"error",...}; *e has its message (ERR_UNAVAILABLE). */
bool openai_is_error(const json_t *frame, struct errmsg *e);

#endif
