/* test_guard_writing.c - goal: accents, capitals and signs between words are heeded where they make other words, and only
 * there. Method: pairs in both orders. */
#include "tests/unit/cache/guard_rig.h"

TEST(the_same_words_written_as_other_words_are_others)
{
    static const struct pair p[] = {
        {"What does resume mean", "What does r\xC3\xA9sum\xC3\xA9 mean", "identifier"},
        {"Where is the cafe?", "Where is the caf\xC3\xA9?", NULL},
        {"Flights to Zurich", "Flights to Z\xC3\xBCrich", NULL},
        {"Is Polish required", "Is polish required", "identifier"},
        {"What is AIDS", "What is aids", "identifier"},
        {"Is Windows included?", "Is windows included?", "identifier"},
        {"Is Windows included?", "is windows included", NULL},
        {"Is the Password Too Short?", "Is the password too short?", NULL},
        {"What does :) mean", "What does :( mean", "identifier"},
        {"How do I return this :D", "How do I return this?", NULL},
        {"What is :D", "What is D", ""},
        {"Opening hours Mon\xE2\x80\x93"
         "Fri",
         "Opening hours Mon, Fri", "identifier"},
        {"Pages 10-20", "Pages 10, 20", "identifier"},
        {"Pages 10-20", "Pages 10 to 20", NULL},
        {"How far is it between Oslo and Bergen", "How far is it from Oslo to Bergen", ""},
        {"Do I need eggs, milk chocolate and flour", "Do I need eggs, milk, chocolate and flour",
         "identifier"},
        {"Let's eat, grandma", "Let's eat grandma", "identifier"},
        {"No, refunds are possible?", "No refunds are possible?", "identifier"},
        {"My line works but theirs doesn't, why?", "My line works, but theirs does not. Why?",
         NULL},
        {"Is the sale 3-5 May", "Is the sale 3, 5 May", "identifier"},
        {"Is 3,14 pi", "Is 314 pi", "identifier"},
        {"Is a p.o. box ok?", "Is a PO box ok?", NULL},
        {"What is a.b in Python", "What is ab in Python", "identifier"},
        {"牛奶、巧克力和面粉要吗", "牛奶巧克力和面粉要吗", "identifier"},
        {"要一间高楼层 安静的", "要一间高楼层、安静的", NULL},
    };
    CHECK_PAIRS(p);
}

TEST_MAIN()
