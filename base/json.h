/* json.h - jansson behind a few strict helpers; values themselves are jansson's json_t (include <jansson.h> where needed:
 * its API is our JSON API). Parsing refuses what jansson alone lets pass: over-deep nesting, numbers that overflow, trailing bytes,
 * invalid UTF-8, duplicate keys, NUL in strings is allowed (strings carry their length).
 * Threading: values are not shared between threads unless nobody changes them. */
#ifndef DEJA_BASE_JSON_H
#define DEJA_BASE_JSON_H
#include <jansson.h>

#include "base/buf.h"

/* *out is a new reference. ERR_INVALID with line/column and the reason; ERR_TOO_LARGE deeper than depth_max (0 = 64). */
MUST enum err json_parse(struct str text, int depth_max, json_t **out, struct errmsg *e);
/* The same; *at is the byte the failure was seen at (text.n when the text ended too early). at may be NULL. */
MUST enum err json_parse_at(struct str text, int depth_max, json_t **out, size_t *at,
                            struct errmsg *e);
/* As clients read it: numbers beyond 64 bits are reals, of a name given twice the last value counts, nesting goes to 2048. A new reference;
 * NULL: no JSON. */
MUST json_t *json_parse_loosely(struct str text);
/* Copies text with every invalid UTF-8 sequence and every escaped lone surrogate replaced by U+FFFD, so that a careless peer's
 * text can be parsed and passed on. True when something was replaced. */
bool json_repair(struct buf *out, struct str text);
/* The key of the outermost object whose value holds byte at, as written (escapes kept); empty when there is none. For messages. */
struct str json_key_at(struct str text, size_t at);
/* "an object", "a string", "a number", "a boolean", "null"; "nothing" for NULL. For messages. */
const char *json_kind(const json_t *v);
/* Compact output, UTF-8 kept, keys in insertion order. */
void json_write(struct buf *out, const json_t *v);
/* Canonical form for keys: sorted keys, no spaces, numbers normalised (1, 1.0 and 1e0 are one; -0 is 0). RFC 8785 in
 * spirit; integers beyond 2^53 keep all their digits. */
void json_write_canonical(struct buf *out, const json_t *v);
void json_write_string(struct buf *out,
                       struct str s); /* quoted and escaped; invalid UTF-8 becomes U+FFFD */
struct str json_str(const json_t *v); /* a string value's bytes, else empty with p NULL */
/* The member, with null taken for absent: NULL. */
const json_t *json_given(const json_t *object, const char *key);
/* Member of an object as text, borrowed; empty with p NULL when absent, null or of another type. */
struct str json_member_str(const json_t *object, const char *key);

#endif
