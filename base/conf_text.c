/* conf_text.c - --help and docs/config.md from the rows of a table. */
#include <stdio.h>
#include <string.h>

#include "base/conf_table.h"

enum { HELP_COLUMN = 34, HELP_WIDTH = 100 };

static void write_dashed(struct buf *out, const char *name)
{
    for (; *name; name++)
        buf_char(out, *name == '_' ? '-' : *name);
}

static const char *value_word(const struct conf_row *r)
{
    static const char *const words[] = {"", " N", " X", " TEXT"};
    return words[r->type];
}

/* ", -m, --max-model-len" */
static void write_aliases(struct buf *out, const struct conf_row *r)
{
    struct str words = str_of(r->alias), word;
    while (str_next(&words, ' ', &word)) {
        if (!word.n) continue;
        buf_z(out, word.n == 1 ? ", -" : ", --");
        buf_str(out, word);
    }
}

static void write_range(struct buf *out, const struct conf_row *r)
{
    if ((r->type == CONF_INT || r->type == CONF_FLOAT) && (r->min != 0 || r->max != 0))
        buf_printf(out, "%.15g..%.15g", r->min, r->max);
}

/* "(default 60 s; 1..3600)" */
static void write_facts(struct buf *out, const struct conf_row *r)
{
    struct buf range;
    buf_init(&range, 100);
    write_range(&range, r);
    buf_z(out, "(default ");
    if (r->flags & CONF_SECRET && *r->preset)
        buf_z(out, "hidden");
    else
        buf_z(out, *r->preset ? r->preset : "none");
    if (*r->unit) buf_printf(out, " %s", r->unit);
    if (range.n) buf_printf(out, "; %s", range.p);
    if (r->flags & CONF_LIST) buf_z(out, "; may be given again");
    buf_char(out, ')');
    buf_fini(&range);
}

/* Words of text from column HELP_COLUMN on, never past HELP_WIDTH. */
static void write_wrapped(struct buf *out, size_t column, struct str text)
{
    struct str word;
    if (column + 2 > HELP_COLUMN) {
        buf_char(out, '\n');
        column = 0;
    }
    buf_printf(out, "%*s", (int)(HELP_COLUMN - column), "");
    column = HELP_COLUMN;
    while (str_next(&text, ' ', &word)) {
        if (column > HELP_COLUMN && column + 1 + word.n > HELP_WIDTH) {
            buf_printf(out, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
        }
        if (column > HELP_COLUMN) buf_char(out, ' '), column++;
        buf_str(out, word);
        column += word.n;
    }
    buf_char(out, '\n');
}

void conf_help(const struct conf *c, struct buf *out)
{
    if (c->help_as_markdown) {
        conf_markdown(c, out);
        return;
    }
    for (size_t i = 0; i < c->n; i++) {
        const struct conf_row *r = c->values[i].row;
        struct buf text;
        buf_init(&text, 1 << 16);
        size_t start = out->n;
        buf_z(out, "  --");
        if (r->type == CONF_BOOL && !strcmp(r->preset, "true")) buf_z(out, "no-");
        write_dashed(out, r->name);
        write_aliases(out, r);
        buf_z(out, value_word(r));
        buf_printf(&text, "%s ", r->help);
        write_facts(&text, r);
        write_wrapped(out, out->n - start, buf_view(&text));
        buf_fini(&text);
    }
    write_wrapped(out, (size_t)0,
                  STR("--config FILE reads a file of `name value` lines; every option is also read "
                      "from the environment as DEJA_NAME"));
}

/* A cell: no bar may end it. */
static void write_cell(struct buf *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '|')
            buf_z(out, "\\|");
        else
            buf_char(out, *text == '\n' ? ' ' : *text);
    }
}

void conf_markdown(const struct conf *c, struct buf *out)
{
    buf_z(out, "| option | default | range | unit | environment | what |\n| --- | --- | "
               "--- | --- | --- | --- |\n");
    for (size_t i = 0; i < c->n; i++) {
        const struct conf_row *r = c->values[i].row;
        char env[CONF_ENV_BYTES];
        conf_env_name(r, env);
        buf_z(out, "| `--");
        write_dashed(out, r->name);
        write_aliases(out, r);
        buf_z(out, "` | ");
        if (*r->preset && !(r->flags & CONF_SECRET)) {
            buf_char(out, '`');
            write_cell(out, r->preset);
            buf_char(out, '`');
        }
        buf_z(out, " | ");
        write_range(out, r);
        buf_printf(out, " | %s | `%s` | ", r->unit, env);
        write_cell(out, r->help);
        if (r->flags & CONF_LIST) buf_z(out, " (may be given again)");
        buf_z(out, " |\n");
    }
}
