/* admin_args.h - from an admin request to the Redis Function that does it: each endpoint is a row that says which members its JSON (or
 * query) may have and where they stand among the Function's arguments. Values are checked here for type, by Redis for meaning. Pure. */
#ifndef DEJA_GATEWAY_ADMIN_ARGS_H
#define DEJA_GATEWAY_ADMIN_ARGS_H
#include "base/openai.h"

/* What the Function's reply is, and how it becomes JSON. */
enum admin_form {
    ADMIN_JSON,  /* a text that is JSON already */
    ADMIN_TEXT,  /* one line -> {"message":"..."} */
    ADMIN_LINES, /* several -> {"lines":[...]} */
    ADMIN_PAIRS  /* name, value, ... -> an object */
};
struct admin_call {
    const char *function; /* static */
    enum admin_form form;
    struct buf args; /* each terminated by a NUL byte */
    size_t n_args;
};

/* path without the query. body NULL = none was sent: members are taken from the query. who: for endpoints that note who did it, where
 * the request does not say. Failures leave nothing to free: ERR_NOT_FOUND: no such path; ERR_UNSUPPORTED: not with this method, *allow
 * (static) lists those that work; ERR_INVALID: *e says which member and what it may be. */
MUST enum err admin_call_make(struct admin_call *out, struct str method, struct str path,
                              struct str query, const json_t *body, const char *who,
                              const char **allow, struct openai_error *e);
void admin_call_fini(struct admin_call *c);
/* An object of the query's members, percent signs and plus decoded; NULL when it is malformed (bad %xx, a NUL, over 64 members). */
json_t *admin_query(struct str query);

#endif
