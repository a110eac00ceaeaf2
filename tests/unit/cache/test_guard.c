/* test_guard.c - goal: nothing is allowed that differs only in a number, a unit, a date, an order, an identifier, a denial or one word;
 * and close rewordings are the same question. Method: tables of pairs by kind, both languages and both orders; then variants made from
 * every question of the FAQ files (which no word list was written from); then the question pairs, with the figures printed. */
#include "cache/guard.h"

#include "base/mem.h"
#include "cache/guard_align.h"
#include "cache/guard_text.h"
#include "tests/unit/cache/faq_rig.h"
#include "tests/unit/cache/guard_rig.h"

static struct guard_lexicon *lexicon;

TEST(signs_that_are_no_words_are_compared)
{
    static const struct pair p[] = {
        {"What is 3 + 4 * 2", "What is (3 + 4) * 2", "identifier"},
        {"what is 3!", "what is 3", "identifier"},
        {"what is !true", "what is true", "identifier"},
        {"what does ls -a do", "what does ls a do", "identifier"},
        {"what does /etc do", "what does etc do", "identifier"},
        {"what is .net", "what is net", "identifier"},
        {"what does \\n mean", "what does n mean", "identifier"},
        {"what is ~5 in C", "what is 5 in C", "identifier"},
        {"10 \xE2\x88\x92 5", "10 5", "identifier"},
        {"3 \xC3\xB7 4 is", "3 \xC3\x97 4 is", ""},
        {"is \xE2\x88\x9A"
         "9 odd",
         "is 9 odd", "identifier"},
        {"the \xE2\x89\xA5"
         "5 rule",
         "the \xE2\x89\xA4"
         "5 rule",
         "identifier"},
        {"x \xE2\x86\x92 y", "x \xE2\x86\x90 y", "identifier"},
        {"what does a & b do", "what does a && b do", "identifier"},
        {"\xF0\x9F\x91\x8D meaning", "\xF0\x9F\x91\x8E meaning", "identifier"},
        {"How do I reset my password \xF0\x9F\x99\x8F", "How do I reset my password?", NULL},
        {"How do I (please) reset my password?!", "How do I reset my password?", NULL},
        {"temperature of \xE2\x88\x92"
         "5",
         "temperature of -5", NULL},
        {"(3 + 4) * 2",
         "\xEF\xBC\x88"
         "3 + 4\xEF\xBC\x89 * 2",
         NULL},
    };
    CHECK_PAIRS(p);
}

TEST(close_rewordings_are_the_same_question)
{
    static const struct pair p[] = {
        {"How can I reset my password?", "How do I reset my password?", NULL},
        {"how to reset password", "How do I reset my password?", NULL},
        {"HOW DO I RESET MY PASSWORD", "How do I reset my password?", NULL},
        {"Hi, could you please tell me how I can reset my password? Thanks!",
         "How do I reset my password?", NULL},
        {"What is the best way to reset my password?", "How do I reset my password?", NULL},
        {"How do I reset my pasword?", "How do I reset my password?", NULL},
        {"I can't log in", "I am unable to log in", NULL},
        {"Why can't I log in?", "I am unable to log in", NULL},
        {"Where is my package?", "where's my parcel", NULL},
        {"Am I allowed to park here?", "May I park here?", NULL},
        {"What does it cost in US dollars?", "What is the price in USD?", NULL},
        {"Flights on 2025-06-01", "Flights on 1 June 2025", NULL},
        {"Flights on June 1st, 2025", "Flights on 1 June 2025", NULL},
        {"A meeting at 3pm", "A meeting at 15:00", NULL},
        {"A table for two", "A table for 2", NULL},
        {"Fee for 1,000", "Fee for 1000", NULL},
        {"What is ten percent of 50?", "What is 10% of 50?", NULL},
        {"Is it not impossible to get a refund?", "Is it possible to get a refund?", NULL},
        {"Isn't the museum open today?", "Is the museum open today?", NULL},
        {"\xef\xbc\xa8\xef\xbd\x8f\xef\xbd\x97 do I pay\xef\xbc\x9f", "How do I pay?",
         NULL}, /* full width */
        {"Distance between Oslo and Bergen", "Distance between Bergen and Oslo", NULL},
        {"In Python, how do I sort a list?", "How do I sort a list in Python?", NULL},
        {"信用卡丢了怎么办？", "您好，我的信用卡遗失了，请问要怎么处理？", NULL},
        {"怎么注销信用卡", "信用卡怎么注销？", NULL},
        {"這個怎麼賣", "这个怎么卖", NULL},
        {"信用卡怎樣開卡嗎", "信用卡怎样开卡吗", NULL},
        {"能不能退款", "可以退款吗", NULL},
        {"二十块能买什么", "20元可以买什么", NULL},
        {"下午三点开会吗", "15:00开会吗", NULL},
        {"登录不了怎么办", "无法登录怎么办", NULL},
        {"元旦上班吗", "1月1日上班吗", NULL},
        {"一千元人民币手续费多少", "1000RMB手续费多少", NULL},
    };
    CHECK_PAIRS(p);
}

