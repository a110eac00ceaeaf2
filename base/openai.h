/* openai.h - the one internal form of an OpenAI request (chat, completions, embeddings) and of an answer, strict reading
 * and exact writing. Used by the gateway and by the engine's server. Pure (allocation aside).
 * Source: the public OpenAI API reference; error shape {"error":{"message","type","param","code"}}. */
#ifndef DEJA_BASE_OPENAI_H
#define DEJA_BASE_OPENAI_H
#include <stdarg.h>

#include "base/json.h"

enum openai_kind { OPENAI_CHAT, OPENAI_COMPLETION, OPENAI_EMBEDDING };

/* A refusal, as the client will read it. */
struct openai_error {
    int status;     /* 400, 404, 413, 415, 429, 503 ... */
    char type[32];  /* "invalid_request_error" ... */
    char param[64]; /* "" -> null */
    char code[40];  /* "" -> null */
    char message[320];
};
void openai_error_set(struct openai_error *e, int status, const char *type, const char *param,
                      const char *code, const char *fmt, ...)
    PRINTF_LIKE(6, 7); /* param and code may be NULL or "" */
/* Status 400, type invalid_request_error, "<param>: <text>". */
void openai_error_param(struct openai_error *e, const char *param, const char *code,
                        const char *fmt, va_list ap);
void openai_error_write(struct buf *out, const struct openai_error *e); /* {"error":{...}} */

struct openai_stop {
    struct str text; /* borrowed from the body */
};
struct openai_bias {
    int32_t token;
    float bias; /* -100..100 */
};

enum { OPENAI_STOPS_MAX = 4, OPENAI_N_MAX = 16 };

/* The form the answer must have. Read for OPENAI_ENGINE only. */
enum openai_format_kind {
    OPENAI_FORMAT_TEXT, /* any */
    OPENAI_FORMAT_JSON_OBJECT,
    OPENAI_FORMAT_SCHEMA,
    OPENAI_FORMAT_REGEX,
    OPENAI_FORMAT_CHOICE
};
struct openai_format {
    enum openai_format_kind kind;
    const json_t *schema;  /* object or boolean, borrowed from the body like the next two */
    const json_t *choices; /* array of strings, none empty */
    struct str regex;
    bool strict;
    const char *path; /* where it stands in the body: "response_format.json_schema.schema" */
};
enum openai_tool_choice {
    OPENAI_TOOLS_AUTO,
    OPENAI_TOOLS_NONE,
    OPENAI_TOOLS_REQUIRED,
    OPENAI_TOOLS_NAMED
};

/* Everything checked for type and range; NULL JSON values mean "not given". Strings are borrowed from body. */
struct openai_request {
    enum openai_kind kind;
    json_t *body; /* the whole request, owned; unknown fields stay in it */
    struct str model;
    const json_t *messages; /* chat: array, each checked */
    const json_t *prompt;   /* completions: string, array of strings, or token array(s) */
    const json_t *input;    /* embeddings: the same */
    const json_t *tools;    /* array or NULL */
    enum openai_tool_choice tool_choice; /* AUTO when not given */
    struct str tool_name;                /* with OPENAI_TOOLS_NAMED */
    bool parallel_tool_calls;            /* true */
    struct openai_format format;
    bool stream, include_usage;
    int n;          /* 1 */
    int answers;    /* computed at most: n or best_of, times the prompts */
    int max_tokens; /* -1 = not given */
    int max_tokens_most; /* the larger of its two names: servers differ in which they go by; -1 = neither */
    double temperature;                                             /* 1 */
    double top_p;                                                   /* 1 */
    double min_p;                                                   /* 0 */
    int top_k;                                                      /* 0 = off (extension) */
    double presence_penalty, frequency_penalty, repetition_penalty; /* 0 0 1 */
    bool has_seed;
    int64_t seed;
    bool logprobs;
    int top_logprobs; /* 0..20 */
    bool echo;        /* completions */
    struct openai_stop stops[OPENAI_STOPS_MAX];
    size_t n_stops;
    struct openai_bias *biases; /* owned */
    size_t n_biases;
    bool has_image, has_audio; /* some content part is not text */
    bool base64;               /* embeddings encoding_format */
    int dimensions;            /* embeddings, 0 = not given */
    /* LiteLLM-style body member "cache": {...}; read and REMOVED from body */
    bool cache_no_cache, cache_no_store;
    int64_t cache_ttl_s, cache_max_age_s; /* -1 = not given */
    char cache_namespace[64];             /* "" = not given */
};
enum openai_strict {
    OPENAI_GATEWAY =
        0, /* values an upstream might know (images, tools, unknown types of response_format) pass */
    OPENAI_ENGINE = 1 /* what our own engine cannot do is refused */
};
/* Takes bytes as they came. On failure *e is filled and out needs no fini. */
MUST enum err openai_parse(struct openai_request *out, enum openai_kind kind, struct str body,
                           enum openai_strict strict, struct openai_error *e);
