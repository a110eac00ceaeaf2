/* http_parse.c - heads of http_parse.h. Lines first (bounds, CRLF, no folding), then llhttp over the whole head, then
 * the rules about framing and Host. See RFC 9112 sections 2.2, 3.2, 5.1, 6.1, 6.3. */
#include "base/http_parse.h"

#include <llhttp.h>
#include <string.h>

#include "base/mem.h"

enum { PIECE_BYTES = 4096, KEPT_BYTES = 16384, SKIPPED_MAX = 4, LENGTH_DIGITS_MAX = 18 };

static enum err refuse(struct http_refusal *why, int status, const char *code, const char *message)
{
    *why = (struct http_refusal){status, code, message};
    return ERR_INVALID;
}

static enum err bad_request(struct http_refusal *why, const char *message)
{
    return refuse(why, 400, "bad_request", message);
}

void http_head_init(struct http_head *h, bool is_reply, size_t bytes_max, int headers_max)
{
    *h = (struct http_head){.is_reply = is_reply, .headers_max = headers_max};
    buf_init(&h->raw, bytes_max);
}

void http_head_fini(struct http_head *h)
{
    buf_fini(&h->raw);
    mem_free(h->fields);
}

void http_head_clear(struct http_head *h)
{
    struct http_head fresh = {.raw = h->raw,
                              .is_reply = h->is_reply,
                              .headers_max = h->headers_max,
                              .fields = h->fields,
                              .fields_cap = h->fields_cap};
    if (fresh.raw.cap > KEPT_BYTES) {
        size_t bytes_max = fresh.raw.max;
        buf_fini(&fresh.raw);
        buf_init(&fresh.raw, bytes_max);
    }
    buf_clear(&fresh.raw);
    *h = fresh;
}

bool http_head_begun(const struct http_head *h)
{
    return h->raw.n > 0;
}

struct str http_fields_find(const struct http_header *fields, size_t n, const char *name)
{
    struct str wanted = str_of(name);
    for (size_t i = 0; i < n; i++)
        if (str_ieq(fields[i].name, wanted)) return fields[i].value;
    return (struct str){NULL, 0};
}

bool http_fields_have_token(const struct http_header *fields, size_t n, const char *name,
                            const char *token)
{
    struct str wanted = str_of(name), sought = str_of(token);
    for (size_t i = 0; i < n; i++) {
        struct str list = fields[i].value, item;
        if (!str_ieq(fields[i].name, wanted)) continue;
        while (str_next(&list, ',', &item))
            if (str_ieq(str_trim(item), sought)) return true;
    }
    return false;
}

bool http_value_ok(struct str value)
{
    for (size_t i = 0; i < value.n; i++)
        if (value.p[i] == '\r' || value.p[i] == '\n' || value.p[i] == 0) return false;
    return true;
}

bool http_token_ok(struct str name)
{
    static const bool token[256] = {
        ['0' ... '9'] = true, ['A' ... 'Z'] = true, ['a' ... 'z'] = true, ['!'] = true,
        ['#'] = true,         ['$'] = true,         ['%'] = true,         ['&'] = true,
        ['\''] = true,        ['*'] = true,         ['+'] = true,         ['-'] = true,
        ['.'] = true,         ['^'] = true,         ['_'] = true,         ['`'] = true,
        ['|'] = true,         ['~'] = true};
    for (size_t i = 0; i < name.n; i++)
        if (!token[(unsigned char)name.p[i]]) return false;
    return name.n > 0;
}

/* --- lines */

/* Empty lines before a message are tolerated, two of them (RFC 9112 2.2). Sets *i to the first byte that counts. */
static enum err skip_empty_lines(struct http_head *h, struct str in, size_t *i,
                                 struct http_refusal *why)
{
    for (; *i < in.n; ++*i) {
        bool within = h->n_skipped & 1; /* a CR was seen */
        if (in.p[*i] == (within ? '\n' : '\r')) {
            if (++h->n_skipped > SKIPPED_MAX)
                return bad_request(why, "Too many empty lines before the request.");
            continue;
        }
        if (within) return bad_request(why, "A line must end in CR LF.");
        if (!http_token_ok((struct str){in.p + *i, 1}))
            return bad_request(why, "This is not an HTTP/1.1 request.");
        return OK;
    }
    return ERR_AGAIN;
}