TEST(numbers_units_money_and_times_must_be_equal)
{
    static const struct pair p[] = {
        {"Recipe for 4 people", "Recipe for 14 people", "number"},
        {"Recipe for two people", "Recipe for 3 people", "number"},
        {"Version 3.1 release notes", "Version 3.10 release notes", "number"},
        {"Can I send 5 kg?", "Can I send 5 lb?", "unit"},
        {"Can I send 5 kg?", "Can I send 5 g?", "unit"},
        {"Invoice of $90",
         "Invoice of \xe2\x82\xac"
         "90",
         "currency"},
        {"How much is the ticket in dollars?", "How much is the ticket in euros?", "currency"},
        {"Is it open at 3 pm?", "Is it open at 3 am?", "time"},
        {"Is it open at 15:00?", "Is it open at 16:00?", "time"},
        {"Open on 24 December?", "Open on 26 December?", "date"},
        {"Open on Monday?", "Open on Tuesday?", "date"},
        {"Weather in May 2023", "Weather in May 2024", "date"},
        {"What is the price today?", "What is the price tomorrow?", "relative_time"},
        {"Which is the first stop?", "Which is the second stop?", "number"},
        {"三个人的房间多少钱", "两个人的房间多少钱", "number"},
        {"存一万利息多少", "存十万利息多少", "number"},
        {"1.5升水够喝吗", "15升水够喝吗", "number"},
        {"寄五公斤多少钱", "寄五斤多少钱", "unit"},
        {"第三章讲了什么", "第四章讲了什么", "number"},
        {"周三有号吗", "周四有号吗", "date"},
        {"昨天的汇率", "今天的汇率", "relative_time"},
        {"上午能取件吗", "下午能取件吗", "relative_time"},
        {"能付欧元吗", "能付英镑吗", "currency"},
        {"逾期一天有影响吗", "逾期一个月有影响吗", ""},
        {"九点开门吗", "十点开门吗", "time"},
    };
    CHECK_PAIRS(p);
}

