/* fuzz_scenario.c - any bytes as routing rules: read or refused with a line number, and a decision that is a model of the text. */
#include "gateway/fallback.h"
#include "gateway/scenario.h"

#include <string.h>

#include "base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct scenario *s;
    struct errmsg e = {0};
    struct scenario_facts f = {.numbers = {5, 20, -1, 1, 3, 50},
                               .words = {STR("online"), STR("t"), STR("yes")}};
    enum err code = scenario_parse(&s, (struct str){(const char *)bytes, n}, &e);
    if (code != OK)
        ASSERT(!s && e.text[0]);
    else
        ASSERT(scenario_model(s, STR("m"), &f).n > 0);
    scenario_free(s);
    char *text = xstrndup((const char *)bytes, n);
    if (fallback_check(text, &e) == OK)
        for (int i = 0; fallback_of(text, STR("m"), i).p; i++)
            ASSERT(i < FALLBACKS_MAX);
    mem_free(text);
    return 0;
}
