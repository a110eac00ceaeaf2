/* judge_prompt.c - see judge_prompt.h. The examples are of the kinds that encoders get wrong: a true rewording, one word that changes the
 * answer, a detail that is added; and of the words people use: eight more of them, of both sorts, took a model of 1.5e9 weights from
 * 76 to 81 same pairs in 100 above a different one (English; Chinese 82 with both). All pairs begin with them, so a prefix cache
 * computes them once. */
#include "gateway/judge_prompt.h"

#include <math.h>
#include <string.h>

enum { EXAMPLES_MAX = 12 };
struct example {
    const char *a, *b, *verdict;
};
struct wording {
    const char *system, *first, *second, *ask;
    struct example examples[EXAMPLES_MAX]; /* up to the first without a verdict */
};

static const struct wording wordings[2][2] =
    {[JUDGE_QUESTIONS] =
         {{"You compare two questions that customers ask. Say yes only if one and the same answer "
           "is right and complete for both. A "
           "different number, product, place, time, direction, condition or a negation makes it "
           "no. "
           "Answer with one word: yes or no.",
           "A: ",
           "\nB: ",
           "\nSame answer?",
           {{"\"How do I reset my password?\"",
             "\"I forgot my password, how can I get a new one?\"", "yes"},
            {"\"How do I enable roaming?\"", "\"How do I disable roaming?\"", "no"},
            {"\"What does shipping cost?\"", "\"How much do I pay for delivery?\"", "yes"},
            {"\"Can I return shoes?\"", "\"Can I return shoes without the receipt?\"", "no"},
            {"\"How do I get a refund for a cancelled concert?\"",
             "\"gig got called off, wheres my money\"", "yes"},
            {"\"Is there parking at the museum?\"", "\"How much is parking at the museum?\"", "no"},
            {"\"Why was my claim refused?\"", "\"insurance said no to me, what was the reason\"",
             "yes"},
            {"\"How long does a visa take?\"", "\"How long is a visa valid?\"", "no"},
            {"\"Can I take my bike on the train?\"",
             "\"am i allowed 2 bring a bicycle on board pls\"", "yes"},
            {"\"How do I add a second driver?\"", "\"How do I remove the second driver?\"", "no"},
            {"\"What is the latest check-in time?\"",
             "\"arriving super late tonight, until when can i still check in\"", "yes"},
            {"\"Who pays the courier for a return?\"",
             "\"When does the courier come for a return?\"", "no"}}},
          {"你比较顾客提出的两个问题。只有当同一个答案对两个问题都正确且完整时才回答“是”。数字、产"
           "品"
           "、地点、时间、方向、条件不同，或者有否定，"
           "都回答“否”。只回答一个字：是或否。",
           "问题一：",
           "\n问题二：",
           "\n答案相同吗？",
           {{"\"怎么重置密码？\"", "\"我忘了密码，怎样设置新的？\"", "是"},
            {"\"怎么开通漫游？\"", "\"怎么关闭漫游？\"", "否"},
            {"\"运费多少钱？\"", "\"寄送要付多少费用？\"", "是"},
            {"\"鞋子能退吗？\"", "\"没有小票鞋子能退吗？\"", "否"},
            {"\"演唱会取消了怎么退钱？\"", "\"演出黄了，钱咋要回来\"", "是"},
            {"\"博物馆有停车场吗？\"", "\"博物馆停车怎么收费？\"", "否"},
            {"\"理赔为什么被拒？\"", "\"保险不赔我，啥原因啊\"", "是"},
            {"\"签证要办多久？\"", "\"签证有效期多长？\"", "否"},
            {"\"自行车能带上火车吗？\"", "\"请问可以把单车拿上车不\"", "是"},
            {"\"怎么添加第二位司机？\"", "\"怎么删除第二位司机？\"", "否"},
            {"\"最晚几点可以入住？\"", "\"今晚到得很晚，几点前还能办入住\"", "是"},
            {"\"退货快递费谁出？\"", "\"退货快递什么时候来取？\"", "否"}}}},
     [JUDGE_ANSWERS] = {
         {"You compare two answers to a customer's question. Say yes if they tell "
          "the customer the same: the same facts, numbers, steps and "
          "conditions, whatever the wording or length. Say no if they disagree. "
          "Answer with one word: yes or no.",
          "A: ",
          "\nB: ",
          "\nThe same facts?",
          {{"\"Click Forgot password on the sign-in page.\"",
            "\"On the login page choose 'Forgot password'.\"", "yes"},
           {"\"Returns are free for 30 days.\"",
            "\"You can return it free of charge within 14 days.\"", "no"},
           {"\"No, the warranty does not cover water damage.\"",
            "\"Water damage isn't covered by the warranty.\"", "yes"},
           {"\"Yes, you can cancel at any time.\"",
            "\"It cannot be cancelled once it has been sent.\"", "no"}}},
         {"你比较对同一个顾客问题的两个回答。如果它们告诉顾客的内容相同——事实、数字、"
          "步骤和条件都相同，不论措辞和长短——回答“是”。如果有矛盾，"
          "回答“否”。只回答一个字：是或否。",
          "回答一：",
          "\n回答二：",
          "\n内容相同吗？",
          {{"\"在登录页点击忘记密码。\"", "\"请在登录页面选择“忘记密码”。\"", "是"},
           {"\"30天内免费退货。\"", "\"14天之内可以免费退货。\"", "否"},
           {"\"保修不包括进水。\"", "\"进水损坏不在保修范围内。\"", "是"},
           {"\"可以随时取消。\"", "\"发货后不能取消。\"", "否"}}}}};