TEST(denial_quantity_kind_of_question_and_duty_must_be_equal)
{
    static const struct pair p[] = {
        {"Which rooms allow smoking?", "Which rooms do not allow smoking?", "negation"},
        {"Can I travel with a passport?", "Can I travel without a passport?", "negation"},
        {"Why does my printer sleep?", "Why does my printer never sleep?", "negation"},
        {"Is it based on reading that has changed and bleeds",
         "Is it based on reading that hasn't changed and doesn't bleed", "negation"},
        {"Do all students pay?", "Do some students pay?", "quantifier"},
        {"Delete one message", "Delete all messages", "quantifier"},
        {"Only members may vote", "Members may only vote", "quantifier"},
        {"Is at least one form needed?", "Is at most one form needed?", "quantifier"},
        {"How much is delivery?", "How long is delivery?", "question"},
        {"When can I collect it?", "Where can I collect it?", "question"},
        {"Who can collect it?", "When can I collect it?", "question"},
        {"How do I return it?", "Can I return it?", "question"},
        {"Can I cancel the contract?", "Must I cancel the contract?", "modality"},
        {"How did you fix the bug?", "How would you fix the bug?", "tense"},
        {"Can I cancel the test drive?", "Can you cancel the test drive?", "subject"},
        {"哪些药孕妇能吃", "哪些药孕妇不能吃", "negation"},
        {"未满十八岁可以开户吗", "满十八岁可以开户吗", ""},
        {"没有驾照能租车吗", "有驾照能租车吗", "negation"},
        {"所有员工都要打卡吗", "有的员工要打卡吗", "quantifier"},
        {"至少要交多少", "最多要交多少", "quantifier"},
        {"手机屏幕多少钱", "手机屏幕多大", ""},
        {"退款到账了吗", "退款什么时候到账", "question"},
        {"怎么能报销", "为什么能报销", "question"},
        {"可以穿拖鞋去吗", "必须穿拖鞋去吗", "modality"},
        {"被狗咬了出血要打疫苗吗", "被狗咬了没出血要打疫苗吗", "negation"},
    };
    CHECK_PAIRS(p);
}

TEST(opposites_order_identifiers_scripts_and_single_words_must_be_equal)
{
    static const struct pair p[] = {
        {"How do I open an account before Monday?", "How do I open an account after Monday?",
         "antonym"},
        {"How do I turn on dark mode?", "How do I turn off dark mode?", "antonym"},
        {"How do I lock a document?", "How do I unlock a document?", "antonym"},
        {"Can I return unopened cosmetics?", "Can I return opend cosmetics?", "antonym"},
        {"How do I buy a gift card?", "How do I use a gift card?", "antonym"},
        {"Cities larger than Munich", "Cities smaller than Munich", "antonym"},
        {"Transfer from savings to checking", "Transfer from checking to savings", "order"},
        {"Did Anna pay Ben?", "Did Ben pay Anna?", "order"},
        {"Can I call you?", "Can you call me?", ""},
        {"Is A cheaper than B?", "Is B cheaper than A?", ""},
        {"Train from Lyon to Paris", "Train from Paris to Lyon", "order"},
        {"Status of order ABC-123", "Status of order ABC-124", "identifier"},
        {"Status of the order", "Status of the order ABC-123", "identifier"},
        {"Fix error 0x80070005", "Fix error 0x80070057", "identifier"},
        {"Write to a@x.com", "Write to b@x.com", "identifier"},
        {"Open https://x.com/a", "Open https://x.com/b", "identifier"},
        {"Is v2.1 out?", "Is v2.2 out?", "identifier"},
        {"Where is report.pdf?", "Where is report.doc?", "identifier"},
        {"iPhone 14 price", "iPhone 15 price", "number"},
        {"2+2", "2+3", "identifier"},
        {"Side effects of ibuprofen", "Side effects of aspirin", "replaced_word"},
        {"Nutrition facts of sweet potato", "Nutrition facts of potato", "added_word"},
        {"Is the hotel near?", "Is the hostel near?", "replaced_word"},
        {"Capital of Austria", "Capital of Australia", "replaced_word"},
        {"What is gravity?", "什么是重力?", "script"},
        {"Wie kann ich mein Konto mit der App verbinden",
         "How can I connect my account with the app", "language"},
        {"怎么打开定位", "怎么关闭定位", "antonym"},
        {"怎么收快递", "怎么寄快递", ""},
        {"饭前吃什么药", "饭后吃什么药", ""},
        {"北京飞广州的机票", "广州飞北京的机票", "order"},
        {"人民币换美元", "美元换人民币", "order"},
        {"我欠他钱怎么办", "他欠我钱怎么办", "order"},
        {"微信怎么改密码", "支付宝怎么改密码", ""},
        {"信用卡丢了怎么办", "储蓄卡丢了怎么办", ""},
        {"哪个更便宜", "哪个更耐用", ""},
        {"南京到杭州怎么走", "南昌到杭州怎么走", ""},
    };
    CHECK_PAIRS(p);
}

