/* redis_url.c - what a Redis URL says. Pure. */
#include <stdio.h>
#include <string.h>

#include "base/redis_conn.h"

/* Copies s with %XX undone. False: does not fit, a bad escape, or a NUL. */
static bool unescape(struct str s, char *out, size_t cap)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (c == '%') {
            int byte = str_percent(s, i);
            if (byte < 0) return false;
            c = (char)byte;
            i += 2;
        }
        if (!c || n + 1 >= cap) return false;
        out[n++] = c;
    }
    out[n] = 0;
    return true;
}

static enum err parse_login(struct str login, struct redis_address *out, struct errmsg *e)
{
    ptrdiff_t colon = str_find_char(login, ':');
    struct str user = colon < 0 ? (struct str){NULL, 0} : str_sub(login, 0, (size_t)colon);
    struct str password = colon < 0 ? login : str_sub(login, (size_t)colon + 1, login.n);
    if (unescape(user, out->user, sizeof out->user) &&
        unescape(password, out->password, sizeof out->password))
        return OK;
    return err_set(e, ERR_INVALID,
                   "redis url: the user name or password is too long or has a bad %%XX");
}

static enum err parse_host(struct str host, struct redis_address *out, struct errmsg *e)
{
    struct str port = {NULL, 0};
    int64_t n = 6379;
    bool bracket = host.n && *host.p == '[';
    ptrdiff_t end = bracket ? str_find_char(host, ']') : str_find_char(host, ':');
    if (bracket && end < 0)
        return err_set(e, ERR_INVALID, "redis url: expected ] after the IPv6 address");
    struct str rest = bracket   ? str_sub(host, (size_t)end + 1, host.n)
                      : end < 0 ? port
                                : str_sub(host, (size_t)end, host.n);
    host = bracket   ? str_sub(host, 1, (size_t)end - 1)
           : end < 0 ? host
                     : str_sub(host, 0, (size_t)end);
    if (rest.n && *rest.p == ':') port = str_sub(rest, 1, rest.n);
    bool stray = rest.n && *rest.p != ':';
    if (stray || (rest.n && str_to_i64(port, 1, 65535, &n)))
        return err_set(e, ERR_INVALID, "redis url: expected a port from 1 to 65535 after the host");
    if (!host.n) host = STR("127.0.0.1");
    if (host.n >= sizeof out->host || !unescape(host, out->host, sizeof out->host))
        return err_set(e, ERR_INVALID, "redis url: the host name is too long");
    out->port = (int)n;
    return OK;
}

static enum err parse_tcp(struct str s, struct redis_address *out, struct errmsg *e)
{
    ptrdiff_t slash = str_find_char(s, '/');
    struct str db = slash < 0 ? (struct str){NULL, 0} : str_sub(s, (size_t)slash + 1, s.n);
    struct str where = slash < 0 ? s : str_sub(s, 0, (size_t)slash);
    int64_t n = 0;
    if (db.n && str_to_i64(db, 0, 1000000, &n))
        return err_set(e, ERR_INVALID, "redis url: expected a database number after the last /");
    out->db = (int)n;
    ptrdiff_t at = -1; /* the last @: a password may hold one */
    for (size_t i = 0; i < where.n; i++)
        if (where.p[i] == '@') at = (ptrdiff_t)i;
    enum err code = at < 0 ? OK : parse_login(str_sub(where, 0, (size_t)at), out, e);
    return code ? code : parse_host(str_sub(where, (size_t)(at + 1), where.n), out, e);
}

enum err redis_address_parse(const char *url, struct redis_address *out, struct errmsg *e)
{
    struct str s = str_of(url);
    *out = (struct redis_address){.port = 6379};
    if (str_starts(s, STR("redis://"))) return parse_tcp(str_sub(s, 8, s.n), out, e);
    if (str_starts(s, STR("rediss://")))
        return err_set(
            e, ERR_UNSUPPORTED,
            "redis url: TLS is not spoken here: put stunnel or a unix socket in between");
    if (!str_starts(s, STR("unix:")))
        return err_set(
            e, ERR_INVALID,
            "redis url: expected unix:/path.sock or redis://[:password@]host[:port][/db]");
    s = str_sub(s, 5, s.n);
    if (str_starts(s, STR("//"))) s = str_sub(s, 2, s.n);
    if (!s.n || s.n >= sizeof out->path)
        return err_set(e, ERR_INVALID,
                       "redis url: expected a socket path of at most %zu bytes after unix:",
                       sizeof out->path - 1);
    memcpy(out->path, s.p, s.n);
    return OK;
}
