/* options.c - see options.h. Names and aliases are those people know from vLLM and llama.cpp. */
#include "engine/options.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "engine/speculate/speculator.h"

static const struct conf_row rows[] = {
    {"model", CONF_STR, "", 0, 4096, "", 0,
     "GGUF file of the language model (architectures: docs/models.md)", "m"},
    {"served_model_name", CONF_STR, "", 0, 256, "", 0,
     "name clients ask for; empty = the file's name without .gguf", NULL},
    {"embed_model", CONF_STR, "", 0, 4096, "", 0,
     "GGUF file of an embedding model for /v1/embeddings; empty or none = no such endpoint", NULL},
    {"lora", CONF_STR, "", 0, 4096, "", CONF_LIST,
     "NAME=FILE.gguf[:SCALE], a LoRA adapter that requests pick as their model", NULL},
    {"host", CONF_STR, "127.0.0.1", 0, 255, "", 0, "address to listen on", NULL},
    {"port", CONF_INT, "8000", 0, 65535, "", 0,
     "port to listen on; 0 takes any free one and logs it", NULL},
    {"max_model_len", CONF_INT, "0", 0, 10000000, "tokens", 0,
     "longest prompt and answer together; 0 = the model's context", "c ctx-size"},
    {"max_num_seqs", CONF_INT, "16", 1, 1024, "", 0, "sequences computed together", "np parallel"},
    {"max_num_batched_tokens", CONF_INT, "256", 1, 65536, "tokens", 0, "rows of one step", "b"},
    {"prompt_rows_decoding", CONF_INT, "0", 0, 65536, "tokens", 0,
     "prompt rows of a step while others decode; 0 = as many as end within step_target_ms", NULL},
    {"step_target_ms", CONF_INT, "30", 1, 10000, "ms", 0,
     "longest step while answers are streamed: less = smoother streams, more = faster prompts",
     NULL},
    {"block_size", CONF_INT, "16", 8, 64, "tokens", 0, "tokens of one KV block: a power of two",
     NULL},
    {"kv_cache_dtype", CONF_STR, "auto", 0, 8, "", 0,
     "how K and V are kept: f16, int8 (half the memory) or k8v4 (K in 8 bits, V in 4); auto = f16",
     NULL},
    {"kv_bytes", CONF_INT, "0", 0, 1e15, "bytes", 0,
     "memory of the KV cache; 0 = on the CPU 512 MiB, at least one full-length sequence; on a GPU "
     "as "
     "gpu_memory_utilization says",
     NULL},
    {"swap_space", CONF_FLOAT, "0.125", 0, 1048576, "GiB", 0,
     "host memory for KV blocks that the pool gives up: preempted requests and older prefixes come "
     "back from there; 0 = none",
     NULL},
    {"speculative_config", CONF_STR, "{\"method\":\"ngram\",\"num_speculative_tokens\":8}", 0, 4608,
     "", 0,
     "how tokens are guessed ahead: off, or JSON with method (ngram: from repeats; draft_model), "
     "model (FILE.gguf of a smaller model with the same vocabulary), num_speculative_tokens (1 to "
     "15), branches (1 to 3 tokens guessed for one place: above 1, trees of them) and always "
     "(true: also where it does not pay, for measuring)",
     NULL},
    {"kv_disk", CONF_STR, "", 0, 4096, "", 0,
     "folder where KV blocks are kept over a restart (they contain prompts; files are this "
     "user's); empty = nowhere",
     NULL},
    {"kv_disk_bytes", CONF_INT, "4G", 1048576, 1e15, "bytes", 0, "most that kv_disk may hold",
     NULL},
    {"enable_prefix_caching", CONF_BOOL, "yes", 0, 0, "", 0,
     "share and keep computed prompt beginnings", NULL},
    {"async_scheduling", CONF_BOOL, "yes", 0, 0, "", 0,
     "a GPU gets its next step before the tokens of the last one are on the host", NULL},
    {"queue_max", CONF_INT, "256", 1, 65536, "", 0,
     "waiting choices; beyond it 429 with retry-after", NULL},
    {"threads", CONF_INT, "0", 0, 64, "", 0, "compute threads; 0 = all cores", "t"},
    {"isa", CONF_STR, "", 0, 16, "", 0, "scalar, avx2 or avx512; empty = the best this machine has",
     NULL},
    {"device", CONF_STR, "auto", 0, 24, "", 0,
     "cpu; cuda or cuda:N, the N-th GPU; auto = a GPU where this program has CUDA and the machine "
     "one "
     "that takes the model, else the CPU",
     NULL},
    {"gpu_memory_utilization", CONF_FLOAT, "0.9", 0.01, 1, "", 0,
     "share of a GPU's memory the engine may hold: what weights and activations leave of it "
     "becomes "
     "KV cache, unless kv_bytes says how much",
     NULL},
    {"gpu_products", CONF_STR, "auto", 0, 8, "", 0,
     "how a GPU multiplies for long prompts (over 256 rows): auto = F16 and BF16 matrices by "
     "cuBLASLt where it is found, packed ones by "
     "kernels of our own; own; bf16, fp8 or int8 = all by cuBLASLt, rounded to that with a scale a "
     "row and a token",
     NULL},
    {"gpu_calibration", CONF_STR, "", 0, 4096, "", 0,
     "file that calibrate has written: large channels move into the weights before int8 products",
     NULL},
    {"calibrate", CONF_STR, "", 0, 4096, "", 0,
     "only run this text through the model on the CPU and write gpu_calibration", NULL},
    {"tensor_parallel_size", CONF_INT, "1", 1, 16, "", 0,
     "ranks that share each layer: GPUs from the one of device on (by NCCL), or parts of the CPU",
     NULL},
    {"exact", CONF_BOOL, "no", 0, 0, "", 0,
     "float32 arithmetic throughout, slow (the reference path)", NULL},
    {"seed", CONF_INT, "-1", -1, 9007199254740991.0, "", 0,
     "seed of requests that bring none; -1 = a fresh one each", NULL},
    {"max_tokens_default", CONF_INT, "2048", 0, 10000000, "tokens", 0,
     "longest answer to a request that names no limit (small models can go on for ever); 0 = as "
     "many as fit",
     NULL},
    {"gateway_key", CONF_STR, "", 0, 256, "", CONF_SECRET,
     "requests with this in x-deja-key may say x-deja-salt (whose prefix cache) and "
     "x-deja-priority; "
     "the gateway has the same option",
     NULL},
    {"role", CONF_STR, "both", 0, 8, "", 0,
     "prefill computes prompts for other engines, decode takes them from there when the gateway "
     "says so, both does all by itself; the first two need gateway_key",
     NULL},
    {"kv_transfer_ms", CONF_INT, "3000", 10, 600000, "ms", 0,
     "longest silence of an engine that computes a prompt for this one, and a tenth of the longest "
     "time in all; then it is computed here",
     NULL},
    {"warm_up", CONF_BOOL, "yes", 0, 0, "", 0,
     "generate a few tokens at the start before /ready says so", NULL},
    {"probe_idle_ms", CONF_INT, "30000", 0, 3600000, "ms", 0,
     "an idle engine generates one token this often, so that /ready speaks of now; 0 = never",
     NULL},
    {"drain_ms", CONF_INT, "30000", 0, 3600000, "ms", 0,
     "after SIGTERM: longest time running and waiting requests get; who is left is told so", NULL},
    {"body_bytes_max", CONF_INT, "8388608", 1024, 268435456, "bytes", 0,
     "larger request bodies get 413", NULL},
    {"log_level", CONF_STR, "info", 0, 8, "", 0, "error, warn, info or debug", NULL},
    {"check", CONF_STR, "", 0, 4096, "", 0,
     "only check whether this model file can be loaded: exit status 0 or 1", NULL},
};

