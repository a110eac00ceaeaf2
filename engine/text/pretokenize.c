/* pretokenize.c - see pretokenize.h: which passes make a family, which names mean it, and the walk through them. */
#include "engine/text/pretokenize.h"

#include <string.h>

#include "engine/text/pretokenize_scan.h"

struct pretokenize_family {
    pretokenize_pass *pass[PRETOKENIZE_PASSES_MAX]; /* up to the first NULL */
};

static const struct pretokenize_family gpt2 = {{pass_gpt2}}, smollm = {{pass_digits_gpt2}},
                                       llama3 = {{pass_llama3}}, jais2 = {{pass_jais2}},
                                       qwen2 = {{pass_qwen2}}, qwen35 = {{pass_qwen35}},
                                       ufakzeka = {{pass_plain_qwen2}},
                                       seed_coder = {{pass_seed_coder}},
                                       laguna = {{pass_newline_run, pass_qwen2}},
                                       minicpm5 = {{pass_numbers_to_three, pass_minicpm5}},
                                       exaone_moe = {{pass_exaone_moe}}, gpt4o = {{pass_gpt4o}},
                                       tekken = {{pass_tekken}},
                                       youtu = {{pass_scripts_youtu, pass_gpt4o_single}},
                                       tiny_aya = {{pass_bounded_decimals, pass_decimal_groups,
                                                    pass_gpt4o}};
static const struct pretokenize_family
    deepseek_llm = {{pass_newline, pass_deepseek_letters, pass_deepseek_marks, pass_spaces_at_end,
                     pass_han_hangul, pass_numbers}},
    deepseek_coder = {{pass_newline, pass_letters, pass_puncts, pass_han_hangul, pass_number}},
    deepseek3 = {{pass_numbers_to_three, pass_kana_han, pass_deepseek3}},
    spark = {{pass_number, pass_kana_han, pass_spark}},
    afmoe = {{pass_numbers, pass_numbers_from_right, pass_asian, pass_deepseek3}},
    falcon = {{pass_falcon_marks, pass_gpt2, pass_ascii_triple}}, bloom = {{pass_bloom}},
    viking = {{pass_bloom, pass_number}};

