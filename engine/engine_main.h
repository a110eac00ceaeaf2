/* engine_main.h - `deja engine ...`: the inference server as a program. argv[0] is the sub-command's name. Returns the exit status. */
#ifndef DEJA_ENGINE_ENGINE_MAIN_H
#define DEJA_ENGINE_ENGINE_MAIN_H

int engine_main(int argc, char **argv);

#endif
