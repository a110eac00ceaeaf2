/* fuzz_template.c - any bytes as a chat template: refused, or rendered within its bounds, with segments that cover the text. */
#include <jansson.h>

#include "base/mem.h"
#include "engine/text/chat_template.h"
#include "engine/text/chat_traits.h"

static const char messages_text[] =
    "[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"  "
    "h\xc3\xa9llo {{ x }} \\n b \",\"n\":[1,2.5,null,true]},"
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":\"f\","
    "\"arguments\":{\"a\":{\"b\":[]}}}}]}]";

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static json_t *messages;
    if (n > 20000) return 0;
    if (!messages) messages = json_loads(messages_text, 0, NULL);
    ASSERT(messages);
    struct chat_template *t = NULL;
    struct errmsg e = {0};
    if (chat_template_new(&t, (struct str){(const char *)bytes, n}, &e)) {
        ASSERT(e.text[0]);
        return 0;
    }
    struct chat_render_options opt = {.messages = messages,
                                      .tools = messages,
                                      .add_generation_prompt = true,
                                      .bos_token = "<s>",
                                      .eos_token = "</s>",
                                      .text_max = 20000,
                                      .steps_max = 20000};
    struct chat_rendering r;
    e.text[0] = 0;
    if (chat_template_render(t, &opt, &r, &e) == OK) {
        size_t at = 0;
        ASSERT(r.text.n <= opt.text_max);
        for (size_t i = 0; i < r.n_segments; i++) {
            ASSERT(r.segments[i].from == at && r.segments[i].n > 0);
            at += r.segments[i].n;
        }
        ASSERT(at == r.text.n);
        chat_rendering_fini(&r);
    }
    if (n < 300) chat_traits_of(t, "<s>", "</s>");
    chat_template_free(t);
    return 0;
}
