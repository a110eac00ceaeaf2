/* test_guard_aspect.c - goal: two questions of the same content words are not one where grammar makes them two: a deed done or wished
 * for, what befell one or how it is done, need not or must not, who receives, how many of what, everyone or who, a kind of thing or
 * one's own. Method: pairs in both orders, close rewordings beside them. */
#include "tests/unit/cache/guard_rig.h"

TEST(a_deed_done_is_not_one_wished_for_or_asked_how)
{
    static const struct pair p[] = {
        {"I have booked a room", "I want to book a room", "tense"},
        {"I paid the invoice", "How do I pay the invoice?", "tense"},
        {"I reset my password", "I'd like to reset my password", "tense"},
        {"She signed the lease", "She needs to sign the lease", "tense"},
        {"Is the lounge still open?", "Is the lounge open yet?", "tense"},
        {"I used to pay cash", "I'm used to paying cash", "tense"},
        {"Could I have cancelled?", "Can I cancel?", "tense"},
        {"我退货了", "我要退货", ""},
        {"我办过贷款", "我在办贷款", ""},
        {"要下班了吗", "下班了吗", ""},
        {"I have paid the invoice", "I already paid the invoice", NULL},
        {"I want to book a room", "I'd like to book a room", NULL},
        {"我要退货", "我想退货", NULL},
        {"会员怎么退费", "办了会员想退钱，咋弄", NULL},
    };
    CHECK_PAIRS(p);
}

TEST(what_befell_one_is_not_how_it_is_done)
{
    static const struct pair p[] = {
        {"My card is frozen, what do I do?", "How do I freeze my card?", ""},
        {"My order got cancelled, what now?", "How do I cancel my order?", ""},
        {"手机停机了怎么办", "手机怎么停机", "question"},
        {"账户冻结怎么办", "怎么冻结账户", ""},
        {"I want to close my account, what do I do?", "How do I close my account?", NULL},
        {"账号怎么注销", "怎么注销账号", NULL},
    };
    CHECK_PAIRS(p);
    CHECK_AT(check(str_of(p[0].a), str_of(p[0].b)).hard & guard_bit("question"), "not hard");
}

TEST(need_not_is_not_must_not_and_only_then_is_not_as_early_as)
{
    static const struct pair p[] = {
        {"You don't have to pay", "You must not pay", "modality"},
        {"Must I come in or can I call?", "Can I come in or must I call?", "order"},
        {"不用带身份证吗", "不能带身份证吗", "modality"},
        {"18岁才能买吗", "18岁就能买吗", "quantifier"},
        {"不用带身份证吗", "不需要带身份证吗", NULL},
        {"能不能退货", "可不可以退货", NULL},
    };
    CHECK_PAIRS(p);
}

TEST(small_words_tell_who_how_many_and_which)
{
    static const struct pair p[] = {
        {"可以给我妈妈挂号吗", "我妈妈可以给我挂号吗", "order"},
        {"对方把我删了", "我把对方删了", "order"},
        {"一天两次每次一片", "一天一次每次两片", "number"},
        {"谁都能参加吗", "谁能参加", "quantifier"},
        {"一张都没收到吗", "有一张没收到吗", "quantifier"},
        {"怎么又扣钱", "怎么扣钱", ""},
        {"提前30天通知吗", "提前30个工作日通知吗", "unit"},
        {"Few users complain", "A few users complain", "quantifier"},
        {"Only I can see this", "I can only see this", "quantifier"},
        {"What is a deductible?", "What is my deductible?", "question"},
        {"How secure is my account?", "How do I secure my account?", "question"},
        {"Can I pay at the garage?", "Can I pay for the garage?", "link"},
        {"Can I travel for you?", "Can I travel with you?", "link"},
        {"Do you sell to companies?", "Do you sell companies?", "link"},
        {"How do I change my desert order?", "How do I change my dessert order?", "replaced_word"},
        {"我忘了取消试用", "我取消了试用", "added_word"},
        {"让客户签字", "客户让签字", "order"},
        {"不都是免费的吧", "都不是免费的吧", "quantifier"},
        {"不一定收费", "一定不收费", ""},
        {"也能用吗", "还能用吗", "quantifier"},
        {"Is the fee part of the price?", "Is the price part of the fee?", "order"},
        {"Whose card is it?", "Who is the card for?", "question"},
        {"Is it on sale?", "Is it for sale?", ""},
        {"赠品没给我发 主商品到了 找谁补", "赠品没发给我，主商品到了，该找谁补呢", NULL},
        {"Why was my parcel sent back to the sender?",
         "Why has my parcel been sent back to its sender?", NULL},
        {"Why was I charged a city tax?", "Why have I been charged a city tax?", NULL},
        {"still getting billed by the shop", "still being billed by the shop", NULL},
        {"能替我老公取药吗", "可以替我老公取药吗", NULL},
        {"能让朋友帮我取件吗", "朋友能帮我取件吗", NULL},
        {"怎么这么慢", "为什么这么慢", NULL},
        {"How do I pay for my order?", "How do I pay my order?", NULL},
    };
    CHECK_PAIRS(p);
}

TEST_MAIN()
