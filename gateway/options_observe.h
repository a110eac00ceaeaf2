/* options_observe.h - private to options*.c: what an operator sees of requests. Threading: none. */
#ifndef DEJA_GATEWAY_OPTIONS_OBSERVE_H
#define DEJA_GATEWAY_OPTIONS_OBSERVE_H
#include "base/conf.h"

struct gateway_options;

const struct conf_row *observe_option_rows(size_t *n);
/* Fills its fields of *o. ERR_INVALID: a format there is none of. */
MUST enum err observe_options_read(struct gateway_options *o, const struct conf *c,
                                   struct errmsg *e);

#endif
