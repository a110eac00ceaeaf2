/* options_batch.h - the options of files and batches: a family of gateway/options.h. Pure. */
#ifndef DEJA_GATEWAY_OPTIONS_BATCH_H
#define DEJA_GATEWAY_OPTIONS_BATCH_H
#include "base/conf.h"

struct gateway_options;
const struct conf_row *batch_option_rows(size_t *n);
MUST enum err batch_options_read(struct gateway_options *o, const struct conf *c, struct errmsg *e);

#endif
