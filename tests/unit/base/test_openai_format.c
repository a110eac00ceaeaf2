/* Goal: the form an answer must have is read from every name it goes by, the engine refuses what it cannot keep and the gateway passes it;
 * and which tool must be called. Method: tables. */
#include "base/openai.h"
#include "tests/check.h"

#define BODY(more) "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]" more "}"
#define TOOLS ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"

static const struct {
    const char *body;
    enum openai_format_kind kind;
    const char *path;
    bool strict;
} forms[] = {
    {BODY(""), OPENAI_FORMAT_TEXT, NULL, false},
    {BODY(",\"response_format\":null"), OPENAI_FORMAT_TEXT, NULL, false},
    {BODY(",\"response_format\":{\"type\":\"text\"}"), OPENAI_FORMAT_TEXT, NULL, false},
    {BODY(",\"response_format\":{\"type\":\"json_object\"}"), OPENAI_FORMAT_JSON_OBJECT,
     "response_format", false},
    {BODY(",\"response_format\":{\"type\":\"json_object\",\"schema\":{}}"), OPENAI_FORMAT_SCHEMA,
     "response_format.schema", false},
    {BODY(",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\","
          "\"schema\":{},\"strict\":true}}"),
     OPENAI_FORMAT_SCHEMA, "response_format.json_schema.schema", true},
    {BODY(",\"response_format\":{\"type\":\"regex\",\"regex\":\"a+\"}"), OPENAI_FORMAT_REGEX,
     "response_format.regex", false},
    {BODY(",\"guided_json\":{\"type\":\"null\"}"), OPENAI_FORMAT_SCHEMA, "guided_json", false},
    {BODY(",\"guided_json\":\"{\\\"type\\\":\\\"null\\\"}\""), OPENAI_FORMAT_SCHEMA, "guided_json",
     false},
    {BODY(",\"guided_regex\":\"a+\""), OPENAI_FORMAT_REGEX, "guided_regex", false},
    {BODY(",\"guided_choice\":[\"a\",\"b\"]"), OPENAI_FORMAT_CHOICE, "guided_choice", false},
    {BODY(",\"structured_outputs\":{\"json\":\"{}\",\"regex\":null}"), OPENAI_FORMAT_SCHEMA,
     "structured_outputs.json", false},
    {BODY(",\"structured_outputs\":{\"choice\":[\"a\"]}"), OPENAI_FORMAT_CHOICE,
     "structured_outputs.choice", false},
    {BODY(",\"structured_outputs\":{\"json_object\":true}"), OPENAI_FORMAT_JSON_OBJECT,
     "structured_outputs", false},
};

TEST(the_form_is_read_from_every_name_it_goes_by)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct openai_request r;
        struct openai_error e;
        enum err code = openai_parse(&r, OPENAI_CHAT, str_of(forms[i].body), OPENAI_ENGINE, &e);
        CHECK_AT(!code, "%s: %s", forms[i].body, e.message);
        if (code) continue;
        CHECK_INT(r.format.kind, forms[i].kind);
        CHECK_INT(r.format.strict, forms[i].strict);
        if (forms[i].path) CHECK_Z(r.format.path, forms[i].path);
        if (r.format.kind == OPENAI_FORMAT_SCHEMA) CHECK(json_is_object(r.format.schema));
        if (r.format.kind == OPENAI_FORMAT_REGEX) CHECK_STR(r.format.regex, "a+");
        openai_request_fini(&r);
    }
}

static const struct {
    const char *body, *param, *message;
    bool gateway_too;
} refused[] = {
    {BODY(",\"response_format\":\"json\""), "response_format",
     "response_format: expected an object like {\"type\":\"text\"}, got a string", true},
    {BODY(",\"response_format\":{}"), "response_format",
     "response_format: type: expected a string, got nothing", true},
    {BODY(",\"response_format\":{\"type\":\"json_schema\"}"), "response_format",
     "response_format: json_schema: expected an object, got nothing", true},
    {BODY(",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\"}}"),
     "response_format",
     "response_format: json_schema.schema: expected a schema (an object), got "
     "nothing",
     false},
    {BODY(",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{},"
          "\"strict\":1}}"),
     "response_format", "response_format: json_schema.strict: expected true or false, got a number",
     false},
    {BODY(",\"response_format\":{\"type\":\"regex\"}"), "response_format",
     "response_format: regex: expected a regular expression, got nothing", false},
    {BODY(",\"guided_json\":\"{\""), "guided_json", "guided_json: not JSON: ", false},
    {BODY(",\"guided_choice\":[]"), "guided_choice",
     "guided_choice: expected an array of strings that are not empty, got an empty one", false},
    {BODY(",\"guided_choice\":[\"\"]"), "guided_choice",
     "guided_choice: expected an array of strings that are not empty, got one with something else",
     false},
    {BODY(",\"guided_grammar\":\"root ::= x\""), "guided_grammar",
     "guided_grammar: this engine knows schemas", false},
    {BODY(",\"guided_regex\":\"a\",\"guided_choice\":[\"b\"]"), "guided_choice",
     "guided_choice: a form is demanded twice", false},
    {BODY(",\"structured_outputs\":{\"grammar\":\"x\"}"), "structured_outputs",
     "structured_outputs: \"grammar\": expected json, regex, choice or json_object", false},
};

TEST(a_form_that_is_none_is_refused_with_its_place)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        for (int strict = OPENAI_GATEWAY; strict <= OPENAI_ENGINE; strict++) {
            struct openai_request r;
            struct openai_error e = {0};
            enum err code = openai_parse(&r, OPENAI_CHAT, str_of(refused[i].body),
                                         (enum openai_strict)strict, &e);
            bool want = strict == OPENAI_ENGINE || refused[i].gateway_too;
            CHECK_AT((code != OK) == want, "%s by %d: %s", refused[i].body, strict, e.message);
            if (!code) openai_request_fini(&r);
            if (!want || !code) continue;
            CHECK_Z(e.param, refused[i].param);
            CHECK_AT(!strncmp(e.message, refused[i].message, strlen(refused[i].message)), "%s",
                     e.message);
        }
}

TEST(which_tools_may_be_called)
{
    static const struct {
        const char *body;
        enum openai_tool_choice choice;
        const char *name;
        bool parallel;
    } rows[] = {
        {BODY(TOOLS), OPENAI_TOOLS_AUTO, "", true},
        {BODY(TOOLS ",\"tool_choice\":\"auto\",\"parallel_tool_calls\":false"), OPENAI_TOOLS_AUTO,
         "", false},
        {BODY(TOOLS ",\"tool_choice\":\"none\",\"parallel_tool_calls\":null"), OPENAI_TOOLS_NONE,
         "", true},
        {BODY(TOOLS ",\"tool_choice\":\"required\""), OPENAI_TOOLS_REQUIRED, "", true},
        {BODY(TOOLS ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}}"),
         OPENAI_TOOLS_NAMED, "f", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct openai_request r;
        struct openai_error e;
        CHECK_INT(openai_parse(&r, OPENAI_CHAT, str_of(rows[i].body), OPENAI_ENGINE, &e), OK);
        CHECK_INT(r.tool_choice, rows[i].choice);
        CHECK_INT(r.parallel_tool_calls, rows[i].parallel);
        CHECK_STR(r.tool_name, rows[i].name);
        openai_request_fini(&r);
    }
}

TEST_MAIN()
