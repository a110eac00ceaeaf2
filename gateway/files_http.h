/* files_http.h - how large a request's body may be: uploads of known tenants have a bound of their own. */
#ifndef DEJA_GATEWAY_FILES_HTTP_H
#define DEJA_GATEWAY_FILES_HTTP_H
#include "base/httpd.h"

/* For httpd_options.body_max_of; the argument is the struct gateway. */
size_t files_body_max(void *gateway, const struct http_req *r);

#endif
