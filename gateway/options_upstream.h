/* options_upstream.h - private to options*.c: the family of upstream options. Threading: none. */
#ifndef DEJA_GATEWAY_OPTIONS_UPSTREAM_H
#define DEJA_GATEWAY_OPTIONS_UPSTREAM_H
#include "base/conf.h"

struct gateway_options;

const struct conf_row *upstream_option_rows(size_t *n);
/* Fills its fields of *o. ERR_INVALID: an upstream that cannot be read. */
MUST enum err upstream_options_read(struct gateway_options *o, const struct conf *c,
                                    struct errmsg *e);

#endif
