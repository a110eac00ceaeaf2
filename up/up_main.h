/* up_main.h - `deja up`: a private redis-server, one engine, one gateway, started in order, watched, and ended in order. */
#ifndef DEJA_UP_UP_MAIN_H
#define DEJA_UP_UP_MAIN_H

/* The sub-command; argv[0] is "up". Returns the process's exit status. */
int up_main(int argc, char **argv);

#endif
