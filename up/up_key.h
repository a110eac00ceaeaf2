/* up_key.h - the API key of the first question: where the gateway's configuration names a table of keys, the first one in it.
 * Only looks: what is wrong with either file the gateway says. Blocking reads. Threading: any. */
#ifndef DEJA_UP_UP_KEY_H
#define DEJA_UP_UP_KEY_H
#include "base/str.h"

enum { UP_KEY_BYTES = 513, UP_TABLE_BYTES = 4097 }; /* with the NUL */

/* table becomes the path of the table (of `api_keys` in the file config, "" = no file, or DEJA_API_KEYS, which counts more), key the first
 * word of its first line that is no comment. False: no table, or none that can be read; both are "" then. */
bool up_key_find(const char *config, char table[UP_TABLE_BYTES], char key[UP_KEY_BYTES]);

#endif