void openai_request_fini(struct openai_request *r);
/* Text of the last user message (parts joined by "\n"), borrowed or built into scratch; empty when the last message is not a user's
 * or has parts that are not text. */
struct str openai_last_user_text(const struct openai_request *r, struct buf *scratch);

/* --- an answer in neutral form: what is stored, and from which both JSON and SSE are rendered */
struct openai_usage {
    int64_t prompt_tokens, completion_tokens, cached_tokens;
    bool known;
};
struct openai_choice {
    json_t *message;  /* {role, content, tool_calls?, refusal?, reasoning_content?...}; owned */
    json_t *logprobs; /* or NULL; owned */
    json_t *extra;    /* other fields of the choice (stop_reason ...), or NULL; owned */
    char finish_reason[24]; /* "" = missing */
};
struct openai_answer {
    enum openai_kind kind; /* chat or completion (then message has {"text":...}) */
    char id[80], model[128], system_fingerprint[80];
    int64_t created;
    struct openai_choice choices[OPENAI_N_MAX];
    int n_choices;
    struct openai_usage usage;
    json_t *extra;      /* other top-level fields kept, or NULL; owned */
    json_t *usage_json; /* the usage object as it came (details kept), or NULL; owned */
};
void openai_answer_fini(struct openai_answer *a);
/* From a complete JSON reply. ERR_INVALID: not such an answer. */
MUST enum err openai_answer_parse(struct openai_answer *out, enum openai_kind kind, struct str json,
                                  struct errmsg *e);
/* From a stream: feed each SSE data payload ("[DONE]" and empty ones are passed over). ERR_INVALID on a frame that is no chunk; an
 * error object in the stream gives ERR_UNAVAILABLE with its message; ERR_UNSUPPORTED: more than OPENAI_N_MAX choices;
 * ERR_TOO_LARGE: over bytes_max. After any of them take answers ERR_CORRUPT, since what was collected has a hole; feeding may go on.
 * A frame with invalid UTF-8 or a lone surrogate is collected with U+FFFD in place (OK), and take says ERR_CORRUPT too. */
struct openai_collector;
struct openai_collector *openai_collector_new(enum openai_kind kind, size_t bytes_max);
void openai_collector_free(struct openai_collector *c);
/* Before the first frame: nobody will take the answer (take says ERR_CORRUPT), only what it cost and whether it is whole is asked. */
void openai_collector_only_watch(struct openai_collector *c);
MUST enum err openai_collector_feed(struct openai_collector *c, struct str data, struct errmsg *e);
/* The quick way for a frame that differs from the last one in its text alone, as most of a stream do: true when it was taken, with just
 * what openai_collector_feed would have done; false: nothing was done, feed it. Such a frame has no line breaks and no broken
 * characters. */
bool openai_collector_feed_like(struct openai_collector *c, struct str data);
/* True once every choice seen has a finish_reason: what is missing then is usage and [DONE] at most. */
bool openai_collector_complete(const struct openai_collector *c);
/* The last usage the stream told, counted once however often it came; known = false when none did. */
struct openai_usage openai_collector_usage(const struct openai_collector *c);
/* Every text that has come so far (content, reasoning, refusal, calls and their arguments), in no order; borrowed during fn. */
void openai_collector_each_text(const struct openai_collector *c,
                                void (*fn)(void *arg, struct str text), void *arg);
/* What openai_collector_take would say (but for one that only watches). */
MUST enum err openai_collector_whole(const struct openai_collector *c);
/* Moves the answer out once every choice has a finish_reason; ERR_AGAIN when the stream was not complete, ERR_CORRUPT see feed.
 * *out is set only on OK; the collector is empty then. */
MUST enum err openai_collector_take(struct openai_collector *c, struct openai_answer *out);

void openai_answer_write_json(struct buf *out, const struct openai_answer *a);
/* A whole SSE stream: role chunk, content in pieces of at most piece_chars characters, tool calls, finish, usage if asked, [DONE]. */
void openai_answer_write_sse(struct buf *out, const struct openai_answer *a, bool include_usage,
                             size_t piece_chars);

#endif
