/* fuzz_key.c - any body: keys are made without a crash, twice alike, the same for the canonical
 * form of the body, and another when the last user text is another. */
#include "cache/key.h"

#include "base/mem.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n);

static bool make(struct str body, struct cache_key *out)
{
    static const struct key_rules rules = {
        .secret = 7, .embedder_id = {"e", 1}, .text_bytes_max = 1024};
    struct openai_request r;
    struct openai_error e;
    struct cache_scope scope = {.tenant = STR("t"), .ns = STR("n"), .model = STR("m")};
    if (openai_parse(&r, OPENAI_CHAT, body, OPENAI_GATEWAY, &e) != OK) return false;
    enum err code = key_make(&rules, &r, &scope, out);
    openai_request_fini(&r);
    return code == OK;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n)
{
    struct cache_key a, b;
    struct str body = {(const char *)bytes, n};
    if (!make(body, &a)) return 0;
    ASSERT(make(body, &b) && hash_eq(a.exact, b.exact) && hash_eq(a.check, b.check) &&
           hash_eq(a.partition, b.partition));
    ASSERT(a.semantic_allowed == !a.why_not && (!a.semantic_allowed || a.user_text.n));
    cache_key_fini(&b);
    json_t *v = NULL;
    struct errmsg e = {0};
    struct buf sorted;
    buf_init(&sorted, 1 << 22);
    if (json_parse(body, 0, &v, &e) == OK) {
        json_write_canonical(&sorted, v);
        if (!buf_failed(&sorted) && make(buf_view(&sorted), &b)) {
            ASSERT(hash_eq(a.exact, b.exact) && hash_eq(a.partition, b.partition));
            cache_key_fini(&b);
        }
        json_decref(v);
    }
    buf_fini(&sorted);
    cache_key_fini(&a);
    return 0;
}
