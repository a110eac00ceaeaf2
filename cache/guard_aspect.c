/* guard_aspect.c - guards over what grammar alone says of a deed: done, under way, wished for, or asked how to do; something that befell
 * the asker against something he means to do; what is not required against what is not allowed. Words of grammar carry no content, so
 * two questions may share every word that does and still want other answers. All are hard where most of the content is the same. Pure. */
#include "cache/guard_rules.h"

/* The unit a token begins with; n_units when its text was made while reading. */
static size_t unit_of(const struct guard_text *t, const struct guard_token *k)
{
    size_t i = 0;
    while (i < t->n_units && t->units[i].text.p != k->text.p)
        i++;
    return i;
}

/* ---- English: a verb by what stands before it ---- */

enum deed { DEED_OTHER, DEED_DONE, DEED_WISHED, DEED_ASKED };

static const char *const doers[] = {"i", "we", "he", "she", "they", NULL}, *const have[] = {
                                                                               "have", "has", "had",
                                                                               "having", NULL};

/* Paid, sent, cancelled; also reset and put, which behind "I" are what was done. */
static bool looks_done(struct str s)
{
    static const char *const past[] = {
        "reset", "put",   "cut",  "set",     "hit",    "quit",   "shut",   "split",   "went",
        "saw",   "took",  "gave", "came",    "began",  "chose",  "wrote",  "broke",   "drove",
        "ate",   "drank", "flew", "brought", "caught", "taught", "told",   "kept",    "lent",
        "spent", "built", "held", "forgot",  "froze",  "left",   "chosen", "written", NULL};
    bool eed = str_ends(s, STR("eed")) && !str_eqz(s, "agreed") && !str_eqz(s, "freed") &&
               !str_eqz(s, "guaranteed");
    return !eed && (guard_is_participle(s) || guard_one_of(s, past));
}

static size_t before_adverbs(const struct guard_text *t, size_t i)
{
    static const char *const adverbs[] = {"already", "just", "also",  "recently", "finally",
                                          "now",     "even", "still", "really",   "not",
                                          "never",   "ever", "only",  NULL};
    while (i > 0 && !t->units[i].clause_start && guard_unit_in(t, i - 1, adverbs))
        i--;
    return i;
}

static enum deed deed_behind_to(const struct guard_text *t, size_t to)
{
    static const char *const wishes[] = {"want",   "wants",  "wanted", "like", "wish",
                                         "need",   "needs",  "going",  "plan", "planning",
                                         "trying", "hoping", "intend", NULL};
    size_t i = before_adverbs(t, to);
    if (!i) return DEED_OTHER;
    if (guard_unit_is(t, i - 1, "how")) return DEED_ASKED;
    return guard_unit_in(t, i - 1, wishes) ? DEED_WISHED : DEED_OTHER;
}

/* Unit u is the verb. */
static enum deed deed_of(const struct guard_text *t, size_t u)
{
    static const char *const helpers[] = {"do",   "did", "can",   "could", "should",
                                          "does", "may", "would", "will",  "must",
                                          "have", "has", "had",   "shall", NULL};
    static const char *const asking[] = {"do", "can", "could", "should", "would", "shall", NULL};
    if (u >= t->n_units || t->units[u].clause_start) return DEED_OTHER;
    size_t i = before_adverbs(t, u);
    if (!i || t->units[i].clause_start) return DEED_OTHER;
    if (guard_unit_is(t, i - 1, "to")) return deed_behind_to(t, i - 1);
    if (guard_unit_in(t, i - 1, have)) return looks_done(t->units[u].text) ? DEED_DONE : DEED_OTHER;
    if (!guard_unit_in(t, i - 1, doers)) return DEED_OTHER;
    bool helped = i > 1 && !t->units[i - 1].clause_start && guard_unit_in(t, i - 2, helpers);
    if (i > 1 && !t->units[i - 1].clause_start && guard_unit_is(t, i - 2, "how")) return DEED_ASKED;
    if (!helped) return looks_done(t->units[u].text) ? DEED_DONE : DEED_OTHER;
    if (guard_unit_in(t, i - 2, have)) return looks_done(t->units[u].text) ? DEED_DONE : DEED_OTHER;
    bool how = i > 2 && guard_unit_is(t, i - 3, "how") && guard_unit_in(t, i - 2, asking);
    return how ? DEED_ASKED : DEED_OTHER;
}

