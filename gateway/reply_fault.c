/* reply_fault.c - see reply_fault.h. */
#include "gateway/reply_fault.h"

static const struct {
    int status;
    const char *type, *code, *text;
} faults[] = {
#define X(name, status, type, code, text) {status, type, code, text},
    FAULT_LIST(X)
#undef X
};

int fault_status(enum fault f)
{
    return faults[f].status;
}

bool fault_degrades(enum fault f)
{
    return f == FAULT_BREAKER || f == FAULT_PAUSED || f == FAULT_FULL || f == FAULT_QUEUE_LATE ||
           f == FAULT_CONNECT || f == FAULT_TIMEOUT || f == FAULT_CLOSED || f == FAULT_BAD_ANSWER ||
           f == FAULT_EMPTY;
}

void fault_error(struct openai_error *e, enum fault f, const char *detail)
{
    ASSERT(f != FAULT_NONE);
    bool more = detail && detail[0];
    openai_error_set(e, faults[f].status, faults[f].type, "", faults[f].code, "%s%s%s",
                     faults[f].text, more ? ": " : "", more ? detail : "");
}

enum fault fault_of_call(enum err code, bool head_seen)
{
    switch (code) {
    case OK:
        return FAULT_NONE;
    case ERR_TIMEOUT:
        return FAULT_TIMEOUT;
    case ERR_UNAVAILABLE:
        return head_seen ? FAULT_CLOSED : FAULT_CONNECT;
    case ERR_TOO_LARGE:
        return FAULT_TOO_LONG;
    case ERR_CORRUPT:
        return FAULT_BAD_ANSWER;
    case ERR_FULL:
        return FAULT_MEMORY;
    default:
        return FAULT_CLOSED;
    }
}
