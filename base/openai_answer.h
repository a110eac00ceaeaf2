/* openai_answer.h - pieces of reading an answer, for whoever reads a form of it: the JSON reader and the collector here, the doors and the
 * embeddings above. Pure. */
#ifndef DEJA_BASE_OPENAI_ANSWER_H
#define DEJA_BASE_OPENAI_ANSWER_H
#include "base/openai.h"

/* Cuts on a whole character and at a NUL. */
void openai_copy_str(char *out, size_t cap, struct str s);
struct openai_usage openai_usage_read(const json_t *usage);
/* The member as a count of tokens: of what is no integer, is negative or beyond all reason, 0, so that sums of counts stay in range. */
int64_t openai_count(const json_t *object, const char *key);
enum { OPENAI_TOKENS_MAX = 1000000000 }; /* more than any answer costs */
/* Sets a member, making *object on first use; null is passed over, arrays are joined. */
void openai_keep(json_t **object, const char *key, json_t *value);
/* True for {"error":...} and {"object":"error",...}; *e has its message (ERR_UNAVAILABLE). */
bool openai_is_error(const json_t *frame, struct errmsg *e);

#endif
