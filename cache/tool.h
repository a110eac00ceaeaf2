/* tool.h - what the command line tools of this room share: arguments that are not options, and the encoder with its verifier. */
#ifndef DEJA_CACHE_TOOL_H
#define DEJA_CACHE_TOOL_H
#include "base/conf.h"
#include "cache/eval.h"

enum { TOOL_WORDS_MAX = 64 };
/* Splits the words before and between the options off: argv[1..] into words[] and the options into conf. Flags of type BOOL take no value,
 * "--compare" two (both go to the rows named compare and to). Prints help, or what is wrong, and sets *status then; false = stop. */
MUST bool tool_args(struct conf *c, const char *usage, int argc, char **argv, const char **words,
                    int *n_words, int *status);

/* An encoder, the guards and the verifier, as a gateway would have them. */
struct tool {
    struct embedder *embedder; /* NULL: "none" */
    struct guard *guard;
    struct verifier *verifier; /* NULL = the encoder has none */
    struct policy shipped;
};
/* model: a file or URL, "" or "none". net: a file of retrained verifier weights, "" = the shipped ones. False: said why. */
MUST bool tool_open(struct tool *t, const char *name, const char *model, const char *net,
                    int threads);
void tool_close(struct tool *t);
/* "threshold_en=0.9,mode=bound" into *k; guards=no switches all guards off. False: said why. */
MUST bool tool_knobs(struct cache_knobs *k, const char *name, struct str settings);
/* Writes to standard output; buf is emptied. */
void tool_print(struct buf *b);

#endif
