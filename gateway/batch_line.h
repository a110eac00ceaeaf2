/* batch_line.h - one line of a batch: what a line of the input must be, and the lines of results. Pure. */
#ifndef DEJA_GATEWAY_BATCH_LINE_H
#define DEJA_GATEWAY_BATCH_LINE_H
#include "base/json.h"

enum { BATCH_LINE_BYTES_MAX = 1 << 20, CUSTOM_ID_BYTES_MAX = 512, BATCH_ENDPOINT_BYTES = 32 };

/* What is wrong with a line, as a client reads it in the batch's errors. All text is static or in the struct. */
struct batch_fault {
    const char *code, *param; /* param "" = the line as a whole */
    char message[200];
};
struct batch_line {
    struct str custom_id; /* borrowed from doc */
    struct str body;      /* of text, as it was written */
    json_t *doc;
};

/* "/v1/chat/completions" and the others a batch may name. */
bool batch_endpoint_known(struct str endpoint);
/* Reads a line of the input. ERR_INVALID: *why is filled, nothing to free. */
MUST enum err batch_line_read(struct batch_line *out, struct str text, const char *endpoint,
                              struct batch_fault *why);
void batch_line_fini(struct batch_line *l);

/* An answer's body can be a member of a line: it is a JSON object. */
bool batch_body_ok(struct str body);
/* The line of a request that got an answer, whose body is ok; it is written without line breaks. False: out is full. */
struct batch_answer {
    const char *batch;
    int64_t line;
    struct str custom_id, request_id, body;
    int status;
};
bool batch_answer_write(struct buf *out, const struct batch_answer *a);
/* The line of a request that got none. */
void batch_error_write(struct buf *out, const struct batch_answer *a, const char *code,
                       const char *message);

#endif
