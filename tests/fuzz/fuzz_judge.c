/* fuzz_judge.c - a judge's reply, whatever it is: a probability from 0 to 1 or a refusal with a reason. */
#include "gateway/judge_prompt.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n)
{
    json_t *doc = NULL;
    struct errmsg e = {0};
    double yes = -1;
    if (json_parse((struct str){(const char *)bytes, n}, 0, &doc, NULL) != OK) return 0;
    if (judge_prompt_read(doc, &yes, &e) == OK)
        ASSERT(yes >= 0 && yes <= 1);
    else
        ASSERT(e.text[0]);
    json_decref(doc);
    return 0;
}
