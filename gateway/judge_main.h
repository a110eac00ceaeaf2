/* judge_main.h - `deja judge`: asks a judge about labelled pairs and says how far its word can be trusted. */
#ifndef DEJA_GATEWAY_JUDGE_MAIN_H
#define DEJA_GATEWAY_JUDGE_MAIN_H

/* argv[0] is "judge". The exit status. */
int judge_main(int argc, char **argv);

#endif
