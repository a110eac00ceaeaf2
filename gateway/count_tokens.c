/* count_tokens.c - POST /v1/messages/count_tokens: how many tokens a Messages request's prompt has. Exact where the model's tokenizer and
 * template are known here (stage "prompt"), else the estimate limits go by; x-deja-tokens says which. Nothing is sent anywhere.
 * Threading: the loop's thread. */
#include "gateway/prompt_tokens.h"
#include "gateway/reply.h"
#include "gateway/token_estimate.h"

enum step count_tokens_answer(struct exchange *x)
{
    struct buf body;
    int64_t n = x->prompt ? (int64_t)x->prompt->list.n : token_estimate_prompt(&x->req);
    buf_init(&body, 64);
    buf_printf(&body, "{\"input_tokens\":%lld}", (long long)n);
    http_set_header(x->r, "x-deja-tokens", x->prompt ? STR("exact") : STR("estimate"));
    reply_body(x, 200, "application/json", buf_view(&body));
    buf_fini(&body);
    return STEP_DONE;
}
