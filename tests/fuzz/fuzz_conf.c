/* fuzz_conf.c - any bytes as a file of options: read or refused with a line number, and the table stays in range. */
#include "base/conf.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static const struct conf_row rows[] = {
        {"ttl_s", CONF_INT, "60", 1, 3600, "s", 0, "an integer", NULL},
        {"memory", CONF_INT, "1M", 0, 1e15, "bytes", 0, "bytes", "m mem"},
        {"score", CONF_FLOAT, "0.9", 0, 1, "", 0, "a real", NULL},
        {"verbose", CONF_BOOL, "false", 0, 0, "", 0, "a switch", NULL},
        {"upstream", CONF_STR, "", 0, 0, "", CONF_LIST, "a list", "u"},
    };
    struct conf *c = conf_new(rows, 5);
    struct errmsg e = {0};
    if (conf_read_text(c, "f", (struct str){(const char *)bytes, n}, &e))
        ASSERT(!strncmp(e.text, "f:", 2));
    ASSERT(conf_int(c, "ttl_s") >= 1 && conf_int(c, "ttl_s") <= 3600 && conf_int(c, "memory") >= 0);
    ASSERT(conf_float(c, "score") >= 0 && conf_float(c, "score") <= 1 &&
           utf8_valid(str_of(conf_str(c, "upstream"))));
    conf_free(c);
    return 0;
}