/* hard: whatever a verifier would say */
static void check_hard(const char *a, const char *b, const char *by, bool hard)
{
    struct guard_verdict v = check(str_of(a), str_of(b));
    CHECK_AT(((v.fired & guard_bit(by)) != 0) && ((v.hard & guard_bit(by)) != 0) == hard,
             "\"%s\" / \"%s\": %s %s", a, b, by,
             v.hard & guard_bit(by)    ? "hard"
             : v.fired & guard_bit(by) ? "soft"
                                       : "silent");
}

static void check_silent(const char *a, const char *b, const char *by)
{
    struct guard_verdict v = check(str_of(a), str_of(b));
    CHECK_AT(!(v.fired & guard_bit(by)), "\"%s\" / \"%s\": %s", a, b, by);
}

TEST(another_name_is_another_question_however_it_is_worded)
{
    static const char *const hard[][2] = {
        {"Do you fly to Portugal?", "is kenya one of ur destinations"},
        {"What does error E3 on my Kettara oven mean?", "My Velmont oven shows E3, what is it?"},
        {"Can I pay with PayPal?", "do u take klarna"},
        {"Sorting a list, how does one do that in Python?", "kotlin: sort list"},
        {"May I bring the Ostrix bike on the train?", "train with my Halivo bike, allowed?"},
        {"Is there a menu in Korean?", "any danish menu"},
        {"Brunfeld kettle leaks, help", "My Marlowe kettle leaks, what to do?"},
    };
    for (size_t i = 0; i < sizeof hard / sizeof *hard; i++)
        check_hard(hard[i][0], hard[i][1], "name", true);
    /* only one side names somebody: for the verifier to weigh */
    check_hard("Do you fly to Portugal?", "which countries do you fly to", "name", false);
    check_hard("How do I reset the Kettara oven?", "oven reset how", "name", false);
}

TEST(the_same_name_written_otherwise_is_no_difference)
{
    static const char *const silent[][2] = {
        {"Do you ship to the United Kingdom?", "delivery to the uk ok"},
        {"Do you ship to America?", "u send stuff to the USA?"},
        {"Can I use Apple Pay?", "is ApplePay accepted"},
        {"Is my American Express card fine?", "amex card ok?"},
        {"Does the Kettara oven have a timer?", "kettara oven, timer in it?"},
        {"How Do I Reset The Oven Timer?", "Where Is The Timer Reset?"}, /* a title */
        {"HOW DO I PAY", "WHERE CAN I PAY"},
        {"I want to pay by card", "card payment possible?"},
        {"How do I reset my PIN?", "forgot my pin code"},
        {"Descaling my kettle, how?", "How do I descale the kettle?"},
    };
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++)
        check_silent(silent[i][0], silent[i][1], "name");
}

TEST(another_thing_of_a_kind_and_the_other_way_round_are_refused_however_worded)
{
    check_hard("Zentaro dishwasher, filter broke, guaranteed?",
               "is a broken filter on a microwave from Zentaro under guarantee", "thing", true);
    check_hard("May my wife have my ticket?", "my ticket, but my daughters go", "thing", true);
    check_silent("Is breakfast included?", "is there a breakfast", "thing");
    check_silent("Can I pay with a credit card?", "pay how", "thing");
    check_silent("Do you repair sofas?", "my sofa needs repair", "thing");
    check_hard("calendar from XML into PDF pls", "How do I convert a PDF calendar to XML?", "order",
               true);
    check_hard("How do I get from the stadium to Central?", "route central > stadium", "order",
               true);
    check_silent("How do I convert a PDF calendar to XML?", "turn a PDF calendar into XML",
                 "order");
    check_hard("Where can I park my bike?", "car parking where", "thing", true);
}