/* Checks one line [line_at, lf); its last byte must be the CR. */
static enum err check_line(const struct http_head *h, size_t lf, struct http_refusal *why)
{
    const char *line = h->raw.p + h->line_at;
    size_t n = lf - h->line_at;
    if (n == 0 || line[n - 1] != '\r')
        return bad_request(why, "A line must end in CR LF, not in LF alone.");
    n--;
    if (n && memchr(line, '\r', n)) return bad_request(why, "CR inside a line.");
    if (n && memchr(line, 0, n)) return bad_request(why, "NUL byte in the head.");
    if (n && h->n_lines > 0 && (line[0] == ' ' || line[0] == '\t'))
        return bad_request(why, "Folded header lines are obsolete and refused.");
    if (n && h->n_lines > h->headers_max)
        return refuse(why, 431, "headers_too_large", "The request has too many header fields.");
    return OK;
}

/* Searches what is new in raw. OK: *end is the offset after the empty line. */
static enum err scan_lines(struct http_head *h, size_t *end, struct http_refusal *why)
{
    for (;;) {
        char *lf = memchr(h->raw.p + h->scan_at, '\n', h->raw.n - h->scan_at);
        if (!lf) break;
        size_t at = (size_t)(lf - h->raw.p);
        enum err bad = check_line(h, at, why);
        if (bad) return bad;
        *end = at + 1;
        if (at == h->line_at + 1) return OK;
        h->n_lines++;
        h->line_at = h->scan_at = at + 1;
    }
    h->scan_at = h->raw.n;
    return ERR_AGAIN;
}

/* --- llhttp over the whole head */

static void add_field(struct http_head *h)
{
    if (h->n_fields == h->fields_cap) {
        h->fields_cap = h->fields_cap ? 2 * h->fields_cap : 16;
        h->fields = xrealloc(h->fields, (size_t)h->fields_cap * sizeof h->fields[0]);
    }
    h->fields[h->n_fields++] = (struct http_header){{NULL, 0}, {"", 0}};
}

static int on_field(llhttp_t *p, const char *at, size_t n)
{
    struct http_head *h = p->data;
    add_field(h);
    h->fields[h->n_fields - 1].name = (struct str){at, n};
    return 0;
}

static int on_value(llhttp_t *p, const char *at, size_t n)
{
    struct http_head *h = p->data;
    if (h->n_fields) h->fields[h->n_fields - 1].value = str_trim((struct str){at, n});
    return 0;
}

static int on_head(llhttp_t *p)
{
    struct http_head *h = p->data;
    h->status = p->status_code;
    return HPE_PAUSED; /* the body is not llhttp's */
}

static bool read_fields(struct http_head *h)
{
    static const llhttp_settings_t settings = {
        .on_header_field = on_field, .on_header_value = on_value, .on_headers_complete = on_head};
    llhttp_t parser;
    llhttp_init(&parser, h->is_reply ? HTTP_RESPONSE : HTTP_REQUEST, &settings);
    parser.data = h;
    h->n_fields = 0;
    llhttp_errno_t result = llhttp_execute(&parser, h->raw.p, h->raw.n);
    if (result != HPE_PAUSED || h->n_fields != h->n_lines - 1) return false;
    for (int i = 0; i < h->n_fields; i++)
        if (!http_token_ok(h->fields[i].name)) return false;
    return true;
}

/* --- rules */

static int count_fields(const struct http_head *h, const char *name, struct str *value)
{
    int n = 0;
    struct str wanted = str_of(name);
    for (int i = 0; i < h->n_fields; i++) {
        if (!str_ieq(h->fields[i].name, wanted)) continue;
        if (n++ == 0) *value = h->fields[i].value;
    }
    return n;
}

static enum err read_length(struct str digits, uint64_t *length, struct http_refusal *why)
{
    *length = 0;
    for (size_t i = 0; i < digits.n; i++) {
        if (digits.p[i] < '0' || digits.p[i] > '9')
            return bad_request(why, "Content-Length is not a number.");
        if (i >= LENGTH_DIGITS_MAX)
            return refuse(why, 413, "body_too_large", "Content-Length is too large.");
        *length = *length * 10 + (uint64_t)(digits.p[i] - '0');
    }
    return digits.n ? OK : bad_request(why, "Content-Length is empty.");
}

