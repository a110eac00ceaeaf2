/* fuzz_settings.c - settings as Redis might hand them over, spoilt: refused or read, and then usable for any namespace and arm. */
#include "gateway/settings.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n)
{
    json_t *doc = NULL;
    struct settings *s = NULL;
    struct cache_knobs base = knobs_default();
    if (json_parse((struct str){(const char *)bytes, n}, 0, &doc, NULL) != OK) return 0;
    if (settings_parse(&s, doc, &base, NULL) == OK) {
        const struct experiment *x = settings_experiment(s);
        struct hash128 h = {n, 1};
        int arm = x ? experiment_arm(x, STR("faq"), STR("t"), STR("u"), h) : -1;
        struct cache_knobs k = settings_knobs(s, STR("faq"), arm);
        for (size_t i = 0; i < knobs_count(); i++) {
            struct knob row = knob_at(i);
            double v = knob_get(&k, &row);
            ASSERT(v >= row.min && v <= row.max);
        }
        settings_free(s);
    }
    json_decref(doc);
    return 0;
}