TEST(what_is_ruled_out_is_not_what_is_let_in)
{
    check_hard("Does the guarantee exclude water damage to the lamp?",
               "water damage to my lamp, guarantee?", "ruled_out", true);
    check_hard("Which items are banned in hand luggage?", "Which items are in my hand luggage?",
               "ruled_out", true);
    check_silent("Which damage is excluded?", "Which damage is not covered?", "ruled_out");
    check_silent("Why was my card declined?", "card got rejected, why", "ruled_out");
    check_silent("Is water damage covered?", "does it pay for water damage", "ruled_out");
}

TEST(odd_input_is_refused_and_harmless)
{
    static char text[5000];
    memset(text, 'a', sizeof text - 1);
    CHECK_Z(check(str_of(text), str_of(text)).refused_by, "length");
    CHECK(!check(STR(""), STR("")).allowed);
    CHECK(!check(STR("?"), STR("!")).allowed);
    CHECK(!check(STR("\xff\xfe\x80"), STR("a")).allowed);
    CHECK(check(STR("yes"), STR("Yes!")).same);
    CHECK(!check(STR("yes"), STR("no")).allowed);
    struct str nul = {"a\0b", 3};
    CHECK(check(nul, nul).same);
    for (size_t n = 1; n < 700; n++)
        check((struct str){text, n}, (struct str){text, n + 1});
}

/* --- variants of every FAQ question */
struct sweep {
    int made, allowed, missed;
    struct str words[512]; /* content words of all questions */
    size_t n_words;
};

static void expect_refused(struct sweep *s, const char *a, struct str b, const char *kind)
{
    struct guard_verdict v = check(str_of(a), b);
    s->made++;
    if (!v.allowed) return;
    s->allowed++;
    CHECK_AT(false, "%s: \"%s\" / \"" STR_FMT "\" is allowed", kind, a, STR_ARG(b));
}

static void expect_same(struct sweep *s, const char *a, struct str b, const char *kind)
{
    struct guard_verdict v = check(str_of(a), b);
    s->made++;
    if (v.same) return;
    s->missed++;
    CHECK_AT(false, "%s: \"%s\" / \"" STR_FMT "\" refused by %s (%s)", kind, a, STR_ARG(b),
             v.refused_by, v.detail);
}

static void collect(void *arg, const json_t *line)
{
    struct sweep *s = arg;
    static struct guard_text t;
    if (!guard) guard = guard_new();
    if (!lexicon) lexicon = guard_lexicon_new();
    guard_text_read(&t, lexicon, json_member_str(line, "q"));
    for (size_t i = 0; i < t.n && s->n_words < 512; i++)
        if (t.tokens[i].content && t.tokens[i].kind <= GT_HAN && t.tokens[i].text.n > 2)
            s->words[s->n_words++] =
                (struct str){xstrndup(t.tokens[i].text.p, t.tokens[i].text.n), t.tokens[i].text.n};
}

/* The folded question with tokens i and j replaced. */
static const char *rebuilt(const struct guard_text *t, size_t i, struct str at_i, size_t j,
                           struct str at_j, char out[2048])
{
    size_t n = 0;
    for (size_t k = 0; k < t->n; k++) {
        struct str s = k == i ? at_i : k == j ? at_j : t->tokens[k].text;
        bool blank = n && t->tokens[k].kind != GT_HAN && t->tokens[k - 1].kind != GT_HAN;
        n += (size_t)snprintf(out + n, 2048 - n, "%s" STR_FMT, blank ? " " : "", STR_ARG(s));
    }
    return out;
}

static bool joined(const struct guard_text *t, size_t i, size_t j)
{
    for (size_t k = i + 1; k < j; k++)
        if (str_eqz(t->tokens[k].text, "and") || str_eqz(t->tokens[k].text, "or") ||
            str_eqz(t->tokens[k].text, "和"))
            return true;
    return false;
}

