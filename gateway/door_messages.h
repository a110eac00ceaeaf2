/* door_messages.h - private to door_messages*.c: the two halves of the Messages API's door, reading and writing. */
#ifndef DEJA_GATEWAY_DOOR_MESSAGES_H
#define DEJA_GATEWAY_DOOR_MESSAGES_H
#include "gateway/door_stream.h"

enum err messages_read(struct str body, struct door_request *out, struct openai_error *e);
/* The same without max_tokens: what /v1/messages/count_tokens takes. */
enum err messages_read_prompt(struct str body, struct door_request *out, struct openai_error *e);
void messages_rename(struct openai_error *e);

#endif
