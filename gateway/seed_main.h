/* seed_main.h - `deja seed FILE`: loads answers written by people into the Redis of the gateways. */
#ifndef DEJA_GATEWAY_SEED_MAIN_H
#define DEJA_GATEWAY_SEED_MAIN_H

int seed_main(int argc, char **argv);

#endif
