/* http_parse.h - HTTP/1.x messages as bytes: one head (request or status line with its headers) and the framing of one
 * body. Private to httpd*.c and http_client*.c. Knows no socket, clock or loop, so tests and the fuzzer feed it
 * directly. Strict on purpose (RFC 9112): a message that two readers could cut differently is refused, never repaired.
 * llhttp reads the head; the line structure is checked before it and the framing headers after it, because llhttp 8 in
 * its default build lets through obs-fold, a space before the colon, HTTP/0.9 and any two bytes in place of the CRLF
 * after a chunk. Threading: one thread per struct. */
#ifndef DEJA_BASE_HTTP_PARSE_H
#define DEJA_BASE_HTTP_PARSE_H
#include "base/buf.h"
#include "base/http_client.h" /* struct http_header */

/* Why a message was refused: what a server answers. All text is static. */
struct http_refusal {
    int status;
    const char *code, *message;
};

enum http_framing { HTTP_BODY_NONE, HTTP_BODY_LENGTH, HTTP_BODY_CHUNKED, HTTP_BODY_TO_CLOSE };

struct http_head {
    struct buf raw; /* the head as received, its last line included */
    size_t scan_at; /* raw before this is searched */
    size_t line_at; /* first byte of the line in work */
    int n_lines;    /* whole lines seen */
    int n_skipped;  /* bytes of empty lines before the first one */
    int headers_max;
    bool is_reply;
    struct http_header *fields; /* slices of raw, once parsed */
    int n_fields, fields_cap;
    struct str method, target, path, query; /* request */
    int status;                             /* reply */
    bool http_11;                           /* else 1.0 */
    bool keep_alive;
    bool expects_continue;
    enum http_framing framing;
    uint64_t length; /* with HTTP_BODY_LENGTH; of a reply to HEAD what it would have been */
};

void http_head_init(struct http_head *h, bool is_reply, size_t bytes_max, int headers_max);
void http_head_fini(struct http_head *h);
void http_head_clear(struct http_head *h); /* ready for the next message; a small buffer is kept */
bool http_head_begun(const struct http_head *h); /* anything but empty lines has been seen */
/* Takes bytes until the head is whole. OK: it is, *used of in belonged to it, fields and framing are set. ERR_AGAIN:
 * all was taken, more wanted. ERR_INVALID: refused, *why says so; feed no more. */
MUST enum err http_head_feed(struct http_head *h, struct str in, size_t *used,
                             struct http_refusal *why);
/* First header of that name, empty with p NULL when absent. */
struct str http_fields_find(const struct http_header *fields, size_t n, const char *name);
/* The list-valued header `name` (all its lines) holds token, case ignored. */
bool http_fields_have_token(const struct http_header *fields, size_t n, const char *name,
                            const char *token);
/* A field value may be sent: no CR, LF, NUL. A name: a token. */
bool http_value_ok(struct str value);
bool http_token_ok(struct str name);

/* The body reader takes framing off. */
struct http_body {
    enum http_framing framing;
    bool done;     /* HTTP_BODY_TO_CLOSE never sets it: the end of the connection is the end */
    uint64_t left; /* bytes of content until the next framing byte */
    int phase;     /* in chunked framing */
    int n_digits;
    size_t n_line; /* bytes of this chunk line or of all trailers so far, bounded */
};
void http_body_begin(struct http_body *b, enum http_framing framing, uint64_t length);
/* One step: *used bytes of in are dealt with, *content is the slice of them that is content (often empty). Call until
 * in is used up or done. ERR_CORRUPT: broken framing. b->left after a step tells the chunk size announced so far. */
MUST enum err http_body_step(struct http_body *b, struct str in, size_t *used, struct str *content);

#endif
