/* Goal: a row without a number fails its choice alone, wherever in a draft it stands, and what was said of the draft before it is kept and
 * counted. Method: the real step thread over a pretended model, on the host and on a device that samples, whose rows of one position
 * are broken; a draft of three tokens, all right, so that the broken row is known. */
#include "tests/unit/engine/pretend_device.h"

enum { DRAFTED = 3, PROMPT = 10 };

/* The prompt ends at PROMPT - 1, so the first token is computed at PROMPT, its drafts behind it: a row broken k places behind it comes
 * after k right drafts. */
static void fail_after(struct engine *g, struct pretend *p, int n_right, const char *how)
{
    static struct client broken, other;
    int32_t prompt[PROMPT], text[PROMPT + 8];
    struct engine_stats st;
    memset(&broken, 0, sizeof broken), memset(&other, 0, sizeof other);
    make_prompt(prompt, PROMPT, 0, 5);
    memcpy(text, prompt, sizeof prompt);
    for (int i = 0; i <= n_right; i++)
        text[PROMPT + i] = pretend_says(text, PROMPT + i);
    p->right = DRAFTED;
    p->broken_at = PROMPT + n_right;
    REQUIRE(ask(g, &broken, prompt, PROMPT, 20) == OK && ask(g, &other, prompt, 2, 6) == OK);
    REQUIRE(wait_ended(&broken) && wait_ended(&other));
    const struct heard *h = &broken.choice[0];
    CHECK_AT(h->end.finish == ENGINE_FAILED && h->ends == 1, "%s", how);
    CHECK_Z(h->end.error, "the model gave no finite logit");
    CHECK_INT(h->end.completion_tokens, 1 + n_right);
    CHECK_AT(h->n == 1 + n_right && !memcmp(h->text, text + PROMPT, (size_t)h->n * sizeof *text),
             "%s: another text", how);
    CHECK_AT(h->end.drafted_tokens == DRAFTED && h->end.accepted_tokens == n_right,
             "%s: %d of %d accepted, not %d", how, h->end.accepted_tokens, h->end.drafted_tokens,
             n_right);
    CHECK_INT(other.choice[0].end.finish, ENGINE_LENGTH);
    CHECK_INT(other.choice[0].end.completion_tokens, 6);
    uint64_t until = clock_ms() + 20000;
    do
        engine_stats(g, &st);
    while (st.blocks_used && clock_ms() < until);
    CHECK_INT(st.blocks_used, 0);
    CHECK_INT(st.accepted_tokens, n_right + other.choice[0].end.accepted_tokens);
    CHECK_INT(st.failed, 1);
}

static const struct engine_sizes sizes = {.draft_rows = 12, .prefix_caching = true};

TEST(a_broken_row_fails_its_choice_behind_every_accepted_draft_on_the_host)
{
    for (int n_right = 0; n_right <= DRAFTED; n_right++) {
        struct pretend p;
        struct engine *g = open_engine(&p, sizes);
        fail_after(g, &p, n_right, "host");
        shut(g, &p);
    }
}

TEST(a_broken_row_fails_its_choice_behind_every_accepted_draft_on_a_device)
{
    static struct pretend_device d;
    for (int n_right = 0; n_right <= DRAFTED; n_right++) {
        struct engine *g = open_on_device(&d, sizes);
        fail_after(g, &d.model, n_right, "device");
        engine_close(g);
        fake_kv_fini(&d.model.kv);
    }
}

TEST_MAIN()
