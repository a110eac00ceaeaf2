/* bench_text.c - speed of the tokenizers and of chat templates on this machine, CPU time of one thread: MB/s of English, Chinese and C
 * with a checksum of the ids, renderings a second of a conversation. Usage: bench_text MODEL.gguf.. Best of the repetitions of
 * half a second: machines are shared. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/mem.h"
#include "engine/model/gguf.h"
#include "engine/model/tokenizer_load.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"

enum { TEXT_BYTES = 1 << 20, TURNS = 20 };
static const double budget_s = 0.5;

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* A file of the project, repeated to a megabyte. */
static struct str text_of(const char *path)
{
    char *bytes = xmalloc(TEXT_BYTES);
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(bytes, 1, TEXT_BYTES, f) : 0;
    if (!n) {
        fprintf(stderr, "bench_text: %s cannot be read; run it in the project's folder\n", path);
        exit(1);
    }
    fclose(f);
    for (size_t at = n; at < TEXT_BYTES; at++)
        bytes[at] = bytes[at - n];
    return (struct str){bytes, TEXT_BYTES};
}

static void bench_tokenizer(const struct tokenizer *t, const char *what, const char *path)
{
    struct str text = text_of(path);
    double best = 1e9, spent = 0;
    size_t n = 0;
    uint32_t sum = 0;
    while (spent < budget_s) {
        struct token_list l;
        token_list_init(&l, TEXT_BYTES);
        double start = cpu_s();
        tokenizer_encode(t, text, 0, &l);
        double took = cpu_s() - start;
        spent += took;
        if (took < best) best = took;
        n = l.n;
        sum = 2166136261u;
        for (size_t i = 0; i < l.n; i++)
            sum = (sum ^ (uint32_t)l.ids[i]) * 16777619u;
        token_list_fini(&l);
    }
    printf("  tokenize %-8s %7.1f MB/s %8zu tokens, checksum %08x\n", what,
           (double)text.n / best / 1e6, n, sum);
    mem_free((char *)text.p);
}

static void bench_template(const struct chat_template *t)
{
    json_t *messages = json_array();
    for (int i = 0; i < TURNS; i++)
        json_array_append_new(
            messages, json_pack("{s:s,s:s}", "role", i % 2 ? "assistant" : "user", "content",
                                "A sentence of some words, as people write them."));
    struct chat_render_options o = {.messages = messages,
                                    .add_generation_prompt = true,
                                    .bos_token = "",
                                    .eos_token = "",
                                    .text_max = TEXT_BYTES,
                                    .steps_max = 1 << 20};
    double best = 1e9, spent = 0;
    struct errmsg e = {0};
    while (spent < budget_s) {
        struct chat_rendering r;
        double start = cpu_s();
        if (chat_template_render(t, &o, &r, &e)) break;
        double took = cpu_s() - start;
        spent += took;
        if (took < best) best = took;
        chat_rendering_fini(&r);
    }
    if (spent < budget_s)
        printf("  render: %s\n", e.text);
    else
        printf("  render %d turns %8.0f /s\n", TURNS, 1 / best);
    json_decref(messages);
}

int main(int argc, char **argv)
{
    struct errmsg e = {0};
    if (argc < 2) {
        fprintf(stderr, "usage: bench_text MODEL.gguf..\n");
        return 2;
    }
    for (int i = 1; i < argc; i++) {
        struct gguf *g;
        struct tokenizer *t;
        struct chat_template *template;
        double start = cpu_s();
        if (gguf_open(&g, argv[i], &e) || tokenizer_from_gguf(&t, g, &e)) {
            fprintf(stderr, "bench_text: %s\n", e.text);
            return 1;
        }
        printf("%s: %d tokens, read in %.0f ms\n", argv[i], tokenizer_size(t),
               (cpu_s() - start) * 1e3);
        bench_tokenizer(t, "English", "docs/speed.md");
        bench_tokenizer(t, "Chinese", "tests/data/faq_zh.jsonl");
        bench_tokenizer(t, "C", "engine/text/tokenizer.c");
        if (chat_template_from_gguf(&template, g, NULL, &e) == OK) {
            bench_template(template);
            chat_template_free(template);
        }
        tokenizer_free(t);
        gguf_close(g);
    }
    return 0;
}
