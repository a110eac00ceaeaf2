/* fuzz_json.c - any bytes: what parses is written and read back as the same value; the canonical form is a fixed point; repair leaves valid
 * text alone and always makes UTF-8; the quick reader and the scanner take nothing that jansson does not take, and read the same. */
#include "base/json.h"
#include "base/json_read.h"
#include "base/json_scan.h"

static void check_readers(struct str text)
{
    static struct json_scan s;
    json_t *quick = json_read(text, 64), *slow = NULL;
    json_scan_begin(&s, text, 64);
    bool passed = json_scan_skip(&s) && json_scan_at_end(&s);
    ASSERT(!passed || quick); /* the reader takes more: it looks keys up */
    if (quick)
        slow = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY,
                          NULL);
    ASSERT(!quick || (slow && json_equal(quick, slow)));
    json_decref(quick);
    json_decref(slow);
}

static void check_same(json_t *v)
{
    struct buf a, b;
    json_t *again;
    buf_init(&a, 1 << 22);
    buf_init(&b, 1 << 22);
    json_write(&a, v);
    ASSERT(!buf_failed(&a) && json_parse(buf_view(&a), 0, &again, NULL) == OK &&
           json_equal(v, again));
    json_decref(again);
    buf_clear(&a);
    json_write_canonical(&a, v);
    ASSERT(json_parse(buf_view(&a), 0, &again, NULL) == OK);
    json_write_canonical(&b, again);
    ASSERT(str_eq(buf_view(&a), buf_view(&b)));
    json_decref(again);
    buf_fini(&a);
    buf_fini(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct str text = {(const char *)bytes, n};
    struct errmsg e = {0};
    struct buf repaired;
    size_t at;
    json_t *v;
    check_readers(text);
    buf_init(&repaired, 1 << 22);
    bool changed = json_repair(&repaired, text);
    ASSERT(utf8_valid(buf_view(&repaired)) && (changed || str_eq(buf_view(&repaired), text)));
    if (json_parse_at(text, 0, &v, &at, &e)) {
        ASSERT(*e.text && at <= n);
        struct str key = json_key_at(text, at);
        ASSERT(!key.n || (key.p > text.p && key.p + key.n <= text.p + n));
    } else {
        ASSERT(!changed);
        check_same(v);
        json_decref(v);
    }
    buf_fini(&repaired);
    return 0;
}
