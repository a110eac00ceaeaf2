/* fuzz_batch.c - any bytes as the input of a batch: spans stay inside the chunk and are lines that read again, and the list of errors is
 * JSON. */
#include "base/json.h"
#include "gateway/batch_check.h"
#include "gateway/batch_line.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct str text = {(const char *)bytes, n};
    struct batch_check *c = batch_check_new("/v1/completions", 16, 1);
    bool more = batch_check_feed(c, text);
    size_t n_lines;
    const struct batch_span *lines = batch_check_lines(c, &n_lines);
    for (size_t i = 0; i < n_lines; i++) {
        struct batch_line l;
        struct batch_fault why = {0};
        ASSERT((size_t)lines[i].at + lines[i].n <= n);
        enum err code =
            batch_line_read(&l, str_sub(text, lines[i].at, lines[i].n), "/v1/completions", &why);
        ASSERT(code == OK && l.body.n >= 2 && l.body.p[0] == '{' && l.body.p[l.body.n - 1] == '}');
        batch_line_fini(&l);
    }
    if (more) more = batch_check_feed(c, text); /* every custom_id comes twice now */
    struct str errors = batch_check_end(c);
    if (n_lines) ASSERT(errors.n);
    if (errors.n) {
        json_t *doc = NULL;
        enum err code = json_parse(errors, 0, &doc, NULL);
        ASSERT(code == OK && json_array_size(json_object_get(doc, "data")) > 0);
        json_decref(doc);
    }
    batch_check_free(c);
    return 0;
}
