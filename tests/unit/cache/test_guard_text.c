/* test_guard_text.c - goal: questions are cut and read as a person would: numbers, dates, times, money, identifiers, contractions,
 * politeness, Chinese numerals and question forms; the word lists are sound. Method: tables of text and canonical tokens. */
#include "cache/guard_text.h"

#include <stdio.h>

#include "base/buf.h"
#include "cache/guard.h"
#include "tests/check.h"

static struct guard_lexicon *lexicon;
static struct guard_text text;

/* canonical content tokens joined by '|', units behind a blank */
static const char *content(const char *s)
{
    static char out[1024];
    size_t n = 0;
    if (!lexicon) lexicon = guard_lexicon_new();
    guard_text_read(&text, lexicon, str_of(s));
    out[0] = 0;
    for (size_t i = 0; i < text.n; i++) {
        const struct guard_token *k = &text.tokens[i];
        if (!k->content) continue;
        n += (size_t)snprintf(out + n, sizeof out - n, "%s" STR_FMT "%s" STR_FMT, n ? "|" : "",
                              STR_ARG(k->canon), k->unit.n ? " " : "", STR_ARG(k->unit));
    }
    return out;
}

struct reading {
    const char *text, *want;
};
static void check_readings(const struct reading *r, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *got = content(r[i].text);
        CHECK_AT(!strcmp(got, r[i].want), "\"%s\" is read as \"%s\", not \"%s\"", r[i].text, got,
                 r[i].want);
    }
}
#define CHECK_READINGS(r) check_readings(r, sizeof r / sizeof *r)

TEST(numbers_are_read_in_both_languages)
{
    static const struct reading r[] = {
        {"1,000", "n:1000"},
        {"twenty five", "n:25"},
        {"two hundred and five", "n:205"},
        {"10k", "n:10000"},
        {"3.10", "n:3.10"},
        {"10%", "n:10 unit:percent"},
        {"ten percent", "n:10 unit:percent"},
        {"5kg", "n:5 unit:kg"},
        {"5 kg", "n:5 unit:kg"},
        {"3rd", "o:3"},
        {"a dozen", "n:12"},
        {"half an hour", "n:30 unit:minute"},
        {"$5.00", "n:5 cur:usd"},
        {"5 dollars", "n:5 cur:usd"},
        {"\xc2\xa3"
         "5",
         "n:5 cur:gbp"},
        {"3-5", "n:3|n:5"},
        {"三百二十", "n:320"},
        {"两千", "n:2000"},
        {"一万五", "n:15000"},
        {"5万", "n:50000"},
        {"二零二四", "n:2024"},
        {"百分之十", "n:10 unit:percent"},
        {"八折", "n:80 unit:percent"},
        {"三天", "n:3 unit:day"},
        {"半年", "n:6 unit:month"},
        {"第三", "o:3"},
        {"20块", "n:20 cur:cny"},
        {"人民币1000", "n:1000 cur:cny"},
        {"两个小时", "n:2 unit:hour"},
        {"１２", "n:12"},
    };
    CHECK_READINGS(r);
}

TEST(dates_and_times_are_read_in_both_languages)
{
    static const struct reading r[] = {
        {"2025-06-01", "d:2025-06-01"},
        {"1 June 2025", "d:2025-06-01"},
        {"June 1st, 2025", "d:2025-06-01"},
        {"1st of June", "d:-06-01"},
        {"June 2025", "d:2025-06-"},
        {"in May", "d:-05-"},
        {"2025年6月1日", "d:2025-06-01"},
        {"6月1号", "d:-06-01"},
        {"元旦", "d:-01-01"},
        {"3pm", "t:15:00"},
        {"3:30 p.m.", "t:15:30"},
        {"15:00", "t:15:00"},
        {"12 am", "t:00:00"},
        {"下午三点半", "t:15:30"},
        {"上午9点", "t:09:00"},
        {"03/04/2024", "d:3/4/2024"},
    };
    CHECK_READINGS(r);
}

TEST(identifiers_stay_whole)
{
    static const struct reading r[] = {
        {"ABC-123", "abc-123"},
        {"see https://x.com/a?b=1.", "see|https://x.com/a?b=1"},
        {"a.b@c.com", "a.b@c.com"},
        {"v2.1", "v2.1"},
        {"0x80070005", "0x80070005"},
        {"report.pdf", "report.pdf"},
        {"C++", "c++"},
        {"c#", "c#"},
        {"node.js", "node.js"},
        {"2+2", "2+2"},
        {"192.168.0.1", "192.168.0.1"},
        {"snake_case", "snake_case"},
    };
    CHECK_READINGS(r);
}

