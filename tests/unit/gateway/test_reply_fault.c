/* Goal: every fault has an HTTP status, a type and a text a client can use, and call ends map to the right ones. */
#include "gateway/reply_fault.h"
#include "tests/check.h"

TEST(every_fault_is_an_error_status_with_type_and_text)
{
    for (int f = FAULT_NONE + 1; f <= FAULT_STATUS; f++) {
        struct openai_error e = {0};
        fault_error(&e, (enum fault)f, "detail");
        CHECK_AT(e.status >= 400 && e.status <= 599, "fault %d has status %d", f, e.status);
        CHECK(e.type[0] && strstr(e.message, ": detail"));
        CHECK_INT(e.status, fault_status((enum fault)f));
    }
}

TEST(ends_of_upstream_calls_map_to_gateway_statuses)
{
    CHECK_INT(fault_status(fault_of_call(ERR_UNAVAILABLE, false)), 503);
    CHECK_INT(fault_status(fault_of_call(ERR_TIMEOUT, false)), 504);
    CHECK_INT(fault_status(fault_of_call(ERR_TIMEOUT, true)), 504);
    CHECK_INT(fault_status(fault_of_call(ERR_CLOSED, true)), 502);
    CHECK_INT(fault_status(fault_of_call(ERR_CORRUPT, false)), 502);
    CHECK_INT(fault_status(fault_of_call(ERR_TOO_LARGE, true)), 502);
    CHECK_INT(fault_of_call(OK, true), FAULT_NONE);
    CHECK_INT(fault_status(FAULT_NOT_CACHED), 504);
    CHECK_INT(fault_status(FAULT_BREAKER), 503);
}

TEST_MAIN()
