/* ending.h - how a call that brought no answer is told: a fault of ours, an error in the upstream's words, or its whole reply with status
 * and headers. Kept while something better is tried (ladder.h). Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_ENDING_H
#define DEJA_GATEWAY_ENDING_H
#include "gateway/headers.h"
#include "gateway/reply_fault.h"

struct ticket;

enum ending_kind { ENDING_NONE, ENDING_ERROR, ENDING_REPLY };
struct ending {
    enum ending_kind kind;
    bool degrades; /* another model or an older answer may do better */
    bool no_model; /* error is told to each in the words of what he asked for */
    struct openai_error error;
    uint64_t retry_ms;          /* 0 = nothing is known */
    int status;                 /* ENDING_REPLY, and the next two */
    struct header_list headers; /* not initialised otherwise */
    struct buf body;
};
/* What fault f with its detail comes to. */
void ending_of_fault(struct ending *out, enum fault f, const char *detail, uint64_t retry_ms);
/* An error in a stream or in a 200: its status, where it has one, decides whether it degrades. */
void ending_of_error(struct ending *out, const struct openai_error *e, int status);
/* What an upstream's error object says, in whichever of the usual forms. status: when it tells none, and then false. */
bool ending_read_error(const json_t *doc, int status, struct openai_error *e);
/* Moves the reply out of t. */
void ending_of_reply(struct ending *out, struct ticket *t);
/* Tells every rider that has received nothing yet, and ends the ticket; e is used up. */
void ending_tell(struct ending *e, struct ticket *t);
/* Tells the lines of batches among the riders; the others go on. */
void ending_tell_lines(const struct ending *e, struct ticket *t);
void ending_fini(struct ending *e);

#endif
