/* probe.h - `deja probe URL [SECONDS]`: one GET, for health checks of containers and scripts. Blocking. */
#ifndef DEJA_UP_PROBE_H
#define DEJA_UP_PROBE_H

/* Exit status 0 when the URL answers 2xx within SECONDS (5); else 1, with the status or reason on stderr. */
int probe_main(int argc, char **argv);

#endif
