/* reply_fault.h - everything that can go wrong with a request on the gateway's side, and the one table that says how a client reads
 * it: HTTP status, error type and code. Pure. */
#ifndef DEJA_GATEWAY_REPLY_FAULT_H
#define DEJA_GATEWAY_REPLY_FAULT_H
#include "base/openai.h"

/* name, status, type, code, text */
#define FAULT_LIST(X)                                                                              \
    X(FAULT_NONE, 200, "", "", "")                                                                 \
    X(FAULT_BAD_REQUEST, 400, "invalid_request_error", "", "the request is not valid")             \
    X(FAULT_UNAUTHORIZED, 401, "invalid_request_error", "invalid_api_key",                         \
      "this API key is not known here")                                                            \
    X(FAULT_NOT_FOUND, 404, "invalid_request_error", "unknown_url",                                \
      "there is nothing at this address")                                                          \
    X(FAULT_METHOD, 405, "invalid_request_error", "method_not_allowed",                            \
      "this address does not take that method")                                                    \
    X(FAULT_TOO_LARGE, 413, "invalid_request_error", "request_too_large",                          \
      "the request is too large")                                                                  \
    X(FAULT_MEDIA, 415, "invalid_request_error", "unsupported_media_type",                         \
      "expected a JSON body (Content-Type: application/json)")                                     \
    X(FAULT_ENCODING, 415, "invalid_request_error", "unsupported_media_type",                      \
      "compressed request bodies are not taken")                                                   \
    X(FAULT_NOT_CACHED, 504, "cache_error", "not_cached",                                          \
      "only-if-cached was asked for and there is no stored answer")                                \
    X(FAULT_BUSY, 503, "server_error", "overloaded", "too many requests are at work here")         \
    X(FAULT_DRAINING, 503, "server_error", "shutting_down", "this gateway is shutting down")       \
    X(FAULT_MEMORY, 503, "server_error", "out_of_memory", "no memory for this request now")        \
    X(FAULT_BREAKER, 503, "upstream_error", "upstream_unavailable",                                \
      "no upstream answers at the moment")                                                         \
    X(FAULT_NO_MODEL, 404, "invalid_request_error", "model_not_found",                             \
      "no upstream here serves this model")                                                        \
    X(FAULT_PAUSED, 429, "rate_limit_error", "upstream_rate_limited",                              \
      "every upstream of this model asked to wait")                                                \
    X(FAULT_QUEUE_FULL, 429, "rate_limit_error", "queue_full",                                     \
      "too many requests of this tenant wait already")                                             \
    X(FAULT_QUEUE_LATE, 503, "server_error", "queue_late",                                         \
      "so many requests wait that this one would not get its turn in time")                        \
    X(FAULT_FULL, 503, "server_error", "upstream_full",                                            \
      "every upstream of this model is at its max_concurrency")                                    \
    X(FAULT_CONNECT, 503, "upstream_error", "upstream_unreachable",                                \
      "the upstream cannot be reached")                                                            \
    X(FAULT_TIMEOUT, 504, "upstream_error", "upstream_timeout", "the upstream took too long")      \
    X(FAULT_CLOSED, 502, "upstream_error", "upstream_closed",                                      \
      "the upstream ended its answer in the middle")                                               \
    X(FAULT_BAD_ANSWER, 502, "upstream_error", "upstream_bad_answer",                              \
      "the upstream's answer cannot be read")                                                      \
    X(FAULT_EMPTY, 502, "upstream_error", "upstream_empty", "the upstream's answer is empty")      \
    X(FAULT_TOO_LONG, 502, "upstream_error", "upstream_too_large",                                 \
      "the upstream's answer is too large")                                                        \
    X(FAULT_STATUS, 502, "upstream_error", "upstream_status", "the upstream refused the request")

enum fault {
#define X(name, status, type, code, text) name,
    FAULT_LIST(X)
#undef X
};

int fault_status(enum fault f);
/* The upstream's failing, not the request's: another model or an older answer may do better. */
bool fault_degrades(enum fault f);
/* Fills *e from the table; detail (may be NULL or "") is put after the table's text. */
void fault_error(struct openai_error *e, enum fault f, const char *detail);
/* What the end of an upstream call means. head_seen: some of the answer had arrived. */
enum fault fault_of_call(enum err code, bool head_seen);

#endif
