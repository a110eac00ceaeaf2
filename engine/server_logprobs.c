/* server_logprobs.c - log-probabilities in the two shapes of the API. A token's entry is told once
 * its text is out, and never when its text was cut off by a stop string, so that tokens and text
 * always end at the same place. Every entry has its raw bytes: a token may be part of a character.
 */
#include <string.h>

#include "base/mem.h"
#include "engine/server.h"

static struct str bytes_of(const struct exchange *x, int32_t id)
{
    return tokenizer_bytes(x->server->tokenizer, id, true);
}

void logprobs_add(struct exchange *x, struct choice_out *c, const struct token_event *ev)
{
    size_t n_bytes = exchange_token_bytes(x, ev->id).n;
    if (x->request.logprobs) {
        if (c->n_logged == c->cap_logged) {
            c->cap_logged = c->cap_logged ? 2 * c->cap_logged : 16;
            c->logged = xrealloc(c->logged, c->cap_logged * sizeof *c->logged);
        }
        struct logged_token *t = &c->logged[c->n_logged++];
        *t = (struct logged_token){
            .id = ev->id, .logprob = ev->logprob, .n_top = ev->n_top, .from = c->fed};
        memcpy(t->top, ev->top, sizeof t->top);
    }
    c->fed += n_bytes;
    c->out = ev->released;
}

static void write_token_fields(const struct exchange *x, int32_t id, float logprob, struct buf *out)
{
    struct str s = bytes_of(x, id);
    buf_z(out, "\"token\":");
    json_write_string(out, s);
    buf_printf(out, ",\"logprob\":%.6g,\"bytes\":[", (double)logprob);
    for (size_t i = 0; i < s.n; i++)
        buf_printf(out, "%s%u", i ? "," : "", (unsigned)(unsigned char)s.p[i]);
    buf_char(out, ']');
}

static void write_chat(const struct exchange *x, const struct choice_out *c, size_t upto,
                       struct buf *out)
{
    buf_z(out, "{\"content\":[");
    for (size_t i = c->n_told; i < upto; i++) {
        const struct logged_token *t = &c->logged[i];
        buf_z(out, i > c->n_told ? ",{" : "{");
        write_token_fields(x, t->id, t->logprob, out);
        buf_z(out, ",\"top_logprobs\":[");
        for (int k = 0; k < t->n_top; k++) {
            buf_z(out, k ? ",{" : "{");
            write_token_fields(x, t->top[k].token, t->top[k].logprob, out);
            buf_char(out, '}');
        }
        buf_z(out, "]}");
    }
    buf_z(out, "],\"refusal\":null}");
}

static size_t n_characters(struct str s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++)
        n += ((unsigned char)s.p[i] & 0xC0) != 0x80;
    return n;
}

/* A token as the older shape names it: its text, or "bytes:\\xe4..." where that is part of a
 * character, so that different parts keep different names. */
static void write_name(const struct exchange *x, int32_t id, struct buf *out)
{
    struct str s = bytes_of(x, id);
    if (utf8_valid(s)) {
        json_write_string(out, s);
        return;
    }
    buf_z(out, "\"bytes:");
    for (size_t i = 0; i < s.n; i++)
        buf_printf(out, "\\\\x%02x", (unsigned)(unsigned char)s.p[i]);
    buf_char(out, '"');
}

static bool text_was_before(const struct exchange *x, const struct logged_token *t, int k)
{
    for (int i = 0; i < k; i++)
        if (str_eq(bytes_of(x, t->top[i].token), bytes_of(x, t->top[k].token))) return true;
    return false;
}

/* Two tokens may have one text; a member may stand in an object only once, and the likelier wins. */
static void write_top(const struct exchange *x, const struct logged_token *t, struct buf *out)
{
    buf_char(out, '{');
    for (int k = 0; k < t->n_top; k++) {
        if (text_was_before(x, t, k)) continue;
        if (k) buf_char(out, ',');
        write_name(x, t->top[k].token, out);
        buf_printf(out, ":%.6g", (double)t->top[k].logprob);
    }
    buf_char(out, '}');
}

/* The older shape of /v1/completions: parallel arrays. */
static void write_completion(const struct exchange *x, struct choice_out *c, size_t upto,
                             struct buf *out)
{
    buf_z(out, "{\"tokens\":[");
    for (size_t i = c->n_told; i < upto; i++) {
        if (i > c->n_told) buf_char(out, ',');
        write_name(x, c->logged[i].id, out);
    }
    buf_z(out, "],\"token_logprobs\":[");
    for (size_t i = c->n_told; i < upto; i++)
        buf_printf(out, "%s%.6g", i > c->n_told ? "," : "", (double)c->logged[i].logprob);
    buf_z(out, "],\"top_logprobs\":[");
    for (size_t i = c->n_told; i < upto; i++) {
        if (i > c->n_told) buf_char(out, ',');
        write_top(x, &c->logged[i], out);
    }
    buf_z(out, "],\"text_offset\":[");
    for (size_t i = c->n_told; i < upto; i++) {
        buf_printf(out, "%s%zu", i > c->n_told ? "," : "", c->text_offset);
        c->text_offset += n_characters(bytes_of(x, c->logged[i].id));
    }
    buf_z(out, "]}");
}

void logprobs_write(struct exchange *x, struct choice_out *c, bool all, struct buf *out)
{
    if (!x->request.logprobs) {
        buf_z(out, "null");
        return;
    }
    size_t upto = c->n_told;
    while (upto < c->n_logged && (all || c->logged[upto].from < c->out))
        upto++;
    if (x->kind == OPENAI_CHAT)
        write_chat(x, c, upto, out);
    else
        write_completion(x, c, upto, out);
    c->n_told = upto;
}
