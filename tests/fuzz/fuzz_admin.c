/* fuzz_admin.c - any method, target and body: a call with as many arguments as it says, or a refusal that says why. The input's first
 * line is "METHOD target", the rest the body (none when empty). */
#include "gateway/admin_args.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n)
{
    struct str body = {(const char *)bytes, n}, line, method, path = {"", 0};
    struct openai_error e = {0};
    struct admin_call c;
    const char *allow;
    json_t *doc = NULL;
    if (!str_next(&body, '\n', &line) || !str_next(&line, ' ', &method)) return 0;
    str_next(&line, '?', &path);
    if (body.n && json_parse(body, 0, &doc, NULL) != OK) return 0;
    enum err code = admin_call_make(&c, method, path, line, doc, "admin", &allow, &e);
    if (code == OK) {
        size_t ends = 0;
        for (size_t i = 0; i < c.args.n; i++)
            ends += !c.args.p[i];
        ASSERT(ends == c.n_args && c.function);
        admin_call_fini(&c);
    }
    ASSERT(code != ERR_INVALID || (e.status == 400 && e.message[0] && e.param[0]));
    json_decref(doc);
    return 0;
}