/* What says where the body ends; more than one opinion is an attack or a mistake (RFC 9112 6.3, 11.2). */
static enum err set_framing(struct http_head *h, struct http_refusal *why)
{
    struct str length = {NULL, 0}, coding = {NULL, 0};
    int n_lengths = count_fields(h, "content-length", &length);
    int n_codings = count_fields(h, "transfer-encoding", &coding);
    h->framing = HTTP_BODY_NONE;
    if (n_lengths && n_codings)
        return bad_request(why, "Content-Length and Transfer-Encoding exclude each other.");
    if (n_lengths > 1) return bad_request(why, "More than one Content-Length.");
    if (n_codings > 1) return bad_request(why, "More than one Transfer-Encoding.");
    if (n_codings && !h->http_11) return bad_request(why, "Transfer-Encoding needs HTTP/1.1.");
    if (n_codings && !str_ieq(coding, STR("chunked")))
        return refuse(why, 501, "unsupported_transfer_encoding",
                      "The only transfer coding supported is chunked.");
    if (n_codings) h->framing = HTTP_BODY_CHUNKED;
    if (!n_lengths) return OK;
    h->framing = HTTP_BODY_LENGTH;
    return read_length(length, &h->length, why);
}

static void set_keep_alive(struct http_head *h)
{
    size_t n = (size_t)h->n_fields;
    bool close = http_fields_have_token(h->fields, n, "connection", "close");
    h->keep_alive =
        !close && (h->http_11 || http_fields_have_token(h->fields, n, "connection", "keep-alive"));
}

