/* http_local.h - a request made inside the process: it looks to a handler like one that came through httpd (every call of httpd.h on it
 * works), and its reply is gathered in memory instead of going out. So work the program gives itself takes the very path of a client's
 * request. Bounded: a reply beyond body_max ends it, and the handler sees its client leave.
 * Threading: the loop's thread. Ownership: the maker's, until http_local_free. */
#ifndef DEJA_BASE_HTTP_LOCAL_H
#define DEJA_BASE_HTTP_LOCAL_H
#include "base/http_client.h"
#include "base/httpd.h"

struct http_local;

struct http_local_request { /* copied, but for the body */
    const char *method, *path;
    const struct http_header *headers;
    size_t n_headers;
    struct str body; /* borrowed until http_local_free */
    size_t body_max; /* of the reply */
};
/* code OK: the reply is whole. ERR_CLOSED: the handler cut it in the middle. ERR_TOO_LARGE: over body_max. status is 0 when none was said;
 * body is borrowed until http_local_free. */
typedef void http_local_done(void *arg, enum err code, int status, struct str body);

/* done comes exactly once, from the loop, unless it is freed before. */
struct http_local *http_local_new(struct loop *l, const struct http_local_request *q,
                                  http_local_done *done, void *arg);
/* What the handler gets, once, at once. */
struct http_req *http_local_req(struct http_local *l);
/* A header of the reply, first of that name; empty with p NULL when absent. */
struct str http_local_header(const struct http_local *l, const char *name);
/* Before its end the handler is told that its client has left. Fine within done; not from inside a call on the request. NULL is fine. */
void http_local_free(struct http_local *l);

#endif
