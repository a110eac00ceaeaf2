/* http_client_request.h - a call's request as bytes. Private to http_client*.c. Pure. */
#ifndef DEJA_BASE_HTTP_CLIENT_REQUEST_H
#define DEJA_BASE_HTTP_CLIENT_REQUEST_H
#include "base/http_client.h"
#include "base/http_parse.h"

/* Appends head and body. ERR_INVALID: method, path or a header cannot be sent; ERR_TOO_LARGE: no memory. */
MUST enum err http_request_write(struct buf *b, const struct http_call_options *o,
                                 struct errmsg *e);

#endif