/* I paid the bill; I want to pay it, how do I pay it. */
static bool english_deed_differs(const struct comparison *c, struct str *a, struct str *b)
{
    for (size_t i = 0; i < c->a->n; i++) {
        size_t j = c->align.partner[i];
        if (j >= c->b->n || c->a->tokens[i].kind != GT_WORD) continue;
        enum deed x = deed_of(c->a, unit_of(c->a, &c->a->tokens[i])),
                  y = deed_of(c->b, unit_of(c->b, &c->b->tokens[j]));
        if (!x || !y || x == y || (x != DEED_DONE && y != DEED_DONE)) continue;
        *a = c->a->tokens[i].text;
        *b = c->b->tokens[j].text;
        return true;
    }
    return false;
}

/* "Could I have paid": what did not happen. */
static bool is_counterfactual(const struct guard_text *t)
{
    static const char *const modals[] = {"could", "should", "would", "might", "must", NULL};
    for (size_t i = 0; i + 2 < t->n_units; i++) {
        size_t at = i + 1;
        if (!guard_unit_in(t, i, modals)) continue;
        while (at < i + 3 && !guard_unit_is(t, at, "have"))
            at++;
        if (guard_unit_is(t, at, "have") && at + 1 < t->n_units &&
            looks_done(t->units[at + 1].text))
            return true;
    }
    return false;
}

static bool says(const struct guard_text *t, const char *word)
{
    for (size_t i = 0; i < t->n_units; i++)
        if (str_eqz(t->units[i].text, word)) return true;
    return false;
}

/* Still open, open yet: one expects an end, the other a beginning. "Still not" is "not yet". */
static bool still_differs(const struct guard_text *a, const struct guard_text *b)
{
    if (a->negations || b->negations) return false;
    bool still_a = says(a, "still"), still_b = says(b, "still"), yet_a = says(a, "yet"),
         yet_b = says(b, "yet");
    return (still_a && !yet_a && yet_b && !still_b) || (still_b && !yet_b && yet_a && !still_a);
}

/* ---- Chinese: what stands around the verb ---- */

/* 退了, 办过, 已经: not 太贵了, 用不了, 了解, 过期. */
static bool chinese_is_done(const struct guard_text *t)
{
    static const char *const no_end[] = {"解", "断", "如", NULL}, *const degree[] = {
                                                                      "太", "不", "极", "最",
                                                                      "要", "快", "别", NULL};
    static const char *const not_before_guo[] = {"通", "超", "经", "不", "难", "透",
                                                 "路", "错", "越", "胜", NULL};
    static const char *const not_behind_guo[] = {
        "期", "程", "敏", "户", "年", "节", "关", "来", "去", "滤", "重", "高", "大", "多", "少",
        "后", "夜", "境", "磅", "海", "低", "长", "载", "量", "热", "山", "桥", "分", NULL};
    for (size_t i = 1; i < t->n_units; i++) {
        const struct guard_unit *u = &t->units[i];
        if (u->kind != GU_HAN || u->clause_start) continue;
        bool next_is_new = i + 1 >= t->n_units || t->units[i + 1].clause_start;
        if (str_eqz(u->text, "了") && (next_is_new || !guard_unit_in(t, i + 1, no_end))) {
            bool denied = false;
            for (size_t k = i; k-- > 0 && k + 4 > i && !denied;
                 denied = denied || guard_unit_in(t, k, degree))
                if (t->units[k + 1].clause_start) break;
            if (!denied) return true;
        }
        if (str_eqz(u->text, "过") && !guard_unit_in(t, i - 1, not_before_guo) &&
            (next_is_new || !guard_unit_in(t, i + 1, not_behind_guo)))
            return true;
        if (str_eqz(u->text, "经") && guard_unit_is(t, i - 1, "已")) return true;
    }
    return false;
}

