/* server.h - private to engine/: the OpenAI front of one engine. The HTTP loop parses, queues and writes; tokens come from the step
 * thread through one list of events and a single post. Long prompts are tokenised, and texts embedded, on workers.
 * Threading: everything on the loop's thread, except what a comment says. */
#ifndef DEJA_ENGINE_SERVER_H
#define DEJA_ENGINE_SERVER_H
#include <pthread.h>
#include <stdatomic.h>

#include "base/httpd.h"
#include "base/metrics.h"
#include "base/openai.h"
#include "base/sse.h"
#include "base/workers.h"
#include "engine/options.h"
#include "engine/text/chat_prompt.h"
#include "engine/text/stream_text.h"
#include "engine/toolcall.h"

struct encoder;
struct grammar;
struct server_forms;
struct server_metrics;

enum {
    SERVER_CHOICES_MAX = 16 /* prompts times n of one request */,
    SERVER_INLINE_BYTES = 16 << 10 /* longer prompts are tokenised on a worker */,
    SERVER_PING_MS = 10000 /* silence after which a stream gets a comment */,
    SERVER_STUCK_MS = 4000 /* a step older than this makes /ready red: with the tick within 5 s */,
    SERVER_TICK_MS = 500
};

struct server {
    struct loop *loop;
    struct httpd *httpd;
    struct workers *workers,
        *embed_workers; /* the second has one thread: an encoder takes one at a time */
    struct engine *engine;
    struct announce *announce;
    struct kv_reader *kv_readers; /* who follows the KV blocks; server_kv.c */
    int n_kv_readers;
    struct kv_give *gives; /* prompts computed for other engines; server_give.c */
    int n_gives;
    struct http_client *client; /* to engines that compute prompts for this one; NULL: none may */
    int n_fetches;
    struct encoder *
        encoder; /* NULL: no /v1/embeddings. embed_workers' thread only, but for its read-only facts */
    struct tokenizer *tokenizer;
    struct chat_template *template; /* NULL: the model has none */
    struct chat_reader text;        /* of the two */
    struct server_forms *forms;     /* grammars, and how this model writes tool calls */
    int32_t end_ids[ENGINE_END_IDS_MAX];
    int n_end_ids;
    char model_name[256], embed_name[256];
    int64_t created_s;
    const struct server_options *o;
    struct metrics *metrics;
    struct server_metrics *series;
    struct exchange *exchanges; /* all that live */
    int n_exchanges;
    uint64_t next_id, id_seed;
    struct loop_timer *tick;
    bool draining, ended, stuck, told_lost; /* ended: the time to drain is over */
    _Atomic bool warm;                      /* set on the step thread, like the next two */
    _Atomic bool probing, probe_failed;
    /* step thread -> loop, under lock */
    struct buf scratch;
    pthread_mutex_t lock;
    struct token_event *first, *last;
    bool posted;
};

/* One token or the end of one choice, made on the step thread. */
struct token_event {
    struct token_event *next;
    struct exchange *exchange;
    uint64_t at_us;
    int choice;
    bool is_end, stopped; /* stopped: a stop string was completed */
    int32_t id;
    float logprob;
    int n_top;
    struct sampler_top top[SAMPLER_TOP_LOGPROBS_MAX];
    size_t released; /* raw bytes of the choice's tokens whose text is out */
    struct engine_end end;
    size_t n_text;
    char text[];
};

struct logged_token { /* a token whose log-probability is to be told once its text is out */
    int32_t id;
    float logprob;
    int n_top;
    struct sampler_top top[SAMPLER_TOP_LOGPROBS_MAX];
    size_t from; /* byte of the choice's raw text where it begins */
};

struct call_out { /* a tool call of an answer */
    char id[40];
    struct str name;      /* in the request */
    struct buf arguments; /* collected; empty where they were streamed */
};

struct choice_out {
    /* step thread, from submit to the end */
    struct stream_text *assembler;
    struct buf piece;
    bool stopped;
    /* loop */
    struct buf text;             /* whole answer (not streamed) */
    struct logged_token *logged; /* [n_logged], only when log-probabilities are wanted */
    size_t n_logged, cap_logged, n_told;
    size_t fed, out;           /* raw bytes of tokens seen; released */
    size_t text_offset;        /* characters before the next logged token (completions) */
    struct toolcall *toolcall; /* NULL: the text is content as it is */
    struct exchange *exchange; /* whose it is, for the parser's events */
    int index;
    struct call_out *calls; /* [n_calls] */
    int n_calls;
    bool ended;
    enum engine_finish finish;
    uint64_t last_token_us;
};