enum { NFC = 1, WHOLE = 2, BOS = 4 };
static const struct {
    const char *name;
    const struct pretokenize_family *family;
    int flags;
} names[] = {
    {"gpt-2", &gpt2, 0},
    {"phi-2", &gpt2, 0},
    {"mpt", &gpt2, 0},
    {"olmo", &gpt2, 0},
    {"jais", &gpt2, 0},
    {"trillion", &gpt2, 0},
    {"gigachat", &gpt2, 0},
    {"mellum", &gpt2, 0},
    {"a.x-4.0", &gpt2, 0},
    {"exaone4", &gpt2, 0},
    {"modern-bert", &gpt2, 0},
    {"roberta-bpe", &gpt2, 0},
    {"jina-es", &gpt2, 0},
    {"jina-de", &gpt2, 0},
    {"jina-v2-es", &gpt2, 0},
    {"jina-v2-de", &gpt2, 0},
    {"jina-v1-en", &gpt2, 0},
    {"jina-v2-code", &gpt2, 0},
    {"granite-docling", &gpt2, 0},
    {"smollm", &smollm, 0},
    {"starcoder", &smollm, 0},
    {"refact", &smollm, 0},
    {"command-r", &smollm, 0},
    {"codeshell", &smollm, 0},
    {"exaone", &smollm, 0},
    {"minerva-7b", &smollm, 0},
    {"mellum2", &smollm, 0},
    {"llama-bpe", &llama3, WHOLE | BOS},
    {"llama3", &llama3, WHOLE | BOS},
    {"llama-v3", &llama3, WHOLE | BOS},
    {"falcon3", &llama3, WHOLE | BOS},
    {"falcon-h1", &llama3, WHOLE | BOS},
    {"pixtral", &llama3, WHOLE | BOS},
    {"midm-2.0", &llama3, WHOLE | BOS},
    {"lfm2", &llama3, WHOLE | BOS},
    {"jina-v5-nano", &llama3, WHOLE | BOS},
    {"glm4", &llama3, WHOLE},
    {"glm5", &llama3, WHOLE},
    {"chatglm-bpe", &llama3, 0},
    {"dbrx", &llama3, 0},
    {"smaug-bpe", &llama3, 0},
    {"jais-2", &jais2, 0},
    {"qwen2", &qwen2, NFC},
    {"kormo", &qwen2, 0},
    {"f2llmv2", &qwen2, NFC},
    {"megrez", &qwen2, 0},
    {"deepseek-r1-qwen", &qwen2, 0},
    {"stablelm2", &qwen2, 0},
    {"hunyuan", &qwen2, 0},
    {"solar-open", &qwen2, 0},
    {"grok-2", &qwen2, 0},
    {"bailingmoe", &qwen2, 0},
    {"bailingmoe2", &qwen2, 0},
    {"llada-moe", &qwen2, 0},
    {"qwen35", &qwen35, NFC},
    {"ufakzeka", &ufakzeka, 0},
    {"seed-coder", &seed_coder, 0},
    {"laguna", &laguna, 0},
    {"minicpm5", &minicpm5, WHOLE},
    {"exaone-moe", &exaone_moe, 0},
    {"gpt-4o", &gpt4o, 0},
    {"llama4", &gpt4o, 0},
    {"kanana2", &gpt4o, 0},
    {"talkie", &gpt4o, 0},
    {"minimax-m2", &gpt4o, 0},
    {"granite-embed-multi-97m", &gpt4o, WHOLE},
    {"tiny_aya", &tiny_aya, 0},
    {"cohere2moe", &tiny_aya, 0},
    {"tekken", &tekken, WHOLE},
    {"youtu", &youtu, WHOLE},
    {"deepseek-llm", &deepseek_llm, 0},
    {"deepseek-coder", &deepseek_coder, 0},
    {"deepseek-v3", &deepseek3, 0},
    {"hunyuan-dense", &deepseek3, 0},
    {"hy_v4", &deepseek3, 0},
    {"joyai-llm", &deepseek3, 0},
    {"spark2_5", &spark, 0},
    {"afmoe", &afmoe, 0},
    {"falcon", &falcon, 0},
    {"bloom", &bloom, 0},
    {"poro-chat", &bloom, 0},
    {"gpt3-finnish", &bloom, 0},
    {"viking", &viking, 0},
};

size_t pretokenize_names(void)
{
    return sizeof names / sizeof names[0];
}

enum err pretokenize_rule_of(const char *name, struct pretokenize_rule *out)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i].name)) continue;
        *out = (struct pretokenize_rule){names[i].family, names[i].flags & NFC,
                                         names[i].flags & WHOLE, names[i].flags & BOS};
        return OK;
    }
    return ERR_UNSUPPORTED;
}

void pretokenize_start(struct pretokenize_walk *w, const struct pretokenize_family *family,
                       struct str text)
{
    *w = (struct pretokenize_walk){.family = family, .text = text};
}

/* End of the pass's piece at `at`: its match, or what lies before its next one. */
static size_t piece_end(pretokenize_pass *pass, struct str t, size_t from, size_t at)
{
    for (size_t i = at, retry; i < t.n; i = retry) {
        uint32_t code;
        retry = i + unicode_next(t, i, &code);
        size_t end = pass(t, from, i, &retry);
        if (end) return i == at ? end : i;
    }
    return t.n;
}

bool pretokenize_next(struct pretokenize_walk *w, struct str *word)
{
    if (w->at >= w->text.n) return false;
    size_t from = 0, end = w->text.n; /* of the piece that the pass before has left */
    for (int k = 0; k < PRETOKENIZE_PASSES_MAX && w->family->pass[k]; k++) {
        if (w->at >= w->piece[k].end) {
            w->piece[k].from = w->at;
            w->piece[k].end =
                piece_end(w->family->pass[k], (struct str){w->text.p, end}, from, w->at);
        }
        from = w->piece[k].from;
        end = w->piece[k].end;
    }
    *word = (struct str){w->text.p + w->at, end - w->at};
    w->at = end;
    return true;
}
