/* eval_main.h - sub-commands of this room: each takes its own arguments, prints, and returns the exit status. */
#ifndef DEJA_CACHE_EVAL_MAIN_H
#define DEJA_CACHE_EVAL_MAIN_H

int eval_main(int argc, char **argv);
int explain_main(int argc, char **argv);

#endif