/* 我想退, 我要退, 打算退 */
static bool chinese_is_wished(const struct guard_text *t)
{
    static const char *const asking[] = {"问", "知", "了", "请", "咨", "不", "是", "求", NULL},
                             *const who[] = {"我", "们", "他", "她", "想", "也", NULL};
    for (size_t i = 0; i < t->n_units; i++) {
        bool first = i == 0 || t->units[i].clause_start;
        if ((guard_unit_is(t, i, "想") || guard_unit_is(t, i, "要")) &&
            !guard_unit_in(t, i + 1, asking) && (first || guard_unit_in(t, i - 1, who)))
            return true;
        if ((guard_unit_is(t, i, "打") && guard_unit_is(t, i + 1, "算")) ||
            (guard_unit_is(t, i, "准") && guard_unit_is(t, i + 1, "备")))
            return true;
    }
    return false;
}

/* 怎么退, 如何退: a deed is asked for. 怎么办, 怎么处理 are not such. */
static size_t how_to_at(const struct guard_text *t)
{
    static const char *const how[] = {"怎么", "如何", "怎样", "咋", "怎么去", "要怎么", NULL};
    for (size_t i = 0; i + 1 < t->n; i++)
        if (guard_one_of(t->tokens[i].text, how) && t->tokens[i + 1].content &&
            !t->tokens[i + 1].clause_start)
            return i + 1;
    return GUARD_TOKENS_MAX;
}

static bool chinese_asks_how_to(const struct guard_text *t)
{
    return how_to_at(t) < t->n;
}

/* 正在, 仍在; 我在办: not 我在线. */
static bool chinese_is_under_way(const struct guard_text *t)
{
    static const char *const before[] = {"正", "仍", "我", "他", "她", "们", NULL},
                             *const no_verb[] = {"吗", "哪", "这", "那", "线", "家",
                                                 "职", "校", "学", "乎", "意", "于",
                                                 "内", "外", "场", "位", NULL};
    for (size_t i = 1; i + 1 < t->n_units; i++)
        if (guard_unit_is(t, i, "在") && !t->units[i].clause_start &&
            !t->units[i + 1].clause_start && guard_unit_in(t, i - 1, before) &&
            !guard_unit_in(t, i + 1, no_verb))
            return true;
    return false;
}

/* 要下班了吗, 快到了吗: not yet, but soon. */
static bool chinese_is_imminent(const struct guard_text *t)
{
    for (size_t i = 0; i + 2 < t->n_units; i++) {
        if (!guard_unit_is(t, i, "要") && !guard_unit_is(t, i, "快")) continue;
        for (size_t k = i + 2; k < t->n_units && !t->units[k].clause_start; k++)
            if (guard_unit_is(t, k, "了") && !guard_unit_is(t, k - 1, "不") &&
                !guard_unit_is(t, k - 1, "除"))
                return true;
    }
    return false;
}

/* Whatever is asked or wanted beside: then what is done is only the occasion, 办了会员想退钱. */
static bool chinese_wants_more(const struct guard_text *t)
{
    const unsigned how = 1u << GQ_HOW;
    return says(t, "想") || says(t, "要") || (t->all_questions & how);
}

static bool chinese_deed_differs(const struct guard_text *a, const struct guard_text *b)
{
    bool done_a = chinese_is_done(a), done_b = chinese_is_done(b);
    bool now_a = chinese_is_under_way(a), now_b = chinese_is_under_way(b);
    if ((now_a && !done_a && done_b && !now_b) || (now_b && !done_b && done_a && !now_a))
        return true;
    bool soon_a = chinese_is_imminent(a), soon_b = chinese_is_imminent(b);
    if ((soon_a && !soon_b && done_b) || (soon_b && !soon_a && done_a)) return true;
    bool means_a = chinese_is_wished(a) || chinese_asks_how_to(a),
         means_b = chinese_is_wished(b) || chinese_asks_how_to(b);
    return (done_a && !chinese_wants_more(a) && means_b && !done_b) ||
           (done_b && !chinese_wants_more(b) && means_a && !done_a);
}

/* "Is the bridge being closed": not "still being billed". */
static bool is_being_done(const struct guard_text *t)
{
    static const char *const be[] = {"is", "are", "am", "was", "were", NULL};
    bool be_before = false;
    for (size_t i = 0; i < t->n_units; i++) {
        if (be_before && guard_unit_is(t, i, "being")) return true;
        be_before = be_before || guard_unit_in(t, i, be);
    }
    return false;
}

