/* turn.h - what one answer says, as a list of items in the order they came: thinking, text, refusals, tool calls. The doors that do not
 * speak chat completions tell their clients answers from it: whole ones read from the neutral form, streamed ones put together chunk
 * by chunk while a sink hears of every change. Pure, allocation aside; text bounded by bytes_max, items by TURN_ITEMS_MAX. */
#ifndef DEJA_GATEWAY_TURN_H
#define DEJA_GATEWAY_TURN_H
#include "base/openai.h"

enum { TURN_ITEMS_MAX = 256 };
enum turn_kind { TURN_REASONING, TURN_TEXT, TURN_REFUSAL, TURN_CALL };

struct turn_item {
    enum turn_kind kind;
    struct buf text;     /* of a call: its arguments, JSON text as the model wrote it */
    struct buf id, name; /* of a call */
    int64_t call_i;      /* of a call: its number in the stream */
    bool begun, ended;   /* told to the sink */
};

struct turn {
    struct turn_item *items; /* n_items */
    size_t n_items, bytes, bytes_max;
    char id[80], model[128], finish_reason[24];
    char stop[128]; /* the stop string that ended it, where the server tells; "" else */
    int64_t created, reasoning_tokens;
    struct openai_usage usage;
    bool started; /* a chunk has come */
};

/* Hears of a streamed turn. begin comes once an item can be named (a call: when its name is known), then pieces, then end; only one item
 * is open at a time. */
struct turn_sink {
    void (*begin)(void *arg, const struct turn *t, size_t item_i);
    void (*piece)(void *arg, const struct turn *t, size_t item_i, struct str text);
    void (*end)(void *arg, const struct turn *t, size_t item_i);
    void *arg;
};

void turn_init(struct turn *t, size_t bytes_max);
void turn_fini(struct turn *t);
/* The first choice of a chat answer. ERR_TOO_LARGE, ERR_INVALID (no choice). */
MUST enum err turn_read(struct turn *t, const struct openai_answer *a);
/* Takes id, model and time from the first chunk; later ones change nothing. */
void turn_head(struct turn *t, const json_t *chunk);
/* One chunk of a stream. ERR_TOO_LARGE: a bound; ERR_UNSUPPORTED: a piece came for a tool call that had ended. */
MUST enum err turn_feed(struct turn *t, const json_t *chunk, const struct turn_sink *sink);
/* Nothing more will come: ends what is open. */
void turn_close(struct turn *t, const struct turn_sink *sink);

#endif