struct conf *engine_conf_new(void)
{
    return conf_new(rows, sizeof rows / sizeof rows[0]);
}

static enum err read_speculation(const char *text, struct server_options *out, struct errmsg *e)
{
    static const char *const known[] = {"method", "model", "num_speculative_tokens", "branches",
                                        "always"};
    struct engine_speculation *s = &out->engine.speculation;
    if (!*text || !strcmp(text, "off") || !strcmp(text, "none")) return OK;
    json_t *doc = NULL;
    enum err code = json_parse(str_of(text), 0, &doc, e);
    if (code) return err_prefix(e, code, "option speculative_config");
    struct str method = json_member_str(doc, "method"), model = json_member_str(doc, "model");
    const json_t *n = json_object_get(doc, "num_speculative_tokens");
    const char *key;
    json_t *value;
    json_object_foreach(doc, key, value)
    {
        bool fine = false;
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            fine |= !strcmp(key, known[i]);
        if (!fine)
            code = err_set(e, ERR_INVALID,
                           "option speculative_config: no member %.40s; method, model, "
                           "num_speculative_tokens, branches and always are known",
                           key);
    }
    s->n_max = n ? (int)json_integer_value(n) : 8;
    const json_t *branches = json_object_get(doc, "branches");
    s->branches = branches ? (int)json_integer_value(branches) : 1;
    s->lookup = !method.p || str_eqz(method, "ngram");
    s->always = json_is_true(json_object_get(doc, "always"));
    if (!code && (!json_is_object(doc) || (!s->lookup && !str_eqz(method, "draft_model"))))
        code = err_set(e, ERR_INVALID, "option speculative_config: method is ngram or draft_model");
    if (!code && (s->n_max < 1 || s->n_max > 15))
        code = err_set(e, ERR_RANGE,
                       "option speculative_config: num_speculative_tokens must be from 1 to 15");
    if (!code && (s->branches < 1 || s->branches > SPECULATOR_BRANCHES_MAX))
        code = err_set(e, ERR_RANGE, "option speculative_config: branches must be from 1 to %d",
                       SPECULATOR_BRANCHES_MAX);
    if (!code && model.n >= sizeof out->draft_path)
        code = err_set(e, ERR_INVALID, "option speculative_config: the path of model is too long");
    if (!code && !s->lookup && !model.n)
        code = err_set(e, ERR_INVALID, "option speculative_config: method draft_model needs model");
    if (!code && model.n) {
        snprintf(out->draft_path, sizeof out->draft_path, STR_FMT, STR_ARG(model));
        s->draft_path = out->draft_path;
    }
    json_decref(doc);
    return code;
}