/* "I used to pay cash", "I'm used to paying cash" */
enum habit { HABIT_NONE, HABIT_FORMER, HABIT_OWN };
static enum habit habit_of(const struct guard_text *t)
{
    static const char *const be[] = {"is",  "are",  "am",  "was",     "were", "be",
                                     "get", "gets", "got", "getting", NULL};
    for (size_t i = 1; i + 1 < t->n_units; i++)
        if (guard_unit_is(t, i, "used") && guard_unit_is(t, i + 1, "to"))
            return guard_unit_in(t, i - 1, be) ? HABIT_OWN : HABIT_FORMER;
    return HABIT_NONE;
}

bool guard_deed_differs(struct comparison *c)
{
    struct str a = guard_none, b = guard_none;
    if (!guard_close(c)) return false;
    if (c->a->scripts & c->b->scripts & GS_HAN) {
        if (c->out->shared < 0.6f || !chinese_deed_differs(c->a, c->b)) return false;
        return guard_refuse_hard(c->out, "tense", a, b);
    }
    enum habit habit_a = habit_of(c->a), habit_b = habit_of(c->b);
    bool habit = habit_a && habit_b && habit_a != habit_b;
    if (!habit && !english_deed_differs(c, &a, &b) && !still_differs(c->a, c->b) &&
        is_counterfactual(c->a) == is_counterfactual(c->b) &&
        !(c->out->shared >= 0.7f && is_being_done(c->a) != is_being_done(c->b)))
        return false;
    return guard_refuse_hard(c->out, "tense", a, b);
}

/* ---- what befell somebody, and how it is done ---- */

static bool asks_what_now(const struct guard_text *t)
{
    static const char *const what_now[] = {"怎么办",   "咋办",     "怎样办",   "怎么办才好",
                                           "怎么办啊", "该怎么办", "要怎么办", "应该怎么办",
                                           "如何是好", NULL};
    for (size_t i = 0; i < t->n; i++) {
        const struct guard_token *k = &t->tokens[i];
        if (!k->word || k->word->question != GQ_HOW) continue;
        bool to = i + 1 < t->n && str_eqz(t->tokens[i + 1].text, "to");
        if (guard_one_of(k->text, what_now) ||
            (str_starts(k->text, STR("what")) && !to && !str_ends(k->text, STR("to"))))
            return true;
    }
    return false;
}

/* The same deed, also in another form: freeze, frozen. */
static bool same_deed(const struct comparison *c, bool b_asks, size_t event, size_t act)
{
    const struct guard_token *x = &(b_asks ? c->a : c->b)->tokens[event],
                             *y = &(b_asks ? c->b : c->a)->tokens[act];
    if (x->word && y->word && x->word->state && x->word->state == y->word->state) return true;
    return guard_tokens_equal(x, y);
}

static bool english_event_differs(const struct comparison *c, bool b_asks)
{
    const struct guard_text *event = b_asks ? c->a : c->b, *act = b_asks ? c->b : c->a;
    if (!asks_what_now(event) || asks_what_now(act)) return false;
    for (size_t j = 0; j < act->n; j++) {
        if (!act->tokens[j].content || deed_of(act, unit_of(act, &act->tokens[j])) != DEED_ASKED)
            continue;
        for (size_t i = 0; i < event->n; i++) {
            if (!event->tokens[i].content || !same_deed(c, b_asks, i, j)) continue;
            if (guard_is_done_to(event, i) ||
                deed_of(event, unit_of(event, &event->tokens[i])) == DEED_DONE)
                return true;
        }
    }
    return false;
}

/* What befalls one more often than one does it: 账户冻结怎么办. */
static bool chinese_befalls(const struct guard_text *t)
{
    static const char *const befalls[] = {"冻结", "锁定", "停机", "拉黑", "封号", "禁言",
                                          "断网", "限制", "锁",   "封",   NULL};
    for (size_t i = 0; i + 1 < t->n; i++)
        if (guard_one_of(t->tokens[i].canon, befalls) && t->tokens[i + 1].word &&
            t->tokens[i + 1].word->question == GQ_HOW)
            return true;
    return false;
}

/* 账号注销了怎么办 */
static bool chinese_tells_event(const struct guard_text *t)
{
    return asks_what_now(t) && (chinese_is_done(t) || says(t, "被") || chinese_befalls(t));
}

static bool chinese_asks_act(const struct guard_text *t)
{
    return chinese_asks_how_to(t) && !asks_what_now(t) && !chinese_is_done(t) && !says(t, "被");
}

