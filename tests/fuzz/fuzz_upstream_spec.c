/* fuzz_upstream_spec.c - any bytes as the text of upstreams and as a Retry-After: read or refused, values in their ranges. */
#include "gateway/retry.h"
#include "gateway/upstream_spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct str text = {(const char *)bytes, n}, name;
    struct buf line;
    struct upstream_spec s;
    struct errmsg e = {0};
    uint64_t ms;
    int lines = 0;
    buf_init(&line, SPEC_LINE_BYTES_MAX);
    if (retry_after_parse(text, n & 1, 784111777, &ms)) ASSERT(ms <= RETRY_AFTER_MAX_MS);
    while (upstream_spec_next(&text, &line)) {
        ASSERT(++lines <= (int)n);
        if (upstream_spec_parse(buf_view(&line), &s, &e) != OK) continue;
        ASSERT(s.weight > 0 && s.weight <= SPEC_WEIGHT_MAX && s.max_concurrency >= 0);
        (void)upstream_spec_serves(&s, STR("m"), &name);
    }
    buf_fini(&line);
    return 0;
}
