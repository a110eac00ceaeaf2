/* lora.h - low-rank adapters of a loaded model: W becomes W + scale * alpha / rank * B A for the rows of the sequences that ask for
 * it, without touching W. A and B are kept in float32. Several adapters may serve one batch; a row without one is left
 * untouched, bit for bit, and a row's result depends on its own adapter only.
 * File: GGUF with general.type "adapter", adapter.type "lora", general.architecture of the base model, adapter.lora.alpha [rank], and
 * for each adapted matrix NAME the tensors NAME.lora_a [n_in, rank] and NAME.lora_b [rank, n_out].
 * Threading: as the model's. Private to engine/model. Source: Hu et al. 2021, arXiv:2106.09685, section 4.1. */
#ifndef DEJA_ENGINE_MODEL_LORA_H
#define DEJA_ENGINE_MODEL_LORA_H
#include "engine/backend/backend.h"
#include "engine/model/model.h"
#include "engine/model/model_plan.h"

/* What may be adapted: these of each layer, and the output head. */
enum lora_target {
    LORA_Q,
    LORA_K,
    LORA_V,
    LORA_ATTN_OUT,
    LORA_GATE,
    LORA_UP,
    LORA_DOWN,
    LORA_LAYER_TARGETS
};
enum { LORA_MAX = MODEL_ADAPTERS_MAX, LORA_RANK_MAX = 1024 };

struct lora;
/* ERR_CORRUPT or ERR_UNSUPPORTED: *e names the key or tensor and what would be right. Free with lora_free. */
MUST enum err lora_open(struct lora **out, struct backend *be, const struct model_plan *plan,
                        const char *path, float scale, struct errmsg *e);
/* The same on a file that is open already (borrowed for the call); messages do not name it. */
MUST enum err lora_from_gguf(struct lora **out, struct backend *be, const struct model_plan *plan,
                             const struct gguf *g, float scale, struct errmsg *e);
void lora_free(struct lora *a); /* NULL is fine */
/* Of the file's bytes and the scale. Never zero. */
struct hash128 lora_id(const struct lora *a);
int lora_rank_max(const struct lora *a);

/* Which rows of a pass want which adapter. */
struct lora_rows {
    int n_groups;
    int adapter[LORA_MAX];
    int first[LORA_MAX + 1]; /* group i: row[first[i]..first[i+1]) */
    int32_t *row;            /* [rows] ascending in a group */
};
/* seq[n_rows]: each row's sequence; adapter[..]: each sequence's adapter, -1 = none. row must have room for n_rows. */
void lora_group(struct lora_rows *g, const int32_t *seq, int n_rows, const int32_t *adapter);

/* Memory of one application. */
struct lora_scratch {
    float *low;  /* [LINEAR_WEIGHTS_MAX][rows][rank_max] */
    float *high; /* [high_floats] >= the widest adapted n_out */
    size_t high_floats;
    int rows, rank_max;
};
/* Adds the adapters' part to the outputs of a linear layer that has run: out[i][row] += scale * B A in(x[row]) for weight i of l, whose
 * place is the one given + i. l->row must be NULL. Places: lora_place(); the output head's is lora_place(n_layer, 0). */
void lora_apply(struct backend *be, struct lora *const *loras, const struct lora_rows *g,
                const struct linear *l, int place, const struct lora_scratch *s);
static inline int lora_place(int layer, enum lora_target t)
{
    return layer * LORA_LAYER_TARGETS + t;
}

#endif
