/* answers.h - do two answers say the same? Known only where it is plain: equal texts, every word explained, or a fact that differs; else
 * somebody must judge. Pure. */
#ifndef DEJA_CACHE_ANSWERS_H
#define DEJA_CACHE_ANSWERS_H
#include "cache/guard.h"
#include "base/openai.h"

enum answers_verdict { ANSWERS_DIFFER, ANSWERS_AGREE, ANSWERS_UNKNOWN };
enum answers_verdict answers_compare(const struct guard *g, struct str a, struct str b);
/* The text of the first choice, "" when it has none (tool calls). Borrowed from a. */
struct str answer_text(const struct openai_answer *a);

#endif
