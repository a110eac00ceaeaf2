/* conf.h - options from one table: defaults < file < environment < command line, each value checked for type and range, with the
 * place of a mistake in the message. --help and docs/config.md come from the same rows.
 * A room declares: #define OPTIONS(OPT) OPT(name, TYPE, default, min, max, unit, flags, help) ... and `struct <room>_options` from it.
 * Names use underscores; on the command line and in files '-' and '_' are the same. Environment: DEJA_<NAME>.
 * In a file '#' starts a comment at the start of a line or after a blank; "double quotes" keep blanks and '#', \" and \\ inside them.
 * An INT with unit "bytes" may end in K, M, G, T (times 1024). Booleans: true yes on 1, false no off 0. An empty environment variable
 * counts as not set. A list given at a higher place (file < environment < command line < conf_set) replaces what lower places gave; in the
 * environment its values are separated by blanks.
 * Threading: a table belongs to one thread; a room copies what other threads read. */
#ifndef DEJA_BASE_CONF_H
#define DEJA_BASE_CONF_H
#include "base/buf.h"

enum conf_type { CONF_BOOL, CONF_INT, CONF_FLOAT, CONF_STR };
enum conf_flags {
    CONF_SECRET = 1, /* never printed */
    CONF_LIST = 2    /* STR only; may be given again: values joined by '\n' */
};

struct conf_row {
    const char *name; /* "cache_ttl_s" */
    enum conf_type type;
    const char *preset; /* default as text */
    double min, max;    /* for INT and FLOAT, both 0 = unbounded; for STR max = bytes, 0 = 4096 */
    const char *unit;   /* "ms", "bytes", "" */
    unsigned flags;
    const char *help;
    const char *
        alias; /* other spellings separated by spaces: "m c max-model-len"; NULL = none. One letter = -m */
};

struct conf;
/* rows is borrowed for the table's life. */
struct conf *conf_new(const struct conf_row *rows, size_t n_rows);
void conf_free(struct conf *c);
/* Sets by name or alias from text; e says "option cache_ttl_s: 0 is below 1 s" etc. Unknown (ERR_NOT_FOUND): names the nearest one.
 * A list is replaced whole (values joined by \n). where is put before the message; NULL = nothing. A refused value changes nothing. */
MUST enum err conf_set(struct conf *c, struct str name, struct str value, const char *where,
                       struct errmsg *e);
/* `name value` or `name = value` lines, '#' comments; errors carry file:line. */
MUST enum err conf_read_file(struct conf *c, const char *path, struct errmsg *e);
/* The same from memory; path is for messages. */
MUST enum err conf_read_text(struct conf *c, const char *path, struct str text, struct errmsg *e);
MUST enum err conf_read_env(struct conf *c, struct errmsg *e);
/* --name value, --name=value, -m value, --flag / --no-flag for booleans, --config FILE. Stops with ERR_CANCELLED when --help was
 * asked for (printed by the caller through conf_help; --help-markdown makes that the
 * table of docs/config.md). Positional arguments are refused. argv[0] is passed over. */
MUST enum err conf_read_args(struct conf *c, int argc, char **argv, struct errmsg *e);
bool conf_bool(const struct conf *c, const char *name);
int64_t conf_int(const struct conf *c, const char *name);
double conf_float(const struct conf *c, const char *name);
const char *conf_str(const struct conf *c,
                     const char *name); /* borrowed until the next set; "" when empty */
bool conf_is_set(const struct conf *c, const char *name); /* anything but the default */
void conf_help(const struct conf *c, struct buf *out);
void conf_markdown(const struct conf *c, struct buf *out);

#endif
