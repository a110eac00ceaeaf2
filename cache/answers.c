/* answers.c - see answers.h. */
#include "cache/answers.h"

#include <string.h>

enum answers_verdict answers_compare(const struct guard *g, struct str a, struct str b)
{
    /* facts that are no matter of wording */
    static const char *const facts[] = {"number", "unit",       "currency", "date",
                                        "time",   "identifier", "negation", "antonym"};
    struct guard_verdict v;
    a = str_trim(a);
    b = str_trim(b);
    if (!a.n || !b.n) return ANSWERS_UNKNOWN;
    if (str_eq(a, b)) return ANSWERS_AGREE;
    guard_check(g, a, b, &v);
    if (v.same) return ANSWERS_AGREE;
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        if (!v.allowed && !strcmp(v.refused_by, facts[i])) return ANSWERS_DIFFER;
    return ANSWERS_UNKNOWN;
}

struct str answer_text(const struct openai_answer *a)
{
    if (!a->n_choices) return (struct str){"", 0};
    json_t *message = a->choices[0].message, *content = json_object_get(message, "content");
    if (!json_is_string(content)) content = json_object_get(message, "text");
    return json_is_string(content) ? json_str(content) : (struct str){"", 0};
}
