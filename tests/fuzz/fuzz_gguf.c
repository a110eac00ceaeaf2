/* fuzz_gguf.c - any bytes as a model file: must be refused or read inside their bounds, by the container, the decoder's and the
 * encoder's shape checks and the tokenizer alike. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "engine/model/encoder.h"
#include "engine/model/gguf.h"
#include "engine/model/model_plan.h"
#include "engine/model/tokenizer_load.h"
#include "engine/text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

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
        if (tokenizer_from_gguf(&tokenizer, g, &e) == OK) tokenizer_free(tokenizer);
        (void)last;
        gguf_close(g);
    }
    mem_free(copy);
    return 0;
}
