/* door_responses.h - private to door_responses*.c: the two halves of the Responses API's door, reading and writing. */
#ifndef DEJA_GATEWAY_DOOR_RESPONSES_H
#define DEJA_GATEWAY_DOOR_RESPONSES_H
#include "gateway/door_stream.h"

enum err responses_read(struct str body, struct door_request *out, struct openai_error *e);
void responses_rename(struct openai_error *e);

#endif