/* The deed that is asked for, right behind "how", is also what befell. */
static bool same_chinese_deed(const struct comparison *c, bool b_asks)
{
    const struct guard_text *act = b_asks ? c->b : c->a;
    size_t verb = how_to_at(act);
    for (size_t i = 0; i < c->a->n && verb < act->n; i++)
        if (b_asks ? c->align.partner[i] == verb : (i == verb && c->align.partner[i] < c->b->n))
            return true;
    return false;
}

bool guard_event_differs(struct comparison *c)
{
    bool differ = false;
    if (!guard_close(c)) return false;
    for (int side = 0; side < 2 && !differ; side++) {
        const struct guard_text *event = side ? c->b : c->a, *act = side ? c->a : c->b;
        if (c->a->scripts & c->b->scripts & GS_HAN)
            differ = chinese_tells_event(event) && chinese_asks_act(act) &&
                     (c->out->shared >= 0.7f || same_chinese_deed(c, !side));
        else
            differ = english_event_differs(c, !side);
    }
    return differ && guard_refuse_hard(c->out, "question", STR("what now"), STR("how to"));
}

/* ---- not required, not allowed ---- */

enum { FREED = 1, BARRED = 2 };

static unsigned english_duty(const struct guard_text *t)
{
    static const char *const duty[] = {"have",    "need",      "required",   "necessary",
                                       "obliged", "mandatory", "compulsory", NULL};
    static const char *const leave[] = {"must", "may", "can", NULL}, *const given[] = {"allowed",
                                                                                       "permitted",
                                                                                       NULL};
    unsigned found = 0;
    for (size_t i = 0; i < t->n_units; i++) {
        bool no = guard_unit_is(t, i, "no");
        if (!guard_unit_is(t, i, "not") && !no) continue;
        bool to = !guard_unit_is(t, i + 1, "have") || guard_unit_is(t, i + 2, "to");
        if (guard_unit_in(t, i + 1, duty) && to) found |= FREED;
        if (!no && i && guard_unit_is(t, i - 1, "need")) found |= FREED;
        if (!no && i && guard_unit_in(t, i - 1, leave) && !t->units[i - 1].clause_start)
            found |= BARRED;
        if (guard_unit_in(t, i + 1, given)) found |= BARRED;
    }
    return found;
}

static unsigned chinese_duty(const struct guard_text *t)
{
    static const char *const freed[] = {"用", "必", "需", NULL}, *const barred[] = {
                                                                     "能", "可", "准", "许",
                                                                     "让", "得", NULL};
    unsigned found = 0;
    for (size_t i = 0; i + 1 < t->n_units; i++) {
        bool no = guard_unit_is(t, i, "不"), none = guard_unit_is(t, i, "无");
        if (guard_unit_is(t, i, "禁") && guard_unit_is(t, i + 1, "止")) found |= BARRED;
        if (none && (guard_unit_is(t, i + 1, "需") || guard_unit_is(t, i + 1, "须")))
            found |= FREED;
        if (!no || t->units[i + 1].clause_start) continue;
        bool a_not_a = i && str_eq(t->units[i - 1].text, t->units[i + 1].text); /* 能不能 */
        bool twice = guard_unit_is(t, i + 2, "不");                             /* 不得不 */
        if (a_not_a || twice) continue;
        bool behind_verb = guard_unit_is(t, i + 1, "得") && i && !t->units[i].clause_start &&
                           guard_content_at(t, i - 1) < t->n; /* 舍不得 */
        if (guard_unit_in(t, i + 1, freed)) found |= FREED;
        if (guard_unit_in(t, i + 1, barred) && !behind_verb) found |= BARRED;
    }
    return found;
}

bool guard_duty_differs(struct comparison *c)
{
    bool chinese = c->a->scripts & c->b->scripts & GS_HAN;
    if (!guard_close(c)) return false;
    unsigned a = chinese ? chinese_duty(c->a) : english_duty(c->a),
             b = chinese ? chinese_duty(c->b) : english_duty(c->b);
    if (!((a == FREED && b == BARRED) || (a == BARRED && b == FREED))) return false;
    return guard_refuse_hard(c->out, "modality", STR("not required"), STR("not allowed"));
}
