/* chat_traits.h - what a chat template does to a conversation that grows, found out by rendering small ones. A prompt that is not
 * the beginning of the next turn's prompt makes the prefix cache useless, and nobody sees it in the answers: so it is said once
 * when the model is loaded. Pure; any thread; about a dozen bounded renderings. */
#ifndef DEJA_ENGINE_TEXT_CHAT_TRAITS_H
#define DEJA_ENGINE_TEXT_CHAT_TRAITS_H
#include "base/buf.h"

struct chat_template;
struct chat_traits {
    bool dated;               /* the text depends on the clock */
    bool rewrites;            /* a prompt's text changes when another turn follows */
    bool rewrites_with_tools; /* the same, but only when there are tools */
    bool
        rewrites_answers; /* answers are not kept as they were generated: <think> parts are left out */
    /* how a message with calls must come for the template to show them; false is the usual form */
    bool arguments_as_text; /* arguments as a string of JSON, not as an object */
    bool null_content;      /* null as the content of a message that has none, not "" */
};
/* A template that cannot render the probes gets no trait. */
struct chat_traits chat_traits_of(const struct chat_template *t, const char *bos, const char *eos);
/* Appends half a sentence for each trait that costs prefix reuse; nothing when prompts only ever grow at their end. */
void chat_traits_describe(const struct chat_traits *traits, struct buf *out);

#endif
