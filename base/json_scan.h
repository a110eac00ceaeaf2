/* json_scan.h - walks over JSON text without building anything: for who wants a few members of a text, or builds values of its own
 * (json_read.c). Every call answers true only for what json_parse takes as well; false says no more than that the text is not plainly
 * good: it may be invalid, or use what is rare (numbers of more than 18 digits, escapes or NUL in names, many members), and json_parse
 * decides. Pure, no allocation. */
#ifndef DEJA_BASE_JSON_SCAN_H
#define DEJA_BASE_JSON_SCAN_H
#include "base/str.h"

enum { JSON_SCAN_KEYS_MAX = 96 }; /* of all objects that are open at a time */

struct json_scan {
    const char *p, *end;
    int depth_left;
    bool opened;           /* nothing was passed since a bracket was: no comma is due */
    bool keys_unlooked;    /* set after begin: who builds notices a key that is given twice */
    int n_keys, keys_from; /* keys of the object at hand: keys_from and on */
    struct str keys[JSON_SCAN_KEYS_MAX];
};
struct json_scan_text {
    struct str raw; /* between the quotes, as written */
    bool escaped;
};
struct json_scan_number {
    bool real;
    int64_t integer; /* unless real */
    struct str text;
};

void json_scan_begin(struct json_scan *s, struct str text, int depth_max);
bool json_scan_at_end(struct json_scan *s); /* nothing but blanks is left */
char json_scan_peek(struct json_scan *s);   /* the first byte of what comes next; 0 at the end */
bool json_scan_string(struct json_scan *s, struct json_scan_text *out);
bool json_scan_number(struct json_scan *s, struct json_scan_number *out);
bool json_scan_null(struct json_scan *s); /* true, having passed it, when that comes next */
bool json_scan_true(struct json_scan *s);
bool json_scan_false(struct json_scan *s);
bool json_scan_skip(struct json_scan *s); /* any value */
/* At '{' or '[' with open = that. Objects and arrays are then walked with the two below, which say in *more whether a member or an item
 * comes next; the closing bracket has been passed when none does. An object's earlier keys are put aside in *outer. */
bool json_scan_open(struct json_scan *s, char open, int *outer);
bool json_scan_key(struct json_scan *s, int outer, struct str *key, bool *more);
bool json_scan_item(struct json_scan *s, int outer, bool *more);
/* How many bytes at the start of text may stand in a string as they are: ASCII without quote, backslash and control characters. */
size_t json_scan_plain(struct str text);
/* The code unit of \\uXXXX at p, or -1. */
long json_scan_code_unit(const char *p, const char *end);
/* Bytes written: what raw, which json_scan_string has passed, stands for. out has room for raw.n. */
size_t json_scan_unescape(struct str raw, char *out);

#endif
