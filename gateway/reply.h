/* reply.h - everything a client receives: errors in OpenAI's shape, cached answers as JSON or as a stream, an upstream's own answer, and
 * the x-deja-* headers of each. Each call hands the reply over; whole replies leave x->r NULL. Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_REPLY_H
#define DEJA_GATEWAY_REPLY_H
#include "gateway/exchange.h"
#include "gateway/headers.h"
#include "gateway/reply_fault.h"

void outcome_init(struct outcome *o);
void outcome_reason(struct outcome *o, const char *reason);

/* Whole replies. */
void reply_refusal(struct exchange *x, const struct openai_error *e);
/* An error that no fault stands for; below 500 the client is to blame. */
void reply_problem(struct exchange *x, int status, const char *code, const char *param,
                   const char *message);
void reply_method(struct exchange *x, const char *allow); /* 405, with what is allowed */
void reply_fault(struct exchange *x, enum fault f, const char *detail);
void reply_fault_retry(struct exchange *x, enum fault f, const char *detail,
                       uint64_t retry_ms); /* with retry-after, at least 1 s */
void reply_body(struct exchange *x, int status, const char *content_type, struct str body);
/* An upstream's own reply; from may be NULL, else its headers pass on (hop-by-hop and the gateway's own left out). */
void reply_upstream(struct exchange *x, int status, struct str content_type,
                    const struct header_list *from, struct str body);
void reply_answer_json(struct exchange *x, const struct openai_answer *a);

/* Streams. Opens the reply; then x->tape is written by reply_pump as fast as the client reads. */
void reply_stream_open(struct exchange *x, const struct tape *tape, const struct header_list *from);
/* Renders a into x->own and opens it. */
void reply_answer_stream(struct exchange *x, const struct openai_answer *a);
/* Writes what there is. True: the tape has ended and all of it was written; the reply is over. */
bool reply_pump(struct exchange *x);

/* Reply headers that pass from an upstream to the client. */
bool reply_header_passes(struct str name);

#endif
