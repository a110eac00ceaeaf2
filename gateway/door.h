/* door.h - the seam to APIs other than chat completions. A door turns a client's body into the chat body that is keyed, cached and sent
 * upstream, and a chat answer, whole or streamed, into what its clients read. The pipeline, tickets and the store know chat alone: a
 * request through one door is answered by what another has asked. Pure, allocation aside.
 * Sources: the public references of the OpenAI Responses API and of the Anthropic Messages API. */
#ifndef DEJA_GATEWAY_DOOR_H
#define DEJA_GATEWAY_DOOR_H
#include "gateway/turn.h"

/* What a client asked, read. */
struct door_request {
    json_t *asked;   /* its body, owned */
    struct buf chat; /* the chat body, JSON text */
    json_t *
        extra; /* what has no place in the chat body and still counts in the key; NULL = nothing; owned */
    struct buf
        history; /* given: the conversation so far, a JSON array of the door's items; empty = none */
};
void door_request_fini(struct door_request *r);
struct door;
/* Reads a body through a door: what it asked, and the chat request it means. *asked is zero but for its history, which it takes over. On
 * failure neither needs fini. */
MUST enum err door_parse(const struct door *d, struct str body, struct door_request *asked,
                         struct openai_request *req, struct openai_error *e);

/* What a reply needs beside the answer. */
struct door_facts {
    char id[33];         /* random, of this reply; its ids are made from it */
    const json_t *asked; /* parts of it are echoed; borrowed */
    int64_t now_s;
    bool kept; /* the answer stays: it is told so */
    /* hears of it, once, when it is whole; NULL = nobody */
    void (*made)(void *arg, const char *id, const json_t *response);
    void *made_arg;
};

struct door_stream; /* door_stream.h */

struct door {
    const char *name;
    const char *id_header; /* carries the request id too, or NULL */
    /* ERR_INVALID: *e says where and what would be right, in the door's own names. */
    enum err (*read)(struct str body, struct door_request *out, struct openai_error *e);
    /* Gives an error about the chat body the names of the client's fields. */
    void (*rename)(struct openai_error *e);
    void (*write_error)(struct buf *out, const struct openai_error *e, struct str request_id);
    /* ERR_UNSUPPORTED: the answer has no such form, *why says what of it. */
    enum err (*write_answer)(struct buf *out, const struct turn *t, const struct door_facts *f,
                             struct errmsg *why);
    /* The stream's events. start: with the first chunk; then those of the turn; finish: the answer is whole; fail: it is not. */
    void (*start)(struct door_stream *s);
    void (*begin)(struct door_stream *s, size_t item_i);
    void (*piece)(struct door_stream *s, size_t item_i, struct str text);
    void (*end)(struct door_stream *s, size_t item_i);
    void (*finish)(struct door_stream *s);
    void (*fail)(struct door_stream *s, const struct openai_error *e);
};

extern const struct door door_responses, door_messages;
extern const struct door door_count_tokens; /* reads what messages reads, and errs like it */

/* The members of a body by name, and what becomes of each. Others are refused. */
enum door_rule {
    DOOR_READ,   /* the door sees to it */
    DOOR_PASS,   /* goes into the chat body, under the name `as` when given */
    DOOR_KEY,    /* counts in the key and goes nowhere */
    DOOR_DROP,   /* cannot change the answer */
    DOOR_REFUSE, /* `as` says why */
};
struct door_field {
    const char *name;
    enum door_rule rule;
    const char *as;
};
/* A body being read. */
struct door_read {
    const json_t *body, *history;    /* the second: an array, or NULL */
    json_t *chat, *messages, *extra; /* extra is made on first use */
    struct openai_error *e;
    json_t *pending; /* the door's own, between items; let go of at the end */
};
/* Parses body and sorts its members by the table; then steps are called in turn while they return true. */
enum err door_read_body(struct str body, const struct door_field *fields,
                        bool (*const *steps)(struct door_read *r), struct door_request *out,
                        struct openai_error *e);
void door_rename(const struct door_field *fields, struct openai_error *e);

struct door_path {
    char text[64];
};
struct door_path door_at(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* Always false. */
bool door_refuse(const struct door_read *r, const char *param, const char *code, const char *fmt,
                 ...) PRINTF_LIKE(4, 5);
bool door_refuse_type(const struct door_read *r, const char *param, const char *expected,
                      const json_t *got);
/* True when it is absent or a string (required: a string). */
bool door_string(const struct door_read *r, const char *path, const json_t *object,
                 const char *name, bool required);
/* Steps that all doors share. stream: asked of the upstream with its usage. tools: each is read by read_tool, which appends it to out. */
bool door_read_stream(struct door_read *r);
bool door_read_tools(struct door_read *r, bool (*read_tool)(struct door_read *r, size_t i,
                                                            const json_t *tool, json_t *out));
void door_count(struct door_read *r, const char *name, const json_t *v); /* in the key */
json_t *door_text(struct str s);                                         /* a new JSON string */
json_t *door_text_part(struct str text);                                 /* of a chat message */
/* Content of a chat message: one text is a string, anything else stays a list. Takes parts. */
json_t *door_content(json_t *parts);
/* A new reference to a value that is only read from here on (jansson's own takes no const). */
json_t *door_ref(const json_t *v);

#endif
