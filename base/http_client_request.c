/* http_client_request.c - the pure part of the client: origins out of URLs, requests into bytes. */
#include <string.h>

#include "base/http_client_request.h"

static bool path_ok(struct str path)
{
    for (size_t i = 0; i < path.n; i++) {
        unsigned char c = (unsigned char)path.p[i];
        if (c <= 0x20 || c >= 0x7F || c == '#') return false;
    }
    return true;
}

static bool host_ok(struct str host)
{
    for (size_t i = 0; i < host.n; i++) {
        unsigned char c = (unsigned char)host.p[i];
        if (c <= 0x20 || c >= 0x7F || strchr("/?#@[]\\%,\"<>", c)) return false;
    }
    return host.n > 0;
}

/* Cuts authority into host and port text; an address of IPv6 stands in brackets. */
static bool split_authority(struct str authority, struct str *host, struct str *port)
{
    *port = (struct str){NULL, 0};
    if (authority.n && authority.p[0] == '[') {
        ptrdiff_t end = str_find_char(authority, ']');
        if (end < 0) return false;
        *host = str_sub(authority, 1, (size_t)end - 1);
        authority = str_sub(authority, (size_t)end + 1, authority.n);
        if (!authority.n) return host->n > 0;
        *port = str_sub(authority, 1, authority.n);
        return authority.p[0] == ':' && host->n > 0 && port->n > 0;
    }
    ptrdiff_t colon = str_find_char(authority, ':');
    *host = colon < 0 ? authority : str_sub(authority, 0, (size_t)colon);
    if (colon >= 0) *port = str_sub(authority, (size_t)colon + 1, authority.n);
    return colon < 0 || port->n > 0;
}

static void copy_lower(char *out, struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        out[i] = s.p[i] >= 'A' && s.p[i] <= 'Z' ? (char)(s.p[i] + 32) : s.p[i];
    out[s.n] = 0;
}

bool http_is_url(const char *text)
{
    return str_starts(str_of(text), STR("http://")) || str_starts(str_of(text), STR("https://"));
}

enum err http_origin_parse(struct str url, struct http_origin *out, struct errmsg *e)
{
    struct http_origin o = {0};
    struct str rest, host, port;
    o.tls = str_ieq(str_sub(url, 0, 8), STR("https://"));
    if (!o.tls && !str_ieq(str_sub(url, 0, 7), STR("http://")))
        return err_set(e, ERR_INVALID,
                       "\"" STR_FMT "\": expected http://host[:port][/path] or https://",
                       STR_ARG(url));
    rest = str_sub(url, o.tls ? 8 : 7, url.n);
    ptrdiff_t slash = str_find_char(rest, '/');
    struct str authority = slash < 0 ? rest : str_sub(rest, 0, (size_t)slash);
    struct str path = slash < 0 ? (struct str){"", 0} : str_sub(rest, (size_t)slash, rest.n);
    while (path.n && path.p[path.n - 1] == '/')
        path.n--;
    if (str_find_char(authority, '@') >= 0)
        return err_set(e, ERR_INVALID,
                       "URL: user and password are not taken from it, give the key as an option");
    bool literal = authority.n && authority.p[0] == '[';
    if (!split_authority(authority, &host, &port) || !host_ok(host) ||
        (!literal && str_find_char(host, ':') >= 0))
        return err_set(e, ERR_INVALID, "\"" STR_FMT "\": the host is not valid", STR_ARG(url));
    if (host.n >= sizeof o.host || path.n >= sizeof o.base_path)
        return err_set(e, ERR_TOO_LARGE, "URL: host and path may have 255 bytes each");
    if (!path_ok(path) || str_find_char(path, '?') >= 0)
        return err_set(e, ERR_INVALID,
                       "\"" STR_FMT "\": the path must be plain, without query or fragment",
                       STR_ARG(url));
    int64_t number = o.tls ? 443 : 80;
    if (port.n && str_to_i64(port, 1, 65535, &number))
        return err_set(e, ERR_INVALID, "\"" STR_FMT "\": the port must be 1 to 65535",
                       STR_ARG(url));
    o.port = (int)number;
    copy_lower(o.host, host);
    memcpy(o.base_path, path.p ? path.p : "", path.n);
    *out = o;
    return OK;
}

struct str http_head_find(const struct http_reply_head *head, const char *name)
{
    return http_fields_find(head->headers, head->n_headers, name);
}

static bool is_clients_own(struct str name)
{
    static const char *const own[] = {
        "host", "content-length", "connection", "transfer-encoding", "keep-alive", "upgrade",
        "te",   "trailer",        "expect",     "proxy-connection"};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (str_ieq(name, str_of(own[i]))) return true;
    return false;
}

static void add_host(struct buf *b, const struct http_origin *o)
{
    bool literal = strchr(o->host, ':') != NULL;
    buf_z(b, literal ? "Host: [" : "Host: ");
    buf_z(b, o->host);
    if (literal) buf_char(b, ']');
    if (o->port != (o->tls ? 443 : 80)) {
        buf_char(b, ':');
        buf_u64(b, (uint64_t)o->port);
    }
    buf_z(b, "\r\n");
}

enum err http_request_write(struct buf *b, const struct http_call_options *o, struct errmsg *e)
{
    struct str method = str_of(o->method), path = str_of(o->path);
    if (!http_token_ok(method)) return err_set(e, ERR_INVALID, "the method is not a token");
    if (!path_ok(path) || !path_ok(str_of(o->origin->base_path)) ||
        (path.n && path.p[0] != '/' && path.p[0] != '?'))
        return err_set(e, ERR_INVALID,
                       "the path must begin with '/' and hold no blanks or control characters");
    buf_str(b, method);
    buf_char(b, ' ');
    buf_z(b, o->origin->base_path);
    buf_str(b, path.n || o->origin->base_path[0] ? path : STR("/"));
    buf_z(b, " HTTP/1.1\r\n");
    add_host(b, o->origin);
    for (size_t i = 0; i < o->n_headers; i++) {
        struct http_header h = o->headers[i];
        if (!http_token_ok(h.name) || !http_value_ok(h.value))
            return err_set(e, ERR_INVALID,
                           "header %zu (\"" STR_FMT
                           "\") holds a line break or its name is no token",
                           i, STR_ARG(h.name));
        if (is_clients_own(h.name)) continue;
        buf_str(b, h.name);
        buf_z(b, ": ");
        buf_str(b, h.value);
        buf_z(b, "\r\n");
    }
    bool sends_body = str_eqz(method, "POST") || str_eqz(method, "PUT") || str_eqz(method, "PATCH");
    if (o->body.n || sends_body) {
        buf_z(b, "Content-Length: ");
        buf_u64(b, o->body.n);
        buf_z(b, "\r\n");
    }
    buf_z(b, "Connection: keep-alive\r\n\r\n");
    buf_str(b, o->body);
    return buf_failed(b)
               ? err_set(e, ERR_TOO_LARGE, "no memory for a request of %zu bytes", o->body.n)
               : OK;
}
