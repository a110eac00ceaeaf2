/* Goal: the first key of the table that the gateway's configuration names is found, whatever else stands in both files. Method: files
 * in a temporary folder. */
#include "up/up_key.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/check.h"

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "wb");
    REQUIRE(f && fputs(text, f) >= 0 && !fclose(f));
}

TEST(the_first_key_of_the_named_table_is_found)
{
    static const struct {
        const char *config, *table, *want, *title;
    } cases[] = {
        {"api_keys %s\n", "sk-a a\nsk-b b\n", "sk-a", "plain"},
        {"# mine\nno_such_option 1\n  api-keys = \"%s\"  # table\n",
         "# keys\n\n \tsk-c\tc weight=2\r\n", "sk-c", "dash, equals sign, quotes, comments"},
        {"api_keys /nowhere\napi_keys %s", "sk-d d", "sk-d", "the later line counts"},
        {"#api_keys %s\n", "sk-e e\n", "", "a comment"},
        {"api_keys_more %s\n", "sk-f f\n", "", "another option"},
        {"api_keys %s\n", "# none\n", "", "a table without a key"},
        {"api_keys \"%s\n", "sk-g g\n", "", "a line the gateway refuses"},
    };
    char config[] = "/tmp/deja-conf-XXXXXX", table[] = "/tmp/deja-keys-XXXXXX", text[300];
    close(mkstemp(config));
    close(mkstemp(table));
    unsetenv("DEJA_API_KEYS");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char found[UP_TABLE_BYTES], key[UP_KEY_BYTES];
        snprintf(text, sizeof text, cases[i].config, table);
        put(config, text);
        put(table, cases[i].table);
        CHECK_AT(up_key_find(config, found, key) == (cases[i].want[0] != 0), "%s", cases[i].title);
        CHECK_Z(key, cases[i].want);
        CHECK_Z(found, cases[i].want[0] ? table : "");
    }
    char found[UP_TABLE_BYTES], key[UP_KEY_BYTES];
    put(table, "sk-h h\n");
    setenv("DEJA_API_KEYS", table, 1);
    CHECK(up_key_find("", found, key));
    CHECK_Z(key, "sk-h");
    unsetenv("DEJA_API_KEYS");
    CHECK(!up_key_find("/no/such/file", found, key));
    unlink(config);
    unlink(table);
}

TEST_MAIN()
