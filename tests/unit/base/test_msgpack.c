/* Goal: every form of value is read, and no damaged one past its end. Method: the specification's forms by hand; each cut at
 * every byte, at the end of a block of memory of just that size. */
#include "base/mem.h"
#include "base/msgpack.h"
#include "tests/check.h"

#define S(text)                                                                                    \
    {                                                                                              \
        text, sizeof text - 1                                                                      \
    }

TEST(each_form_is_read_and_none_when_it_is_cut)
{
    static const struct {
        struct str bytes;
        enum msgpack_kind kind;
        uint64_t number;
        bool negative;
        uint32_t n;
    } forms[] = {{S("\x7f"), MSGPACK_INT, 127, false, 0},
                 {S("\xff"), MSGPACK_INT, UINT64_MAX, true, 0},
                 {S("\xcc\xff"), MSGPACK_INT, 255, false, 0},
                 {S("\xcd\x01\x00"), MSGPACK_INT, 256, false, 0},
                 {S("\xce\x00\x01\x00\x00"), MSGPACK_INT, 65536, false, 0},
                 {S("\xcf\xff\xff\xff\xff\xff\xff\xff\xfe"), MSGPACK_INT, UINT64_MAX - 1, false, 0},
                 {S("\xd0\x80"), MSGPACK_INT, (uint64_t)-128, true, 0},
                 {S("\xd1\x7f\xff"), MSGPACK_INT, 32767, false, 0},
                 {S("\xd2\x80\x00\x00\x00"), MSGPACK_INT, (uint64_t)INT32_MIN, true, 0},
                 {S("\xd3\xff\xff\xff\xff\xff\xff\xff\xff"), MSGPACK_INT, UINT64_MAX, true, 0},
                 {S("\xc0"), MSGPACK_NIL, 0, false, 0},
                 {S("\xc3"), MSGPACK_BOOL, 1, false, 0},
                 {S("\xca\x3f\x80\x00\x00"), MSGPACK_FLOAT, 0, false, 0},
                 {S("\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00"), MSGPACK_FLOAT, 0, false, 0},
                 {S("\xa3xyz"), MSGPACK_STR, 0, false, 0},
                 {S("\xd9\x02xy"), MSGPACK_STR, 0, false, 0},
                 {S("\xda\x00\x01x"), MSGPACK_STR, 0, false, 0},
                 {S("\xdb\x00\x00\x00\x01x"), MSGPACK_STR, 0, false, 0},
                 {S("\xc4\x02xy"), MSGPACK_BIN, 0, false, 0},
                 {S("\xd6\x01wxyz"), MSGPACK_EXT, 0, false, 0},
                 {S("\xc7\x02\x01xy"), MSGPACK_EXT, 0, false, 0},
                 {S("\x92\x01\x02"), MSGPACK_ARRAY, 0, false, 2},
                 {S("\xdc\x00\x01\xc0"), MSGPACK_ARRAY, 0, false, 1},
                 {S("\xdd\x00\x00\x00\x01\xc0"), MSGPACK_ARRAY, 0, false, 1},
                 {S("\x81\xa1x\x01"), MSGPACK_MAP, 0, false, 1},
                 {S("\xde\x00\x01\xa1x\x01"), MSGPACK_MAP, 0, false, 1}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        for (size_t cut = 0; cut <= forms[i].bytes.n; cut++) {
            char *exact = xmalloc(cut + !cut);
            memcpy(exact, forms[i].bytes.p, cut);
            struct msgpack m = msgpack_of((struct str){exact, cut}), skip = m;
            struct msgpack_value v;
            enum err code = msgpack_next(&m, &v), skipped = msgpack_skip(&skip);
            bool whole = cut == forms[i].bytes.n;
            CHECK_AT((skipped == OK) == whole, "form %zu cut at %zu: skip", i, cut);
            if (whole) {
                CHECK_AT(code == OK && v.kind == forms[i].kind, "form %zu", i);
                CHECK_AT(v.number == forms[i].number && v.negative == forms[i].negative &&
                             v.n == forms[i].n,
                         "form %zu", i);
                CHECK(skip.p == skip.end);
                if (v.kind == MSGPACK_FLOAT) CHECK_NEAR(v.real, 1, 0);
            }
            mem_free(exact);
        }
}

TEST(counts_that_cannot_be_are_refused)
{
    static const struct str bad[] = {S("\xdd\xff\xff\xff\xff"),
                                     S("\xdf\x7f\xff\xff\xff\x01\x02"),
                                     S("\xc1"),
                                     S("\xc6\xff\xff\xff\xffx"),
                                     S("\x91\x91\x91\x91"),
                                     S("\xdd\x00\x00\x00\x02\x01")};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct msgpack m = msgpack_of(bad[i]);
        const uint8_t *before = m.p;
        CHECK_AT(msgpack_skip(&m) == ERR_CORRUPT && m.p == before, "case %zu", i);
    }
}

TEST_MAIN()
