/* fuzz_entry.c - any fields as Redis might give them (each: two length bytes, then the value;
 * length 0xffff = absent): reading never crashes, and what it accepts can be copied, written and
 * read again alike. */
#include "cache/entry.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n);

static size_t take_fields(const unsigned char *bytes, size_t n, struct str values[N_ENTRY_FIELDS])
{
    size_t count = 0, at = 0;
    for (; count < N_ENTRY_FIELDS && at + 2 <= n; count++) {
        size_t len = (size_t)bytes[at] << 8 | bytes[at + 1];
        at += 2;
        if (len == 0xffff) {
            values[count] = (struct str){NULL, 0};
            continue;
        }
        if (len > n - at) len = n - at;
        values[count] = (struct str){(const char *)bytes + at, len};
        at += len;
    }
    return count;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n)
{
    struct str values[N_ENTRY_FIELDS], written[N_ENTRY_FIELDS];
    char texts[ENTRY_TEXTS_BYTES];
    struct entry e, again;
    struct errmsg why = {0};
    float vec[ENTRY_DIM_MAX];
    struct hash128 id = {1, 2};
    size_t count = take_fields(bytes, n, values);
    bool need_answer = n & 1;
    if (entry_read(id, values, count, need_answer, &e, &why) != OK) return 0;
    struct entry *copy = entry_copy(&e);
    entry_write(copy, written, texts);
    ASSERT(entry_read(id, written, N_ENTRY_FIELDS, false, &again, &why) == OK);
    ASSERT(hash_eq(again.check, e.check) && hash_eq(again.partition, e.partition) &&
           again.kind == e.kind);
    ASSERT(str_eq(again.question, e.question) && str_eq(again.answer, e.answer) &&
           str_eq(again.vector, e.vector));
    ASSERT(again.created_s == e.created_s && again.ttl_s == e.ttl_s &&
           again.prompt_tokens == e.prompt_tokens);
    if (entry_unpack_vector(e.vector, e.vector.n / 2, vec) == OK)
        ASSERT(vec[0] >= -1.1f && vec[0] <= 1.1f);
    (void)entry_expired(&e, 1000);
    entry_free(copy);
    return 0;
}