struct submission { /* one prompt of an exchange in the engine */
    struct exchange *exchange;
    int first_choice;
    uint64_t id;
    bool submitted;
};

/* One request from parse to last event. Freed when the client has its answer or is gone, and nothing of it is in the engine or on
 * a worker any more. */
struct exchange {
    struct exchange *next, *prev;
    struct server *server;
    struct http_req *http; /* NULL once answered or gone */
    enum openai_kind kind;
    bool has_request;
    bool long_body;         /* read on a worker, and taken apart there */
    struct buf body, reply; /* of a long request until it is read; an answer that a worker wrote */
    struct openai_request request;
    char id[64];
    int64_t created_s;
    struct hash128 salt;
    int adapter; /* as engine_submit's */
    uint64_t arrived_us, last_write_ms, first_token_us;
    int priority;
    char prefill_url
        [264];        /* the engine that computes the prompt, as the gateway said; "" = this one */
    int prefill_held; /* tokens of the prompt whose KV is here */
    struct kv_fetch *fetch; /* its blocks are on their way; server_fetch.c */
    struct token_list prompts[SERVER_CHOICES_MAX];
    int n_prompts;
    struct token_list expected; /* the request's "prediction" */
    struct submission submissions[SERVER_CHOICES_MAX];
    struct choice_out choices[SERVER_CHOICES_MAX];
    int n_choices, n_open; /* n_open: choices still in the engine */
    bool on_worker, streaming;
    bool blocked; /* the client must read before more of its stream is written */
    struct token_event *held_first, *held_last; /* meanwhile, in order */
    bool calls_on;                              /* tools are given and may be called */
    bool marker_in_prompt;                      /* the prompt ends with what begins a call */
    struct grammar *grammar;                    /* what the text must be; NULL = free */
    struct openai_error error; /* status 0 = none; set by preparation (maybe on a worker) */
    int64_t prompt_tokens, completion_tokens, cached_tokens, drafted_tokens, accepted_tokens;
    float *vectors; /* embeddings: [n_texts][dim] */
    enum err *vector_status;
    struct str *texts;
    int n_texts;
};

/* server.c */
MUST enum err server_open(struct server **out, struct loop *l, const struct server_options *o,
                          struct errmsg *e);
/* Takes no new connections; what is at work or waits may end. drained, when the last connection has closed. */
void server_drain(struct server *s, void (*drained)(void *arg), void *arg);
/* Whoever is still served or waits gets its end now: 503, or an error event in a stream. */
void server_end_all(struct server *s);
/* Before loop_free, which runs the last of it. NULL is fine. */
void server_close(struct server *s);
void server_refuse(struct server *s, struct http_req *r, const struct openai_error *e);

/* server_exchange.c */
void exchange_start(struct server *s, struct http_req *r, enum openai_kind kind);
/* Any thread: hands an event over to the loop; owns it afterwards. */
void server_deliver(struct server *s, struct token_event *ev);
void server_drain_events(struct server *s); /* loop: runs what was delivered */
void exchange_refuse(struct exchange *x);   /* sends x->error and lets go */
void exchange_end(struct exchange *x);      /* the server ends: says so and cancels the work */
struct str
exchange_model(const struct exchange *x); /* what answers: the model's or adapter's name */
void exchange_maybe_free(struct exchange *x);
void exchange_finished(struct exchange *x); /* answered: the http request is dead */

/* server_prompt.c: fills x->prompts, or x->error. Loop or worker; touches only the exchange and immutable parts of the server. */
void prompt_prepare(struct exchange *x);
/* A prompt as "echo" gives it back: its text as it came, or what its token ids mean. */
void prompt_echo(const struct exchange *x, int prompt, struct buf *out);

/* server_form.c */
struct server_forms *forms_new(struct server *s); /* once engine and tokenizer are there */
void forms_free(struct server_forms *f);          /* NULL is fine */
enum toolcall_form forms_toolcall(const struct server_forms *f);
/* Does the request demand a form of its text? Finding the grammar may take long: on a worker then. */
bool form_needed(const struct exchange *x);
void form_prepare(
    struct exchange *x); /* fills x->grammar and ends the prompts, or fills x->error */
