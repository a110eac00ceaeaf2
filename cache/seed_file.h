/* seed_file.h - a file of answers written by people: JSON lines or CSV, read, checked, and searched for what contradicts itself. Every
 * mistake names its line and what would be right; all of them are found, not only the first. Pure.
 *
 * One object a line: question, answer (both needed), wordings [..], near [..] (questions that must never get this answer), tags [..] or
 * "a,b", lang "en" (becomes the tag lang:en), namespace, tenant ("*" = of all, the default), model ("" = any), ttl (s; 0 = never ends, the
 * default). As in an FAQ set, q and same stand for question and wordings; id, domain and note are read over. A CSV has a first line with
 * these names; texts of a list are parted by "|", of tags by ",". */
#ifndef DEJA_CACHE_SEED_FILE_H
#define DEJA_CACHE_SEED_FILE_H
#include "base/json.h"

enum {
    SEED_TEXTS_MAX = 64,
    SEED_TEXT_BYTES_MAX = 1024, /* of a question or wording */
    SEED_ANSWER_BYTES_MAX = 64 * 1024,
    SEED_ITEMS_MAX = 200000,
    SEED_PROBLEMS_MAX = 20 /* told; the others are counted */
};
struct seed {
    int line;
    struct str question, answer, ns, tenant, model; /* borrowed from json */
    char tags[513];
    int64_t ttl_s; /* 0 = never ends */
    struct str *wordings, *near;
    int n_wordings, n_near;
    json_t *json;
};
struct seed_defaults {
    struct str ns, tenant, model;
    int64_t ttl_s;
};
struct seed_file {
    struct seed *items;
    size_t n, n_room;
    struct buf problems; /* a line each, "12: ..." */
    size_t n_problems;
};

/* Reads all of text; a first line that begins with '{' makes it JSON lines. What is wrong is in problems, and the items are then of no use.
 * defaults are borrowed like text, as long as *out is used. */
void seed_file_read(struct seed_file *out, struct str text, const struct seed_defaults *defaults);
void seed_file_fini(struct seed_file *f);

#endif