static bool method_known(struct str method)
{
    static const char *const known[] = {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (str_eqz(method, known[i])) return true;
    return false;
}

/* Sets path and query from the target: origin-form, absolute-form with http(s), or '*' with OPTIONS. */
static bool split_target(struct http_head *h)
{
    struct str rest = h->target;
    for (size_t i = 0; i < rest.n; i++) {
        unsigned char c = (unsigned char)rest.p[i];
        if (c <= 0x20 || c >= 0x7F || c == '#') return false;
    }
    if (str_eqz(rest, "*")) {
        h->path = rest;
        return str_eqz(h->method, "OPTIONS");
    }
    if (rest.n && rest.p[0] != '/') {
        size_t scheme_n = str_ieq(str_sub(rest, 0, 7), STR("http://"))    ? 7
                          : str_ieq(str_sub(rest, 0, 8), STR("https://")) ? 8
                                                                          : 0;
        if (!scheme_n) return false;
        rest = str_sub(rest, scheme_n, rest.n);
        size_t host_n = 0;
        while (host_n < rest.n && rest.p[host_n] != '/' && rest.p[host_n] != '?')
            host_n++;
        if (!host_n) return false;
        rest = str_sub(rest, host_n, rest.n);
        h->target = rest; /* who passes it on speaks to another host */
        if (!rest.n || rest.p[0] == '?') {
            h->path = STR("/");
            h->query = str_sub(rest, 1, rest.n);
            return true;
        }
    }
    ptrdiff_t mark = str_find_char(rest, '?');
    h->path = mark < 0 ? rest : str_sub(rest, 0, (size_t)mark);
    h->query = mark < 0 ? (struct str){"", 0} : str_sub(rest, (size_t)mark + 1, rest.n);
    return rest.n > 0;
}

/* method SP target SP HTTP/1.x, single spaces (RFC 9112 3). */
static enum err read_request_line(struct http_head *h, struct http_refusal *why)
{
    struct str line = str_sub(buf_view(&h->raw), 0, (size_t)str_find_char(buf_view(&h->raw), '\r'));
    struct str rest = line;
    if (!str_next(&rest, ' ', &h->method) || !str_next(&rest, ' ', &h->target))
        return bad_request(why, "The request line is not METHOD TARGET HTTP/1.1.");
    if (!http_token_ok(h->method)) return bad_request(why, "The method is not a token.");
    bool version = rest.n == 8 && str_starts(rest, STR("HTTP/")) && rest.p[6] == '.' &&
                   rest.p[5] >= '0' && rest.p[5] <= '9' && rest.p[7] >= '0' && rest.p[7] <= '9';
    if (!version || !h->target.n)
        return bad_request(why, "The request line is not METHOD TARGET HTTP/1.1.");
    h->http_11 = str_eqz(rest, "HTTP/1.1");
    if (!h->http_11 && !str_eqz(rest, "HTTP/1.0"))
        return refuse(why, 505, "unsupported_version",
                      "Only HTTP/1.1 and HTTP/1.0 are spoken here.");
    if (!method_known(h->method))
        return refuse(why, 501, "unsupported_method", "This method is not known here.");
    return split_target(h) ? OK : bad_request(why, "The request target is not valid.");
}

static bool host_ok(struct str host)
{
    for (size_t i = 0; i < host.n; i++) {
        unsigned char c = (unsigned char)host.p[i];
        if (c <= 0x20 || c >= 0x7F || strchr("/?#@\\,\"<>", c)) return false;
    }
    return true;
}

static enum err check_request(struct http_head *h, struct http_refusal *why)
{
    struct str host = {NULL, 0}, expect = {NULL, 0};
    int n_hosts = count_fields(h, "host", &host);
    if (n_hosts > 1) return bad_request(why, "More than one Host header.");
    if (!n_hosts && h->http_11) return bad_request(why, "HTTP/1.1 needs a Host header.");
    if (!host_ok(host)) return bad_request(why, "The Host header is not valid.");
    enum err bad = set_framing(h, why);
    if (bad) return bad;
    int n_expect = count_fields(h, "expect", &expect);
    if (n_expect && h->http_11) {
        h->expects_continue = n_expect == 1 && str_ieq(expect, STR("100-continue"));
        if (!h->expects_continue)
            return refuse(why, 417, "expectation_failed",
                          "The only expectation known is 100-continue.");
    }
    set_keep_alive(h);
    return OK;
}

/* A reply's framing before the method of its request is known: the client corrects for HEAD. */
static enum err check_reply(struct http_head *h, struct http_refusal *why)
{
    struct str raw = buf_view(&h->raw);
    if (h->status < 100 || h->status > 599 || raw.n < 12 || (raw.p[12] != ' ' && raw.p[12] != '\r'))
        return bad_request(why, "The status line is not valid.");
    h->http_11 = str_starts(raw, STR("HTTP/1.1 "));
    if (!h->http_11 && !str_starts(raw, STR("HTTP/1.0 ")))
        return bad_request(why, "The reply is not HTTP/1.1.");
    enum err bad = set_framing(h, why);
    if (bad) return bad;
    if (h->status < 200 || h->status == 204 || h->status == 304)
        h->framing = HTTP_BODY_NONE;
    else if (h->framing == HTTP_BODY_NONE)
        h->framing = HTTP_BODY_TO_CLOSE;
    set_keep_alive(h);
    if (h->framing == HTTP_BODY_TO_CLOSE) h->keep_alive = false;
    return OK;
}

static enum err parse(struct http_head *h, struct http_refusal *why)
{
    enum err bad = h->is_reply ? OK : read_request_line(h, why);
    if (bad) return bad;
    if (!read_fields(h)) return bad_request(why, "A header field is not valid.");
    return h->is_reply ? check_reply(h, why) : check_request(h, why);
}

enum err http_head_feed(struct http_head *h, struct str in, size_t *used, struct http_refusal *why)
{
    *used = 0;
    if (!h->raw.n) {
        enum err skipped = skip_empty_lines(h, in, used, why);
        if (skipped) return skipped;
    }
    while (*used < in.n) {
        size_t n = in.n - *used, before = h->raw.n, end = 0;
        if (n > PIECE_BYTES) n = PIECE_BYTES;
        if (n > h->raw.max - before) n = h->raw.max - before;
        if (!n)
            return refuse(why, 431, "headers_too_large",
                          "The request line and header fields are too large.");
        buf_add(&h->raw, in.p + *used, n);
        if (buf_failed(&h->raw))
            return refuse(why, 503, "out_of_memory", "No memory for this request now.");
        enum err found = scan_lines(h, &end, why);
        if (found == OK) {
            h->raw.n = end;
            *used += end - before;
            return parse(h, why);
        }
        *used += n;
        if (found != ERR_AGAIN) return found;
    }
    return ERR_AGAIN;
}