static void message(struct buf *out, const char *role, struct str text)
{
    buf_printf(out, "{\"role\":\"%s\",\"content\":", role);
    json_write_string(out, text);
    buf_char(out, '}');
}

static void pair(struct buf *scratch, const struct wording *w, struct str a, struct str b)
{
    buf_clear(scratch);
    buf_z(scratch, w->first);
    buf_str(scratch, a);
    buf_z(scratch, w->second);
    buf_str(scratch, b);
    buf_z(scratch, w->ask);
}

static struct str quoted(struct buf *scratch, struct str text)
{
    buf_clear(scratch);
    json_write_string(scratch, text);
    return buf_view(scratch);
}

void judge_prompt_write(struct buf *out, enum judge_task task, char language, struct str model,
                        struct str stored, struct str asked)
{
    const struct wording *w = &wordings[task][language == 'z'];
    struct buf text, a, b;
    buf_init(&text, out->max);
    buf_init(&a, out->max);
    buf_init(&b, out->max);
    buf_z(out, "{\"model\":");
    json_write_string(out, model);
    buf_z(out, ",\"messages\":[");
    message(out, "system", str_of(w->system));
    for (int i = 0; i < EXAMPLES_MAX && w->examples[i].verdict; i++) {
        pair(&text, w, str_of(w->examples[i].a), str_of(w->examples[i].b));
        buf_char(out, ',');
        message(out, "user", buf_view(&text));
        buf_char(out, ',');
        message(out, "assistant", str_of(w->examples[i].verdict));
    }
    pair(&text, w, quoted(&a, stored), quoted(&b, asked));
    buf_char(out, ',');
    message(out, "user", buf_view(&text));
    buf_z(out, "],\"max_tokens\":1,\"temperature\":0,\"logprobs\":true,\"top_logprobs\":20}");
    out->failed |= text.failed || a.failed || b.failed;
    buf_fini(&text);
    buf_fini(&a);
    buf_fini(&b);
}

/* --- reading */
/* 1 yes, -1 no, 0 neither. */
static int meaning(struct str token)
{
    static const char *const yes[] = {"yes", "y", "是", "是的", "同"}, *const no[] = {"no",  "n",
                                                                                      "not", "否",
                                                                                      "不",  "不是",
                                                                                      "不同"};
    token = str_trim(token);
    if (token.n && (token.p[token.n - 1] == '.' || token.p[token.n - 1] == ',')) token.n--;
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        if (str_ieq(token, str_of(yes[i]))) return 1;
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (str_ieq(token, str_of(no[i]))) return -1;
    return 0;
}

enum { TOKENS_READ_MAX = 100 };

enum err judge_prompt_read(const json_t *reply, double *yes, struct errmsg *e)
{
    const json_t *choice = json_array_get(json_object_get(reply, "choices"), 0),
                 *content = json_object_get(json_object_get(choice, "logprobs"), "content"),
                 *top = json_object_get(json_array_get(content, 0), "top_logprobs");
    double p[2] = {0, 0};
    if (!json_is_object(choice))
        return err_set(e, ERR_INVALID, "choices[0]: expected an object, not %s", json_kind(choice));
    for (size_t i = 0; i < json_array_size(top) && i < TOKENS_READ_MAX; i++) {
        const json_t *t = json_array_get(top, i), *logprob = json_object_get(t, "logprob");
        int m = meaning(json_member_str(t, "token"));
        if (m && json_is_number(logprob)) p[m > 0] += exp(json_number_value(logprob));
    }
    if (!json_array_size(top)) {
        struct str said = json_member_str(json_object_get(choice, "message"), "content");
        int m = meaning(said);
        if (!m)
            return err_set(e, ERR_INVALID,
                           "no log probabilities, and the word is neither yes nor no");
        p[m > 0] = 1;
    }
    if (!(p[0] + p[1] >= 0.1))
        return err_set(e, ERR_INVALID, "neither yes nor no is likely (%.3f together)", p[0] + p[1]);
    *yes = p[1] / (p[0] + p[1]);
    return OK;
}
