/* descriptors.h - how many files and sockets this process may have open. Threading: at start, before threads. */
#ifndef DEJA_BASE_DESCRIPTORS_H
#define DEJA_BASE_DESCRIPTORS_H

/* Raises the process' own limit to `wanted` as far as the system's hard limit allows; never lowers it. The limit now in force. */
int descriptors_raise(int wanted);

#endif