/* A token's text as it counts in an answer: with the marks of tool calls where they may come. Any thread. */
struct str exchange_token_bytes(const struct exchange *x, int32_t id);

/* server_calls.c */
void calls_open(struct exchange *x, int choice);
void calls_free(struct choice_out *c);
void calls_write(const struct choice_out *c, struct buf *out); /* ,"tool_calls":[..] or nothing */

/* server_submit.c */
bool exchange_submit(struct exchange *x); /* false: x->error says why, nothing is in the engine */

/* server_write.c */
void write_echo(struct exchange *x); /* prompts before the answers */
void write_stream_head(struct exchange *x);
void write_token(struct exchange *x, struct token_event *ev); /* streamed or collected */
void write_end(struct exchange *x, struct token_event *ev);
void write_whole(struct exchange *x); /* all choices have ended */
void write_stream_tail(struct exchange *x);
const char *finish_name(enum engine_finish f);
void write_text(struct exchange *x, int choice, struct str text); /* a streamed piece of content */
/* A chunk with another delta: append its JSON object to what begin returns. */
struct buf *write_delta_begin(struct exchange *x, int choice);
void write_delta_end(struct exchange *x, struct buf *b);
/* server_logprobs.c */
void logprobs_add(struct exchange *x, struct choice_out *c, const struct token_event *ev);
/* "null" when none were asked for; else those of the tokens whose text is out (all: of the rest too) and that were not told yet. */
void logprobs_write(struct exchange *x, struct choice_out *c, bool all, struct buf *out);

/* server_ops.c */
void ops_models(struct server *s, struct http_req *r, struct str id);
/* Number of the adapter called name, as engine_submit takes it; 0 = there is none. */
int server_adapter(const struct server *s, struct str name);
void ops_health(struct server *s, struct http_req *r);
void ops_ready(struct server *s, struct http_req *r);
void ops_metrics(struct server *s, struct http_req *r);
void ops_tokenize(struct server *s, struct http_req *r);
void ops_detokenize(struct server *s, struct http_req *r);

/* server_kv.c */
void kv_prefix(struct server *s, struct http_req *r);
void kv_tokenizer(struct server *s, struct http_req *r);
void kv_events(struct server *s, struct http_req *r);
void kv_tick(struct server *s);  /* keeps silent streams alive */
void kv_close(struct server *s); /* before the engine goes */
/* The gateway, by its key; without one nobody is. */
bool server_is_gateway(const struct server *s, const struct http_req *r); /* server_exchange.c */

/* server_give.c */
void give_start(struct server *s, struct http_req *r);
void gives_run(void *server); /* loop: sends on what engines wait for */

/* server_fetch.c */
void fetch_read_hint(struct exchange *x, struct str header); /* x-deja-prefill, of the gateway */
/* True: exchange_go_on(x) follows. False: there is nothing to fetch. */
bool fetch_start(struct exchange *x);
void fetch_cancel(struct exchange *x);   /* exchange_go_on(x) follows all the same */
void fetch_room(void *server);           /* step thread */
void exchange_go_on(struct exchange *x); /* server_exchange.c */

/* server_embed.c */
void embed_start(struct exchange *x);

/* server_metrics.c */
void server_metrics_new(struct server *s); /* into s->series */
void server_metrics_free(struct server_metrics *m);
void server_metrics_update(struct server *s); /* from engine_stats, before a scrape */
void metrics_first_token(struct exchange *x, uint64_t at_us);
void metrics_gap(struct exchange *x, uint64_t us);
void metrics_step(struct server *s, int n_rows); /* any thread */
void metrics_submitted(struct exchange *x);
void metrics_kv_sent(struct server *s, uint64_t bytes);     /* a block */
void metrics_kv_received(struct server *s, uint64_t bytes); /* a block */
void metrics_kv_refused(struct server *s, const char *reason);
void metrics_kv_fetched(struct server *s, const char *outcome, uint64_t us);
void metrics_rejected(struct exchange *x);
void metrics_choice_end(struct exchange *x, const char *reason, const struct token_event *ev);

#endif