static void make_different(void *arg, const json_t *line)
{
    struct sweep *s = arg;
    static struct guard_text t;
    struct str q = json_member_str(line, "q");
    char out[2048], with[512];
    bool zh = guard_language(q) == 'z';
    guard_text_read(&t, lexicon, q);
    for (size_t i = 0; i < t.n; i++) {
        if (!t.tokens[i].content || t.tokens[i].kind > GT_HAN) continue;
        for (size_t w = i % 7; w < s->n_words; w += 7) { /* every seventh word of the others */
            struct guard_text other;
            guard_text_read(&other, lexicon, s->words[w]);
            bool fits = other.n == 1 &&
                        (other.tokens[0].kind == GT_HAN) == (t.tokens[i].kind == GT_HAN) &&
                        !guard_tokens_equal(&other.tokens[0], &t.tokens[i]);
            if (fits)
                expect_refused(s, rebuilt(&t, i, s->words[w], t.n, s->words[w], out), q,
                               "one word replaced");
        }
        for (size_t j = i + 1; j < t.n; j++) {
            bool swaps = t.tokens[j].content && t.tokens[j].kind <= GT_HAN &&
                         !guard_tokens_equal(&t.tokens[i], &t.tokens[j]) && !joined(&t, i, j);
            if (swaps && t.tokens[i].text.n > 2 && t.tokens[j].text.n > 2)
                expect_refused(s, rebuilt(&t, i, t.tokens[j].text, j, t.tokens[i].text, out), q,
                               "two words swapped");
        }
    }
    for (size_t i = 1; i < t.n && !zh; i++) { /* not, behind each of the first words */
        char denied[64];
        snprintf(denied, sizeof denied, STR_FMT " not", STR_ARG(t.tokens[i].text));
        if (i <= 2 && t.tokens[i].kind == GT_WORD)
            expect_refused(s, rebuilt(&t, i, str_of(denied), t.n, q, out), q, "not inserted");
    }
    static const char *const spots[][2] = {
        {"可以", "不可以"}, {"怎么", "怎么不"}, {"会", "不会"}, {"要", "不要"}, {"是", "不是"}};
    for (size_t k = 0; k < 5 && zh; k++) {
        ptrdiff_t at = str_find(q, str_of(spots[k][0]));
        if (at < 0) continue;
        snprintf(out, sizeof out, "%.*s%s" STR_FMT, (int)at, q.p, spots[k][1],
                 STR_ARG(str_sub(q, (size_t)at + strlen(spots[k][0]), q.n)));
        expect_refused(s, out, q, "not inserted");
    }
    static const char *const tails[][2] = {{" for 2 items", " for 3 items"},
                                           {" on Monday", " on Friday"},
                                           {" in dollars", " in euros"},
                                           {" for order AB-12", " for order AB-13"}};
    static const char *const zh_tails[][2] = {
        {"两件", "三件"}, {"周一", "周五"}, {"美元", "欧元"}, {"订单AB-12", "订单AB-13"}};
    for (size_t k = 0; k < 4; k++) {
        snprintf(out, sizeof out, STR_FMT " %s", STR_ARG(q), zh ? zh_tails[k][0] : tails[k][0]);
        snprintf(with, sizeof with, STR_FMT " %s", STR_ARG(q), zh ? zh_tails[k][1] : tails[k][1]);
        expect_refused(s, out, str_of(with), "tail replaced");
        expect_refused(s, out, q, "tail added");
    }
}

