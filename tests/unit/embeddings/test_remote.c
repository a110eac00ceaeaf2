/* test_remote.c - goal: what is no embeddings URL is refused with a sentence that says what would be right. Vectors from a real server
 * are checked by tests/integration/test_real.py. */
#include "embeddings/remote.h"

#include "embeddings/embedder.h"
#include "tests/check.h"

TEST(a_url_without_a_model_or_a_server_is_refused_with_a_sentence)
{
    static const struct {
        const char *url, *words;
        enum err code;
    } cases[] = {
        {"http://127.0.0.1:9/v1", "http://host:port/v1#MODEL", ERR_INVALID},
        {"http://127.0.0.1:9/v1#", "http://host:port/v1#MODEL", ERR_INVALID},
        {"http://:x/v1#m", "embeddings url", ERR_INVALID},
        {"http://127.0.0.1:9/v1#m", "127.0.0.1", ERR_UNAVAILABLE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct embedder *em;
        struct errmsg e = {0};
        CHECK_INT(embedder_open(&em, cases[i].url, &(struct embedder_options){0}, &e),
                  cases[i].code);
        CHECK_AT(!em && str_find(str_of(e.text), str_of(cases[i].words)) >= 0, "%s: \"%s\"",
                 cases[i].url, e.text);
    }
}

TEST_MAIN()
