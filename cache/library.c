/* library.c - see library.h. */
#include "cache/library.h"

#include "cache/knobs.h"

extern const char deja_lua_library[]; /* the files of lua/, made at build time */
extern const unsigned deja_lua_library_bytes;

/* One function's description: its line and the indented ones below, taken out of the comment. */
static void write_help(struct buf *out, struct str name, struct str lines)
{
    struct str line;
    buf_printf(out, "help('" STR_FMT "', [==[\n", STR_ARG(name));
    while (str_next(&lines, '\n', &line)) {
        buf_str(out, str_sub(line, 3, line.n));
        buf_char(out, '\n');
    }
    buf_z(out, "]==])\n");
}

/* Heads say "-- deja_name KEYS ..." and go on in lines that begin with "--    ". */
static void write_helps(struct buf *out, struct str text)
{
    const struct str begins = STR("-- deja_"), goes_on = STR("--   ");
    struct str line, rest = text, from = {0};
    while (str_next(&rest, '\n', &line)) {
        bool more = from.p && str_starts(line, goes_on);
        if (from.p && !more) {
            struct str words = str_sub(from, 3, from.n), name;
            from.n = (size_t)(line.p - from.p - 1);
            str_next(&words, ' ', &name);
            write_help(out, name, from);
            from = (struct str){0};
        }
        if (str_starts(line, begins) && str_find(line, STR(" KEYS ")) >= 0) from = line;
    }
}

void library_write(struct buf *out)
{
    struct str text = {deja_lua_library, deja_lua_library_bytes};
    buf_str(out, text);
    buf_char(out, '\n');
    write_helps(out, text);
    knobs_write_lua(out);
}
