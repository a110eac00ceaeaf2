/* json_read.h - builds jansson's values several times as fast as jansson's own parser, which takes a text byte by byte through
 * callbacks. Use json_parse (json.h): it comes here first. */
#ifndef DEJA_BASE_JSON_READ_H
#define DEJA_BASE_JSON_READ_H
#include <jansson.h>

#include "base/str.h"

/* A new reference to just what json_parse gives; NULL: nothing is said of the text, ask jansson. */
json_t *json_read(struct str text, int depth_max);

#endif
