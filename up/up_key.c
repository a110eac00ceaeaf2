/* up_key.c - see up_key.h. */
#include "up/up_key.h"

#include <stdio.h>
#include <string.h>

#include "base/conf.h"
#include "base/mem.h"

enum { LOOK_BYTES_MAX = 1 << 20 }; /* a first key behind more comments than this is not found */

static const struct conf_row rows[] = {
    {"api_keys", CONF_STR, "", 0, UP_TABLE_BYTES - 1, "", 0, "the gateway's table of keys", NULL}};

/* The file's beginning; empty when it cannot be read. */
static void read_start(struct buf *out, const char *path)
{
    FILE *f = *path ? fopen(path, "rbe") : NULL;
    if (!f) return;
    char part[4096];
    for (size_t n; out->n + sizeof part <= LOOK_BYTES_MAX && (n = fread(part, 1, sizeof part, f));)
        buf_str(out, (struct str){part, n});
    memset(part, 0, sizeof part);
    fclose(f);
}

static size_t word_bytes(struct str line)
{
    size_t n = 0;
    while (n < line.n && !strchr(" \t=", line.p[n]))
        n++;
    return n;
}

/* The one line of the gateway's file that is ours to know; its other options are not. */
static void read_config(struct conf *c, const char *path)
{
    struct buf text;
    buf_init(&text, LOOK_BYTES_MAX);
    read_start(&text, path);
    struct errmsg e;
    struct str rest = buf_view(&text), line;
    while (str_next(&rest, '\n', &line)) {
        line = str_trim(line);
        struct str name = str_sub(line, 0, word_bytes(line));
        bool ours = str_eqz(name, "api_keys") || str_eqz(name, "api-keys");
        if (ours && conf_read_text(c, path, line, &e)) break;
    }
    buf_fini(&text);
}

static void first_key(const char *table, char key[UP_KEY_BYTES])
{
    struct buf text;
    buf_init(&text, LOOK_BYTES_MAX);
    read_start(&text, table);
    struct str rest = buf_view(&text), line;
    while (!key[0] && str_next(&rest, '\n', &line)) {
        line = str_trim(line);
        size_t n = 0;
        while (n < line.n && line.p[n] != ' ' && line.p[n] != '\t')
            n++;
        if (!n || line.p[0] == '#' || n >= UP_KEY_BYTES) continue;
        memcpy(key, line.p, n);
        key[n] = 0;
    }
    if (text.p) memset(text.p, 0, text.n);
    buf_fini(&text);
}

bool up_key_find(const char *config, char table[UP_TABLE_BYTES], char key[UP_KEY_BYTES])
{
    struct errmsg e;
    struct conf *c = conf_new(rows, sizeof rows / sizeof *rows);
    table[0] = key[0] = 0;
    read_config(c, config);
    if (!conf_read_env(c, &e)) snprintf(table, UP_TABLE_BYTES, "%s", conf_str(c, "api_keys"));
    conf_free(c);
    first_key(table, key);
    if (!key[0]) table[0] = 0;
    return key[0];
}
