/* Goal: when batches run, when they yield, and what becomes of a line that failed. Method: tables. */
#include "gateway/batch_pace.h"
#include "tests/check.h"

TEST(window_is_read_and_may_go_over_midnight)
{
    struct batch_window w;
    struct errmsg e = {0};
    REQUIRE(batch_window_parse(&w, STR("22:00-06:00"), &e) == OK);
    CHECK(!w.local);
    CHECK(batch_window_open(&w, 22 * 60) && batch_window_open(&w, 0) && batch_window_open(&w, 359));
    CHECK(!batch_window_open(&w, 360) && !batch_window_open(&w, 22 * 60 - 1));
    REQUIRE(batch_window_parse(&w, STR(" 09:30-17:00 local"), &e) == OK);
    CHECK(w.local && batch_window_open(&w, 570) && !batch_window_open(&w, 569) &&
          !batch_window_open(&w, 1020));
    REQUIRE(batch_window_parse(&w, STR(""), &e) == OK);
    CHECK(batch_window_open(&w, 0) && batch_window_open(&w, 1439));
    REQUIRE(batch_window_parse(&w, STR("18:00-24:00"), &e) == OK);
    CHECK(batch_window_open(&w, 1439) && !batch_window_open(&w, 0));
    static const char *const bad[] = {
        "22:00", "22-06", "25:00-06:00", "22:60-06:00", "22:00-6:00", "24:01-06:00", "x"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_INT(batch_window_parse(&w, str_of(bad[i]), &e), ERR_INVALID);
}

TEST(batches_yield_to_clients_and_keep_their_least_share)
{
    struct batch_load l = {.concurrency = 8, .minimum = 2, .yield_above = 10, .window_open = true};
    CHECK_INT(batch_allowed(&l), 8);
    l.online = 10;
    CHECK_INT(batch_allowed(&l), 8);
    l.online = 11;
    CHECK_INT(batch_allowed(&l), 2);
    l.online = 0;
    l.window_open = false;
    CHECK_INT(batch_allowed(&l), 2);
    l.minimum = 20;
    CHECK_INT(batch_allowed(&l), 8);
    l.concurrency = 0;
    CHECK_INT(batch_allowed(&l), 0);
}

TEST(a_result_that_is_refused_again_and_again_waits_longer_up_to_a_bound)
{
    static const uint64_t most[] = {500, 1000, 2000, 4000, 8000, 16000, 30000, 30000};
    for (int i = 0; i < (int)(sizeof most / sizeof most[0]); i++) {
        CHECK_INT(batch_again_ms(i, 0), most[i] / 2);
        CHECK(batch_again_ms(i, 0.999) > most[i] * 9 / 10 && batch_again_ms(i, 0.999) < most[i]);
    }
    CHECK_INT(batch_again_ms(1 << 30, 0), 15000);
}

TEST(what_may_pass_is_tried_again_and_what_cannot_is_not)
{
    static const struct {
        int status, tries, waits;
        enum batch_verdict want;
    } rows[] = {
        {200, 0, 0, BATCH_GOOD},  {204, 9, 0, BATCH_GOOD},   {400, 0, 0, BATCH_BAD},
        {401, 0, 0, BATCH_BAD},   {404, 0, 0, BATCH_BAD},    {422, 0, 0, BATCH_BAD},
        {500, 0, 0, BATCH_RETRY}, {502, 1, 9, BATCH_RETRY},  {504, 2, 0, BATCH_BAD},
        {408, 0, 0, BATCH_RETRY}, {501, 0, 0, BATCH_BAD},    {0, 0, 0, BATCH_RETRY},
        {0, 2, 0, BATCH_BAD},     {429, 2, 499, BATCH_WAIT}, {429, 0, 500, BATCH_BAD},
        {503, 9, 0, BATCH_WAIT},  {302, 2, 0, BATCH_BAD},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        CHECK_AT(batch_verdict(rows[i].status, rows[i].tries, 3, rows[i].waits) == rows[i].want,
                 "status %d, try %d, wait %d: %d", rows[i].status, rows[i].tries, rows[i].waits,
                 batch_verdict(rows[i].status, rows[i].tries, 3, rows[i].waits));
}

TEST(pauses_double_up_to_a_minute_and_heed_what_was_asked)
{
    CHECK_INT(batch_delay_ms(1000, 0, 0, 0), 500);
    CHECK_INT(batch_delay_ms(1000, 3, 0, 0), 4000);
    CHECK(batch_delay_ms(1000, 3, 0, 0.99) < 8000);
    CHECK_INT(batch_delay_ms(1000, 40, 0, 0), 30000);
    CHECK_INT(batch_delay_ms(1000, 0, 20000, 0), 20000);
    CHECK_INT(batch_delay_ms(1000, 0, 20000, 0.5), 22500);
    CHECK_INT(batch_delay_ms(1000, 0, 99000000, 0), 600000);
}

TEST(time_a_batch_has_is_given_in_one_unit)
{
    int64_t s;
    struct errmsg e = {0};
    REQUIRE(batch_duration_parse(STR("24h"), &s, &e) == OK);
    CHECK_INT(s, 86400);
    REQUIRE(batch_duration_parse(STR("7d"), &s, &e) == OK);
    CHECK_INT(s, 604800);
    REQUIRE(batch_duration_parse(STR("2s"), &s, &e) == OK);
    CHECK_INT(s, 2);
    static const char *const bad[] = {"", "h", "24", "0h", "8d", "1w", "-1h", "24 h", "1.5h"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_INT(batch_duration_parse(str_of(bad[i]), &s, &e), ERR_INVALID);
}

TEST_MAIN()
