/* conf_table.h - private to conf*.c: the table of values. */
#ifndef DEJA_BASE_CONF_TABLE_H
#define DEJA_BASE_CONF_TABLE_H
#include "base/conf.h"

/* Lowest first: a value from a lower place never replaces one from a higher. */
enum conf_place { PLACE_PRESET, PLACE_FILE, PLACE_ENV, PLACE_ARGS, PLACE_SET };

struct conf_value {
    const struct conf_row *row;
    enum conf_place place;
    char *text; /* as given; a list joined by \n; owned */
    bool b;
    int64_t i;
    double d;
};

struct conf {
    struct conf_value *values;
    size_t n;
    bool help_as_markdown; /* --help-markdown */
};

enum { CONF_ENV_BYTES = 96 };
/* cache_ttl_s -> DEJA_CACHE_TTL_S */
void conf_env_name(const struct conf_row *r, char out[CONF_ENV_BYTES]);

#endif
