/* fuzz_seed_file.c - any bytes as a file of answers: read or refused with a line, and what was read keeps its bounds. */
#include "cache/seed_file.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static const struct seed_defaults d = {{"ns", 2}, {"*", 1}, {"", 0}, 0};
    struct seed_file f;
    seed_file_read(&f, (struct str){(const char *)bytes, n}, &d);
    struct str problems = buf_view(&f.problems), line;
    while (f.n_problems && str_next(&problems, '\n', &line))
        ASSERT(line.n && line.p[0] >= '1' && line.p[0] <= '9');
    for (size_t i = 0; i < f.n && !f.n_problems; i++) {
        const struct seed *s = &f.items[i];
        ASSERT(s->question.n && s->question.n <= SEED_TEXT_BYTES_MAX && s->answer.n &&
               s->answer.n <= SEED_ANSWER_BYTES_MAX);
        ASSERT(s->line > 0 && s->ttl_s >= 0 && s->n_wordings <= SEED_TEXTS_MAX &&
               s->n_near <= SEED_TEXTS_MAX);
        ASSERT(strlen(s->tags) < sizeof s->tags && s->ns.n < 64);
    }
    seed_file_fini(&f);
    return 0;
}