static void make_same(void *arg, const json_t *line)
{
    struct sweep *s = arg;
    struct str q = json_member_str(line, "q"), bare = q;
    char out[2048];
    bool zh = guard_language(q) == 'z';
    static const char *const en_heads[] = {"Please tell me: ", "hi, ", "Could you tell me, ",
                                           "Good morning! "};
    static const char *const zh_heads[] = {"请问", "你好，", "麻烦问一下，", "您好，请问"};
    for (size_t k = 0; k < 4; k++) {
        snprintf(out, sizeof out, "%s" STR_FMT, zh ? zh_heads[k] : en_heads[k], STR_ARG(q));
        expect_same(s, out, q, "politeness before");
    }
    snprintf(out, sizeof out, "  " STR_FMT "  %s ", STR_ARG(q), zh ? "谢谢！" : "Thanks!!");
    expect_same(s, out, q, "politeness behind");
    while (bare.n &&
           (str_ends(bare, STR("?")) || str_ends(bare, STR(".")) || str_ends(bare, STR("？"))))
        bare.n -= str_ends(bare, STR("？")) ? 3 : 1;
    snprintf(out, sizeof out, STR_FMT, STR_ARG(bare));
    expect_same(s, out, q, "punctuation");
    for (char *p = out; *p; p++)
        if (*p >= 'A' && *p <= 'Z') *p = (char)(*p + 32);
    expect_same(s, out, q, "case");
    if (str_starts(q, STR("How do I "))) {
        snprintf(out, sizeof out, "How can I " STR_FMT, STR_ARG(str_sub(q, 9, q.n)));
        expect_same(s, out, q, "how can I");
        snprintf(out, sizeof out, "What is the best way to " STR_FMT, STR_ARG(str_sub(q, 9, q.n)));
        expect_same(s, out, q, "best way");
    }
    if (str_starts(q, STR("怎么"))) {
        snprintf(out, sizeof out, "如何" STR_FMT, STR_ARG(str_sub(q, 6, q.n)));
        expect_same(s, out, q, "如何");
        snprintf(out, sizeof out, "我想知道怎样" STR_FMT, STR_ARG(str_sub(q, 6, q.n)));
        expect_same(s, out, q, "怎样");
    }
}

static void sweep_file(const char *path)
{
    struct sweep words = {0}, same = {0};
    REQUIRE(rig_each_line(path, collect, &words));
    CHECK(rig_each_line(path, make_different, &words));
    CHECK(rig_each_line(path, make_same, &same));
    printf("    %s: %d different variants, %d allowed; %d close rewordings, %d refused\n",
           strrchr(path, '/') + 1, words.made, words.allowed, same.made, same.missed);
    CHECK(words.made > 1000 && same.made > 400);
    for (size_t i = 0; i < words.n_words; i++)
        mem_free((char *)(uintptr_t)words.words[i].p);
}

TEST(no_variant_of_an_english_question_that_asks_something_else_is_allowed)
{
    sweep_file(TEST_DATA "/faq_en.jsonl");
}
TEST(no_variant_of_a_chinese_question_that_asks_something_else_is_allowed)
{
    sweep_file(TEST_DATA "/faq_zh.jsonl");
}

/* --- the question pairs */
struct tally {
    int same_n, same_same, same_allowed, diff_n, diff_refused, diff_same;
};

static void tally_pair(void *arg, const json_t *line)
{
    struct tally *t = (struct tally *)arg;
    struct str a = json_member_str(line, "a"), b = json_member_str(line, "b");
    if (!a.p || !b.p) return; /* several turns: the partition's matter */
    t += str_eqz(json_member_str(line, "lang"), "zh");
    struct guard_verdict v = check(a, b);
    if (json_is_true(json_object_get(line, "same"))) {
        t->same_n++;
        t->same_same += v.same;
        t->same_allowed += v.allowed;
    } else {
        t->diff_n++;
        t->diff_refused += !v.allowed;
        CHECK_AT(!v.allowed, "\"" STR_FMT "\" / \"" STR_FMT "\" is allowed", STR_ARG(a),
                 STR_ARG(b));
    }
}

