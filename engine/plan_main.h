/* plan_main.h - `deja plan`. */
#ifndef DEJA_ENGINE_PLAN_MAIN_H
#define DEJA_ENGINE_PLAN_MAIN_H

int plan_main(int argc, char **argv);

#endif
