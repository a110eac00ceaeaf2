/* served.h - the answer of an entry ready to be given: parsed, and whether the stored text is at once the JSON a client gets. Made when
 * first needed, kept beside entries that are served again (cache/store.h). Pure but for memory; counted references, one thread. */
#ifndef DEJA_CACHE_SERVED_H
#define DEJA_CACHE_SERVED_H
#include "cache/entry.h"

struct served {
    struct openai_answer answer;
    bool
        as_stored; /* the entry's text is byte for byte what openai_answer_write_json makes of answer */
    size_t bytes; /* about what it takes */
    int refs;
};
/* One reference. ERR_INVALID: the stored text is no answer. */
MUST enum err served_new(struct served **out, enum openai_kind kind, struct str stored,
                         struct errmsg *e);
struct served *served_ref(struct served *v);
void served_unref(struct served *v); /* NULL is fine */

#endif