static void tally_faq(void *arg, const json_t *line)
{
    struct tally *t = (struct tally *)arg;
    struct str q = json_member_str(line, "q");
    json_t *v;
    size_t i;
    json_array_foreach(json_object_get(line, "same"), i, v)
    {
        struct guard_verdict g = check(json_str(v), q);
        t->same_n++;
        t->same_same += g.same;
        t->same_allowed += g.allowed;
    }
    json_array_foreach(json_object_get(line, "near"), i, v)
    {
        struct guard_verdict g = check(json_str(v), q);
        t->diff_n++;
        t->diff_refused += !g.allowed;
        t->diff_same += g.same;
        CHECK_AT(!g.same, "\"" STR_FMT "\" / \"" STR_FMT "\" counts as the same",
                 STR_ARG(json_str(v)), STR_ARG(q));
    }
}

static void print_tally(const char *name, const struct tally *t)
{
    printf("    %-14s same: %3d of %3d explained, %3d allowed; different: %3d of %3d refused, %d "
           "taken for the same\n",
           name, t->same_same, t->same_n, t->same_allowed, t->diff_refused, t->diff_n,
           t->diff_same);
}

struct texts {
    char *at[400];
    size_t n;
};

static void keep_texts(void *arg, const json_t *line)
{
    struct texts *t = arg;
    const char *const names[] = {"a", "b"};
    for (int i = 0; i < 2; i++) {
        struct str s = json_member_str(line, names[i]);
        if (s.p && t->n < sizeof t->at / sizeof *t->at) t->at[t->n++] = xstrndup(s.p, s.n);
    }
}

static bool verdicts_equal(const struct guard_verdict *a, const struct guard_verdict *b)
{
    return a->allowed == b->allowed && a->same == b->same && a->refused_by == b->refused_by &&
           !strcmp(a->detail, b->detail) && a->fired == b->fired && a->hard == b->hard &&
           a->shared == b->shared && a->contained == b->contained &&
           a->asks_alike == b->asks_alike && a->language == b->language &&
           a->hard_by_likeness == b->hard_by_likeness;
}

TEST(a_question_read_once_is_checked_as_one_read_each_time)
{
    struct texts t = {.n = 0};
    uint64_t off[] = {0, guard_bit("order") | guard_bit("number")};
    size_t wrong = 0;
    REQUIRE(rig_each_line(TEST_DATA "/semantic_pairs.jsonl", keep_texts, &t));
    for (size_t i = 0; i < t.n; i += 7) {
        struct guard_reading *r = guard_read(guard, str_of(t.at[i]));
        for (size_t j = 0; j < t.n; j++) {
            struct guard_verdict want, got;
            struct str other = str_of(t.at[j ^ (j < t.n - 1 && i % 2)]);
            guard_check_read(guard, off[j % 2], r, other, &got);
            guard_check_without(guard, off[j % 2], str_of(t.at[i]), other, &want);
            wrong += !verdicts_equal(&want, &got);
        }
        guard_reading_free(r);
    }
    CHECK(t.n >= 300 && !wrong);
    while (t.n)
        mem_free(t.at[--t.n]);
}

TEST(of_the_question_pairs_no_different_one_is_allowed_and_a_third_of_the_same_ones_is_explained)
{
    struct tally pairs[2] = {{0}}, faq[2] = {{0}};
    REQUIRE(rig_each_line(TEST_DATA "/semantic_pairs.jsonl", tally_pair, pairs));
    REQUIRE(rig_each_line(TEST_DATA "/faq_en.jsonl", tally_faq, &faq[0]));
    REQUIRE(rig_each_line(TEST_DATA "/faq_zh.jsonl", tally_faq, &faq[1]));
    print_tally("pairs en", &pairs[0]);
    print_tally("pairs zh", &pairs[1]);
    print_tally("faq en", &faq[0]);
    print_tally("faq zh", &faq[1]);
    CHECK(pairs[0].same_same * 3 >= pairs[0].same_n && pairs[1].same_same * 3 >= pairs[1].same_n);
    CHECK(faq[0].diff_refused * 10 >= faq[0].diff_n * 8 &&
          faq[1].diff_refused * 10 >= faq[1].diff_n * 8);
    guard_free(guard);
    guard_lexicon_free(lexicon);
    guard = NULL;
    lexicon = NULL;
}

TEST_MAIN()
