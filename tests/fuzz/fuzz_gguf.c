/* fuzz_gguf.c - any bytes as a model file: must be refused or read inside their bounds, by the container, the decoder's and the
 * encoder's shape checks, the chat template and the tokenizer alike; and a tokenizer that is taken must bear any text. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "engine/model/encoder.h"
#include "engine/model/gguf.h"
#include "engine/model/model_plan.h"
#include "engine/model/tokenizer_load.h"
#include "engine/text/chat_prompt.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* Texts of every alphabet, of control tokens' names, broken, and the file itself: what comes out are ids of the vocabulary. */
static void use(const struct tokenizer *t, struct str file)
{
    struct str texts[] = {STR("Hello, w\xc3\xb6rld 123"),
                          STR(" \xe2\x96\x81\xe4\xbd\xa0\xe5\xa5\xbd<|im_end|></s>[SEP]"),
                          STR("\xff\xc0\x80\xed\xa0\x80"), STR(""), str_sub(file, 0, 512)};
    for (size_t i = 0; i < 2 * sizeof texts / sizeof texts[0]; i++) {
        struct token_list l;
        size_t bytes = 0;
        token_list_init(&l, 100000);
        tokenizer_encode(t, texts[i / 2], i % 2 ? 3 : 0, &l);
        for (size_t k = 0; k < l.n; k++) {
            ASSERT(l.ids[k] >= 0 && l.ids[k] < tokenizer_size(t));
            bytes += tokenizer_bytes(t, l.ids[k], true).n;
        }
        ASSERT(l.n || !bytes);
        token_list_fini(&l);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct errmsg e = {0};
    struct gguf *g;
    struct model_plan plan;
    struct tokenizer *tokenizer;
    void *copy = xmalloc(n ? n : 1); /* aligned, and the sanitizer watches its end */
    memcpy(copy, bytes, n);
    log_set_level(LOG_ERROR);
    if (gguf_from_bytes(&g, copy, n, &e) == OK) {
        volatile uint8_t last = 0; /* every tensor's last byte must be readable */
        for (size_t i = 0; i < gguf_n_tensors(g); i++) {
            const struct gguf_tensor *t = gguf_tensor_at(g, i);
            last ^= ((const uint8_t *)t->bytes)[t->n_bytes - 1];
        }
        if (model_plan_read(&plan, g, &e) == OK) model_plan_fini(&plan);
        if (encoder_check(g, NULL, &e) == OK) last ^= 1;
        struct chat_reader reader;
        struct chat_template *template;
        if (chat_reader_from_gguf(&tokenizer, &template, &reader, g, &e) == OK) {
            use(tokenizer, (struct str){copy, n});
            chat_template_free(template);
            tokenizer_free(tokenizer);
        }
        (void)last;
        gguf_close(g);
    }
    mem_free(copy);
    return 0;
}