/* NAME=FILE[:SCALE]; what follows the last colon is a scale only when it is a number. */
static enum err read_adapter(struct str text, struct engine_adapter *a, struct errmsg *e)
{
    double scale = 1;
    if (!str_next(&text, '=', &a->name) || !a->name.n || !text.n)
        return err_set(e, ERR_INVALID,
                       "option lora: expected NAME=FILE.gguf or NAME=FILE.gguf:SCALE");
    a->path = text;
    for (struct str rest = text; str_find_char(rest, ':') >= 0;) {
        rest = str_sub(rest, (size_t)str_find_char(rest, ':') + 1, rest.n);
        if (str_to_f64(rest, &scale) == OK) a->path.n = (size_t)(rest.p - text.p) - 1;
    }
    a->scale = (float)scale;
    if (!utf8_valid(a->name) || a->name.n > 255)
        return err_set(e, ERR_INVALID, "option lora: a name is at most 255 bytes of UTF-8");
    for (size_t i = 0; i < a->name.n; i++) /* no request could ask for it */
        if ((unsigned char)a->name.p[i] < 0x20 || a->name.p[i] == 0x7F)
            return err_set(e, ERR_INVALID, "option lora: a name holds a control character");
    if (!(fabs(scale) <= 1000))
        return err_set(e, ERR_RANGE, "option lora: " STR_FMT ": scale %g is not from -1000 to 1000",
                       STR_ARG(a->name), scale);
    return OK;
}

static enum err read_adapters(const char *list, struct server_options *out, struct errmsg *e)
{
    struct str rest = str_of(list), line;
    int n = 0;
    for (enum err code; str_next(&rest, '\n', &line); n++) {
        if (n == MODEL_ADAPTERS_MAX)
            return err_set(e, ERR_RANGE, "option lora: at most %d adapters", MODEL_ADAPTERS_MAX);
        if ((code = read_adapter(line, &out->adapters[n], e))) return code;
        for (int i = 0; i < n; i++)
            if (str_eq(out->adapters[i].name, out->adapters[n].name))
                return err_set(e, ERR_INVALID, "option lora: two adapters are called " STR_FMT,
                               STR_ARG(out->adapters[n].name));
    }
    out->engine.adapters = out->adapters;
    out->engine.n_adapters = n;
    return OK;
}

const char *engine_role_name(enum engine_role role)
{
    static const char *const names[] = {"both", "prefill", "decode"};
    return names[role];
}

static enum err read_role(const char *text, struct server_options *out, struct errmsg *e)
{
    for (out->role = ROLE_BOTH; strcmp(text, engine_role_name(out->role)) != 0; out->role++)
        if (out->role == ROLE_DECODE)
            return err_set(e, ERR_INVALID, "option role: expected prefill, decode or both");
    if (out->role != ROLE_BOTH && !*out->gateway_key)
        return err_set(e, ERR_INVALID,
                       "option role: %s needs gateway_key, the secret that engines and gateway "
                       "share",
                       text);
    if (out->role != ROLE_BOTH && !out->engine.prefix_caching)
        return err_set(e, ERR_INVALID,
                       "option role: %s hands over the prefix cache, which enable_prefix_caching "
                       "turns off",
                       text);
    out->engine.imports = out->role == ROLE_DECODE;
    return OK;
}

