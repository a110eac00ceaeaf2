/* case_file.h - for tests: reads tests/data/<name>.jsonl, one JSON object a line; base64; replacement of $MODEL and the like. */
#ifndef DEJA_TESTS_CASE_FILE_H
#define DEJA_TESTS_CASE_FILE_H
#include <stdio.h>

#include "base/json.h"
#include "base/mem.h"

enum { CASES_MAX = 512 };
struct case_file {
    json_t *cases[CASES_MAX];
    int n;
};

static inline void case_file_load(struct case_file *f, const char *path)
{
    *f = (struct case_file){.n = 0};
    FILE *in = fopen(path, "rb");
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    while (in && f->n < CASES_MAX && (n = getline(&line, &cap, in)) > 1)
        if (json_parse((struct str){line, (size_t)n}, 0, &f->cases[f->n], NULL) == OK) f->n++;
    mem_free(line);
    if (in) fclose(in);
}

static inline void case_file_free(struct case_file *f)
{
    for (int i = 0; i < f->n; i++)
        json_decref(f->cases[i]);
}

static inline void case_base64(struct buf *out, struct str in)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned bits = 0, n_bits = 0;
    for (size_t i = 0; i < in.n; i++) {
        ptrdiff_t v = str_find_char((struct str){digits, 64}, in.p[i]);
        if (v < 0) break;
        bits = bits << 6 | (unsigned)v;
        n_bits += 6;
        if (n_bits < 8) continue;
        n_bits -= 8;
        buf_char(out, (char)(bits >> n_bits & 0xFF));
    }
}

static inline void case_replace(struct buf *out, struct str in, const char *what, const char *with)
{
    for (;;) {
        ptrdiff_t at = str_find(in, str_of(what));
        buf_str(out, at < 0 ? in : str_sub(in, 0, (size_t)at));
        if (at < 0) return;
        buf_z(out, with);
        in = str_sub(in, (size_t)at + strlen(what), in.n);
    }
}

#endif
