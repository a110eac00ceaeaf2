/* zmtp.h - the wire of ZeroMQ (ZMTP 3.0, NULL mechanism) for a client that subscribes or asks: what to send, and messages out of what
 * comes. No sockets (zmtp_link.c has one), no reconnecting. Bounded parts and sizes. Pure but for memory.
 * Source: RFC 23/ZMTP 3.0, RFC 29/PUBSUB, RFC 28/REQREP (rfc.zeromq.org). */
#ifndef DEJA_BASE_ZMTP_H
#define DEJA_BASE_ZMTP_H
#include "base/buf.h"

struct zmtp;
enum zmtp_role { ZMTP_SUB, ZMTP_DEALER };
enum { ZMTP_PARTS_MAX = 8 };

struct zmtp *zmtp_new(enum zmtp_role role, size_t message_bytes_max);
void zmtp_free(struct zmtp *z);
/* Appends what is sent first. */
void zmtp_greet(struct buf *out);
/* Takes bytes as they come; appends to out what must be answered; calls on_message for each whole message with its parts (borrowed).
 * ERR_CORRUPT, ERR_UNSUPPORTED (another version or mechanism), ERR_TOO_LARGE: the connection is of no use any more. */
MUST enum err zmtp_feed(struct zmtp *z, struct str bytes, struct buf *out,
                        void (*on_message)(void *arg, const struct str *parts, size_t n),
                        void *arg);
/* The peer has said it is ready: messages may be sent. A SUB has subscribed to everything then. */
bool zmtp_is_open(const struct zmtp *z);
/* Appends a message of n parts. */
void zmtp_write(struct buf *out, const struct str *parts, size_t n);

#endif
