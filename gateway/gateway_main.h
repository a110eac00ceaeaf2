/* gateway_main.h - `deja gateway`: builds the gateway from its options, serves until SIGTERM or SIGINT, drains, and takes it down. */
#ifndef DEJA_GATEWAY_GATEWAY_MAIN_H
#define DEJA_GATEWAY_GATEWAY_MAIN_H

/* argv[0] is the sub-command's name. Returns the process' exit status: 0 after a drain, 1 when it could not start, 2 for options. */
int gateway_main(int argc, char **argv);

#endif