TEST(politeness_and_grammar_carry_no_content)
{
    static const struct reading r[] = {
        {"Hi, could you please tell me where it is?", ""},
        {"请问一下，谢谢！", ""},
        {"I would like to know the price", "fee"},
        {"How do I do it?", ""},
        {"caf\xc3\xa9", "cafe"},
        {"cafe\xcc\x81", "cafe"},
    };
    CHECK_READINGS(r);
}

TEST(what_a_sentence_asks_and_denies_is_noted)
{
    content("Can't I log in?");
    CHECK(text.questions & 1u << GQ_YESNO);
    CHECK_INT(text.negations, 1);
    content("Isn't it open?");
    CHECK_INT(text.negations, 0);
    content("能不能退款");
    CHECK(text.questions & 1u << GQ_YESNO && text.negations == 0 && text.modals & 1u << GM_CAN);
    content("退款了没");
    CHECK(text.questions & 1u << GQ_YESNO && text.negations == 0);
    content("被狗咬了没出血");
    CHECK_INT(text.negations, 1);
    content("还能退吗");
    CHECK(text.modals & 1u << GM_CAN && text.questions & 1u << GQ_YESNO);
    content("what happens when I cancel");
    CHECK_INT(text.questions, 1u << GQ_WHAT);
    CHECK(text.all_questions & 1u << GQ_WHEN);
    content("how much is it");
    CHECK_INT(text.questions, 1u << GQ_HOWMUCH);
}

TEST(inflections_meet_and_other_words_do_not)
{
    static const struct {
        const char *a, *b;
        bool meet;
    } cases[] = {
        {"cancelling", "cancel", true}, {"stopped", "stop", true},      {"parsing", "parse", true},
        {"caring", "car", false},       {"cities", "city", true},       {"boxes", "box", true},
        {"buses", "bus", true},         {"organise", "organize", true}, {"news", "new", false},
        {"thing", "th", false},         {"rating", "rat", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct str a[GUARD_STEMS_MAX], b[GUARD_STEMS_MAX];
        text.pool_n = 0;
        size_t na = guard_stems(&text, str_of(cases[i].a), a),
               nb = guard_stems(&text, str_of(cases[i].b), b);
        bool meet = false;
        for (size_t x = 0; x < na; x++)
            for (size_t y = 0; y < nb; y++)
                meet = meet || str_eq(a[x], b[y]);
        CHECK_AT(meet == cases[i].meet, "%s and %s meet: %d", cases[i].a, cases[i].b, meet);
    }
    CHECK(guard_typo(STR("password"), STR("pasword")) &&
          guard_typo(STR("receive"), STR("recieve")));
    CHECK(!guard_typo(STR("hotel"), STR("hostel")) && !guard_typo(STR("weight"), STR("height")) &&
          !guard_typo(STR("form"), STR("from")));
}

TEST(the_word_lists_give_no_phrase_two_meanings)
{
    struct str first = {0};
    if (!lexicon) lexicon = guard_lexicon_new();
    size_t n = guard_lexicon_conflicts(lexicon, &first);
    CHECK_AT(n == 0, "%zu phrases stand in two synonym groups, the first is \"" STR_FMT "\"", n,
             STR_ARG(first));
    CHECK(guard_lexicon_count(lexicon) > 4000);
    CHECK(guard_lexicon_simplify(lexicon, 0x9280) == 0x94F6); /* silver */
    CHECK(guard_lexicon_opposite(lexicon, STR("maximum"), STR("minimum")) &&
          guard_lexicon_opposite(lexicon, STR("minimum"), STR("maximum")));
    CHECK_STR(guard_lexicon_contraction(lexicon, STR("can't")), "can not");
    guard_lexicon_free(lexicon);
    lexicon = NULL;
}

TEST(traditional_characters_become_simplified_and_other_bytes_stay)
{
    static const char *const pairs[][2] = {
        {"寬頻斷網點報修", "宽频断网点报修"},
        {"plain words, 信用卡怎樣開卡?", "plain words, 信用卡怎样开卡?"},
        {"\xff\xe5\xaf", "\xff\xe5\xaf"},
        {"", ""}};
    struct guard *g = guard_new();
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct buf out;
        buf_init(&out, 1000);
        guard_simplify(g, str_of(pairs[i][0]), &out);
        CHECK(str_eqz(buf_view(&out), pairs[i][1]));
        buf_fini(&out);
    }
    guard_free(g);
}

TEST_MAIN()
