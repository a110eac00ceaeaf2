/* test_guard_order.c - goal: words in another order are another question, unless it is one thing said in two
 * constructions. Method: pairs in both orders. */
#include "tests/unit/cache/guard_rig.h"

TEST(one_thing_said_in_two_constructions_is_one_question)
{
    static const struct pair p[] = {
        {"What is the hotel's phone number?", "What is the phone number of the hotel?", NULL},
        {"What is my sister's friend's number", "What is my friend's sister's number", "order"},
        {"Do the rooms have a desk?", "Is there a desk in the rooms?", NULL},
        {"Is there a lift in the hotel", "Is there a hotel in the lift", "order"},
        {"Does the sea have a view of the rooms", "Do the rooms have a view of the sea", ""},
        {"Can my order be cancelled?", "Can I cancel my order?", NULL},
        {"I lost my bank card, what should I do?", "What do I do if my bank card is lost?", NULL},
        {"Can I get a refund if my course is cancelled", "Can I get a refund if I cancel my course",
         ""},
        {"Can my tenant be evicted", "Can my tenant evict", "link"},
        {"Can I be refunded by the shop", "Can I refund the shop", ""},
        {"Is there camping near the beach?", "Can I camp near the beach?", NULL},
        {"Is there training for staff", "Can I train staff", ""},
        {"Is tea cheaper than coffee?", "Is coffee more expensive than tea?", NULL},
        {"Is tea cheaper than coffee in Oslo", "Is coffee more expensive than tea in Bergen", ""},
        {"Is tea cheaper than coffee", "Is tea more expensive than coffee", "antonym"},
        {"Is tea cheaper than coffee", "Is coffee cheaper than tea", "order"},
        {"苹果比梨贵吗", "梨比苹果便宜吗", NULL},
        {"苹果比梨贵吗", "苹果比梨便宜吗", "antonym"},
        {"苹果比梨贵吗", "梨比苹果贵吗", "order"},
        {"北京和天津相距多远", "天津跟北京距离多少", NULL},
        {"儿子和女儿同学能去吗", "女儿和儿子同学能去吗", "order"},
        {"订单可以取消吗", "能不能取消订单", NULL},
        {"客户可以投诉吗", "可以投诉客户吗", "order"},
        {"Which is the best phone for long trips?", "Which phone is best for long trips?", NULL},
        {"Which are the cheapest hotels in Rome?", "Which hotels are the cheapest in Rome?", NULL},
        {"Which is the best trip for a phone", "Which phone is best for a trip", ""},
        {"Is the best dog big?", "Is the big dog best?", "order"},
    };
    CHECK_PAIRS(p);
}

TEST(where_something_goes_is_told_from_where_it_comes_however_it_is_said)
{
    static const struct pair p[] = {
        {"厦门去长沙周六哪张票价格最低", "周六从长沙到厦门最便宜的票是哪趟", ""},
        {"怎么把照片从手机传到电脑", "电脑里的照片怎么传到手机", ""},
        {"妈妈怎么给孩子转账", "孩子想给妈妈转一笔钱", ""},
    };
    CHECK_PAIRS(p);
    CHECK_HARD(p);
}

TEST(not_all_is_another_question_than_all_not)
{
    static const struct pair p[] = {
        {"Do all seats not recline?", "Is it true that not all seats recline?", "quantifier"},
        {"Why are not all answers shown?", "Why are all the answers not shown?", "quantifier"},
        {"所有门店都不能退货吗", "不是所有门店都能退货吗", ""},
    };
    CHECK_PAIRS(p);
    CHECK_HARD(p);
}

TEST_MAIN()
