/* calibrate.h - measures what calibration.h keeps: a text through a model on the CPU, the largest input of every channel of every product
 * written down, some inputs kept whole; then, for each product, the share `a` with which int8 rounding of both sides comes nearest to
 * the exact product on those inputs. Nothing is moved where nothing is better.
 * Threading: one call at a time a model file; it has compute threads of its own. */
#ifndef DEJA_ENGINE_MODEL_CALIBRATE_H
#define DEJA_ENGINE_MODEL_CALIBRATE_H
#include "engine/model/calibration.h"

struct calibrate_options {
    const char *model_path;
    const char *
        text_path; /* UTF-8, as the model will meet it; its first CALIBRATE_TOKENS_MAX tokens count */
    const char *isa; /* as in model_options */
    int n_threads;
};
enum { CALIBRATE_TOKENS_MAX = 1 << 16, CALIBRATE_TOKENS_MIN = 64 };
/* ERR_INVALID: the text has too few tokens. */
MUST enum err calibrate_model(struct calibration **out, const struct calibrate_options *o,
                              struct errmsg *e);

#endif