static enum err check_calibration(const struct server_options *o, struct errmsg *e)
{
    const struct engine_options *g = &o->engine;
    if (*o->calibrate && !g->gpu_calibration)
        return err_set(e, ERR_INVALID,
                       "option calibrate: say with gpu_calibration which file to write");
    if (!*o->calibrate && g->gpu_calibration && strcmp(g->gpu_products, "int8") != 0)
        return err_set(e, ERR_INVALID,
                       "option gpu_calibration: it is for int8 products: say gpu_products int8");
    return OK;
}

enum err server_options_read(const struct conf *c, struct server_options *out, struct errmsg *e)
{
    *out = (struct server_options){
        .engine = {.model_path = conf_str(c, "model"),
                   .n_threads = (int)conf_int(c, "threads"),
                   .max_model_len = (int)conf_int(c, "max_model_len"),
                   .max_num_seqs = (int)conf_int(c, "max_num_seqs"),
                   .max_num_batched_tokens = (int)conf_int(c, "max_num_batched_tokens"),
                   .block_size = (int)conf_int(c, "block_size"),
                   .kv_bytes = (uint64_t)conf_int(c, "kv_bytes"),
                   .disk_dir = conf_str(c, "kv_disk"),
                   .disk_bytes = (uint64_t)conf_int(c, "kv_disk_bytes"),
                   .swap_bytes = (uint64_t)(conf_float(c, "swap_space") * (1 << 30)),
                   .prefix_caching = conf_bool(c, "enable_prefix_caching"),
                   .wait_each_step = !conf_bool(c, "async_scheduling"),
                   .prompt_rows_decoding = (int)conf_int(c, "prompt_rows_decoding"),
                   .step_target_ms = (int)conf_int(c, "step_target_ms"),
                   .queue_max = (int)conf_int(c, "queue_max"),
                   .isa = *conf_str(c, "isa") ? conf_str(c, "isa") : NULL,
                   .device = conf_str(c, "device"),
                   .gpu_products = conf_str(c, "gpu_products"),
                   .gpu_calibration =
                       *conf_str(c, "gpu_calibration") ? conf_str(c, "gpu_calibration") : NULL,
                   .tensor_parallel = (int)conf_int(c, "tensor_parallel_size"),
                   .gpu_memory_utilization = conf_float(c, "gpu_memory_utilization"),
                   .exact = conf_bool(c, "exact")},
        .served_model_name = conf_str(c, "served_model_name"),
        .embed_model = conf_str(c, "embed_model"),
        .host = conf_str(c, "host"),
        .port = (int)conf_int(c, "port"),
        .log_level = conf_str(c, "log_level"),
        .check = conf_str(c, "check"),
        .calibrate = conf_str(c, "calibrate"),
        .gateway_key = conf_str(c, "gateway_key"),
        .kv_transfer_ms = (int)conf_int(c, "kv_transfer_ms"),
        .has_seed = conf_int(c, "seed") >= 0,
        .seed = (uint64_t)conf_int(c, "seed"),
        .max_tokens_default = (int)conf_int(c, "max_tokens_default"),
        .probe_idle_ms = (int)conf_int(c, "probe_idle_ms"),
        .drain_ms = (int)conf_int(c, "drain_ms"),
        .body_bytes_max = (int)conf_int(c, "body_bytes_max"),
        .warm_up = conf_bool(c, "warm_up")};
    if (!strcmp(out->embed_model, "none")) out->embed_model = "";
    enum err code = kv_type_parse(conf_str(c, "kv_cache_dtype"), &out->engine.kv_type, e);
    if (code) return err_prefix(e, code, "option kv_cache_dtype");
    if ((code = read_adapters(conf_str(c, "lora"), out, e))) return code;
    if (out->engine.exact && out->engine.kv_type != KV_F16)
        return err_set(e, ERR_INVALID,
                       "option kv_cache_dtype: exact keeps float32 and goes with auto only");
    if (*out->engine.disk_dir && !out->engine.prefix_caching)
        return err_set(
            e, ERR_INVALID,
            "option kv_disk: it keeps the prefix cache, which enable_prefix_caching turns off");
    if ((code = read_role(conf_str(c, "role"), out, e))) return code;
    if ((code = check_calibration(out, e))) return code;
    int block = out->engine.block_size;
    if (block & (block - 1))
        return err_set(e, ERR_INVALID, "option block_size: %d is not a power of two", block);
    if (!*out->check && !*out->engine.model_path)
        return err_set(e, ERR_INVALID, "option model: missing; say --model FILE.gguf");
    return read_speculation(conf_str(c, "speculative_config"), out, e);
}
