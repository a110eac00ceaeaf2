/* fuzz_kv_batch.c - any bytes as a batch of KV events: nothing is read past the end, and the index stays in order whatever they say. */
#include "base/err.h"
#include "cache/kv_names.h"

struct world {
    struct prefix_index *index;
    struct kv_names *names;
};

static void on_event(void *arg, const struct kv_event *ev)
{
    kv_names_event(((struct world *)arg)->names, ev);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct world w = {.index = prefix_index_new(1, 10)};
    struct prefix_origin origin = {.seed = 1};
    prefix_index_join(w.index, 0, 1, true);
    w.names = kv_names_new(w.index, 0, 16, &origin);
    kv_names_begin(w.names, 1);
    for (int i = 0; i < 2; i++) {
        enum err code = kv_batch_read((struct str){(const char *)bytes, n}, on_event, &w);
        ASSERT(code == OK || code == ERR_CORRUPT || code == ERR_FULL);
    }
    ASSERT(!prefix_index_check(w.index));
    kv_names_free(w.names);
    prefix_index_free(w.index);
    return 0;
}
