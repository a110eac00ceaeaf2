/* door_stream.h - a recorded chat stream told anew in a door's events: a pure state machine, chat bytes in (cut anywhere), event bytes
 * out. Each reader of a tape has its own. Bounded: the turn by bytes_max; what waits to be sent by what one feed makes. */
#ifndef DEJA_GATEWAY_DOOR_STREAM_H
#define DEJA_GATEWAY_DOOR_STREAM_H
#include "base/sse.h"
#include "gateway/door.h"

struct door_stream {
    const struct door *door;
    struct door_facts facts;
    struct turn turn;
    struct sse_reader *sse;
    struct buf out; /* made and not yet sent, from out.p[sent] */
    size_t sent, bytes_max;
    int64_t sequence; /* of events, where the door numbers them */
    bool started, over;
};

struct door_stream *door_stream_new(const struct door *d, const struct door_facts *f,
                                    size_t bytes_max);
void door_stream_free(struct door_stream *s);
void door_stream_feed(struct door_stream *s, struct str bytes);
/* The tape has ended: without its proper end the client is told so. Idempotent. */
void door_stream_close(struct door_stream *s);
/* What is to be sent next, at most max bytes; then say how much was. */
struct str door_stream_next(const struct door_stream *s, size_t max);
void door_stream_sent(struct door_stream *s, size_t n);
/* For doors: one event; takes v. */
void door_stream_event(struct door_stream *s, const char *name, json_t *v);

#endif
