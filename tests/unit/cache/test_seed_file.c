/* test_seed_file.c - goal: a file of answers is read as written, in both forms, and every mistake in it is told with its line. Method:
 * small files, and what must be found in the problems. */
#include "cache/seed_file.h"

#include "tests/check.h"

static const struct seed_defaults D = {{"shop", 4}, {"*", 1}, {"", 0}, 60};

static bool has(const struct seed_file *f, const char *part)
{
    return str_find(buf_view(&f->problems), str_of(part)) >= 0;
}

TEST(a_line_of_json_is_an_answer_with_the_defaults_where_it_says_nothing)
{
    struct seed_file f;
    seed_file_read(&f,
                   STR("{\"q\":\" a? "
                       "\",\"answer\":\"A\",\"same\":[\"b\",\"c\"],\"near\":[\"d\"],\"tags\":\"x, "
                       "y\",\"lang\":\"en\"}\n\n{\"question\":\"e\",\"answer\":\"E\",\"namespace\":"
                       "\"\",\"tenant\":\"t\","
                       "\"model\":\"m\",\"ttl\":0,\"tags\":[\"z\"],\"wordings\":null}"),
                   &D);
    REQUIRE(f.n == 2 && !f.n_problems);
    CHECK_STR(f.items[0].question, "a?");
    CHECK_STR(f.items[0].answer, "A");
    CHECK_STR(f.items[0].ns, "shop");
    CHECK_STR(f.items[0].tenant, "*");
    CHECK_Z(f.items[0].tags, "x,y,lang:en");
    CHECK(f.items[0].n_wordings == 2 && f.items[0].n_near == 1 && f.items[0].ttl_s == 60);
    CHECK_STR(f.items[0].wordings[1], "c");
    CHECK(f.items[1].line == 3 && f.items[1].ttl_s == 0 && !f.items[1].n_wordings &&
          !f.items[1].ns.n);
    CHECK_STR(f.items[1].tenant, "t");
    CHECK_STR(f.items[1].model, "m");
    CHECK_Z(f.items[1].tags, "z");
    seed_file_fini(&f);
}

TEST(a_csv_says_the_same_with_quotes_line_breaks_and_lists)
{
    struct seed_file f;
    seed_file_read(&f,
                   STR("\xef\xbb\xbfquestion,answer,wordings,tags,ttl\r\n\"a, or b?\",\"say "
                       "\"\"A\"\"\nor B\",one| two "
                       "|,\"x,y\",5\r\n\r\ne,E,,,\r\n"),
                   &D);
    REQUIRE(f.n == 2 && !f.n_problems);
    CHECK_STR(f.items[0].question, "a, or b?");
    CHECK_STR(f.items[0].answer, "say \"A\"\nor B");
    CHECK(f.items[0].n_wordings == 2 && f.items[0].ttl_s == 5 && f.items[0].line == 2);
    CHECK_STR(f.items[0].wordings[1], "two");
    CHECK_Z(f.items[0].tags, "x,y");
    CHECK(f.items[1].line == 5 && f.items[1].ttl_s == 60 && !f.items[1].n_wordings);
    seed_file_fini(&f);
}

TEST(each_mistake_is_told_with_its_line_and_what_would_be_right)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"", "1: the file is empty"},
        {"question,answer,answer\na,A,B", "1: two columns are the answer"},
        {"{\"question\":\"\xff\"}", "1: the file is not UTF-8"},
        {"{\"question\":\"a\",\"answer\":\"A\"}\n{\"question\":", "2: "},
        {"{\"answer\":\"A\"}", "1: question: missing or empty"},
        {"{\"question\":\"a\",\"answer\":\" \"}", "1: answer: missing or empty"},
        {"{\"question\":\"a\",\"answer\":7}", "1: answer: expected a string, not a number"},
        {"{\"question\":\"a\",\"answer\":\"A\",\"wording\":[]}", "did you mean \"wordings\"?"},
        {"{\"question\":\"a\",\"answer\":\"A\",\"nonsense\":1}", "is unknown; known are question"},
        {"{\"question\":\"a\",\"q\":\"a\",\"answer\":\"A\"}", "q and question are the same"},
        {"{\"question\":\"a\",\"answer\":\"A\",\"near\":\"b\"}",
         "near: expected an array of strings, not a string"},
        {"{\"question\":\"a\",\"answer\":\"A\",\"near\":[\"\"]}",
         "near[0]: expected a string of 1 to 1024 bytes"},
        {"{\"question\":\"a\",\"answer\":\"A\",\"ttl\":-1}", "ttl: expected whole seconds"},
        {"{\"question\":\"a\",\"answer\":\"A\",\"ttl\":\"soon\"}", "ttl: expected whole seconds"},
        {"{\"question\":\"a\",\"answer\":\"A\",\"tags\":[\"x,y\"]}", "must not hold a comma"},
        {"{\"question\":\"a\",\"answer\":\"A\",\"near\":[\"a\"]}",
         "near[0]: is a wording of this very question"},
        {"{\"question\":\"a\",\"answer\":\"A\",\"wordings\":[\"a\"]}",
         "a wording is given twice, or is the question itself"},
        {"{\"question\":\"a\",\"answer\":\"A\"}\n{\"question\":\"b\",\"answer\":\"B\",\"wordings\":"
         "[\"a\"]}",
         "2: a wording reads as a question of line 1"},
        {"{\"question\":\"a\",\"answer\":\"A\",\"x\\ny\":1}", "1: \"x y\" is unknown"},
        {"question,answre\n", "did you mean \"answer\"?"},
        {"question,answer\n\"a,b", "2: a \" is never closed"},
        {"question,answer\na,b,c\n", "2: has 3 columns, the first line 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct seed_file f;
        seed_file_read(&f, str_of(cases[i].text), &D);
        CHECK_AT(f.n_problems && has(&f, cases[i].want), "case %zu: " STR_FMT, i,
                 STR_ARG(buf_view(&f.problems)));
        seed_file_fini(&f);
    }
}

TEST(the_same_text_in_another_scope_contradicts_nothing)
{
    struct seed_file f;
    seed_file_read(&f,
                   STR("{\"question\":\"a\",\"answer\":\"A\"}\n{\"question\":\"a\",\"answer\":"
                       "\"B\",\"tenant\":\"t\"}\n"
                       "{\"question\":\"a\",\"answer\":\"C\",\"namespace\":\"n\",\"near\":[\"b\"]}"
                       "\n{\"question\":\"b\",\"answer\":\"D\"}"),
                   &D);
    CHECK(f.n == 4 && !f.n_problems);
    seed_file_fini(&f);
}

TEST(many_mistakes_are_counted_and_the_first_ones_told)
{
    struct seed_file f;
    struct buf text;
    buf_init(&text, 1 << 20);
    for (int i = 0; i < 50; i++)
        buf_z(&text, "[]\n");
    seed_file_read(&f, buf_view(&text), &D);
    CHECK(f.n_problems == 50 && has(&f, "20: ") && !has(&f, "21: "));
    seed_file_fini(&f);
    buf_fini(&text);
}

TEST_MAIN()
