/* multipart.c - see multipart.h. One state machine over bytes. The delimiter is CRLF "--" boundary; what looks like its beginning is held
 * back by count alone, since the held bytes are the delimiter's own. */
#include "base/multipart.h"

#include <string.h>

#include "base/mem.h"

enum { DELIMITER_MAX = 4 + MULTIPART_BOUNDARY_MAX, PADDING_MAX = 64 };

enum state { AT_DELIMITER_END, AT_HEADERS, IN_CONTENT, AT_EPILOGUE };

struct multipart {
    struct multipart_handler h;
    enum state state;
    char delimiter[DELIMITER_MAX + 1]; /* "\r\n--boundary" */
    size_t n_delimiter;
    size_t matched; /* bytes of the delimiter seen, in content */
    char tail[PADDING_MAX];
    size_t n_tail; /* after a boundary: "--" or padding CRLF */
    struct buf headers;
    bool begun, bad;
    int n_parts;
};

/* --- Content-Type */
static struct str parameter(struct str text, const char *name, char *out, size_t cap)
{
    struct str key = str_of(name);
    size_t i = 0;
    while (i < text.n) {
        while (i < text.n && (text.p[i] == ';' || text.p[i] == ' ' || text.p[i] == '\t'))
            i++;
        size_t at = i;
        while (i < text.n && text.p[i] != '=' && text.p[i] != ';')
            i++;
        bool wanted = str_ieq(str_trim(str_sub(text, at, i - at)), key);
        if (i >= text.n || text.p[i] == ';') continue;
        size_t n = 0;
        bool quoted = ++i < text.n && text.p[i] == '"';
        if (quoted) i++;
        for (; i < text.n && (quoted ? text.p[i] != '"' : text.p[i] != ';'); i++) {
            if (quoted && text.p[i] == '\\' && i + 1 < text.n) i++;
            if (n == cap) return (struct str){0}; /* too long */
            out[n++] = text.p[i];
        }
        if (quoted && i >= text.n) return (struct str){0};
        if (quoted) i++;
        if (wanted) return quoted ? (struct str){out, n} : str_trim((struct str){out, n});
    }
    return (struct str){0};
}

static bool boundary_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (c && strchr("'()+_,-./:=? ", c));
}

enum err multipart_boundary(struct str content_type, char out[MULTIPART_BOUNDARY_MAX + 1],
                            struct errmsg *e)
{
    struct str rest = content_type, type;
    char value[MULTIPART_BOUNDARY_MAX + 1];
    bool any = str_next(&rest, ';', &type);
    if (!any || !str_ieq(str_trim(type), STR("multipart/form-data")))
        return err_set(e, ERR_UNSUPPORTED, "expected a body of Content-Type multipart/form-data");
    struct str found = parameter(rest, "boundary", value, sizeof value);
    if (!found.n || found.n > MULTIPART_BOUNDARY_MAX || found.p[found.n - 1] == ' ')
        return err_set(e, ERR_INVALID,
                       "Content-Type: expected a boundary of 1 to %d characters, as in "
                       "multipart/form-data; boundary=x",
                       MULTIPART_BOUNDARY_MAX);
    for (size_t i = 0; i < found.n; i++)
        if (!boundary_char(found.p[i]))
            return err_set(e, ERR_INVALID,
                           "Content-Type: the boundary holds a character that it may not hold");
    memcpy(out, found.p, found.n);
    out[found.n] = 0;
    return OK;
}

struct multipart *multipart_new(const char *boundary, const struct multipart_handler *h)
{
    struct multipart *m = xcalloc(1, sizeof *m);
    size_t n = strlen(boundary);
    ASSERT(n >= 1 && n <= MULTIPART_BOUNDARY_MAX);
    m->h = *h;
    memcpy(m->delimiter, "\r\n--", 4);
    memcpy(m->delimiter + 4, boundary, n);
    m->n_delimiter = n + 4;
    m->state = IN_CONTENT;
    m->matched = 2; /* the first delimiter needs no line break before it */
    buf_init(&m->headers, MULTIPART_HEADERS_MAX);
    return m;
}

void multipart_free(struct multipart *m)
{
    if (!m) return;
    buf_fini(&m->headers);
    mem_free(m);
}

/* --- one part's headers */
static enum err tell_part(struct multipart *m, struct errmsg *e)
{
    struct str rest = buf_view(&m->headers), line;
    char name[256], filename[1024];
    struct multipart_part part = {0};
    while (str_next(&rest, '\n', &line)) {
        if (!line.n || line.p[line.n - 1] != '\r')
            return err_set(e, ERR_INVALID, "part %d: a header line does not end with CR LF",
                           m->n_parts);
        line.n--;
        ptrdiff_t colon = str_find_char(line, ':');
        if (colon <= 0)
            return err_set(e, ERR_INVALID, "part %d: a header line without a name", m->n_parts);
        struct str key = str_sub(line, 0, (size_t)colon),
                   value = str_trim(str_sub(line, (size_t)colon + 1, line.n));
        if (str_ieq(key, STR("content-type"))) part.content_type = value;
        if (!str_ieq(key, STR("content-disposition"))) continue;
        struct str kind;
        bool any = str_next(&value, ';', &kind);
        if (!any || !str_ieq(str_trim(kind), STR("form-data")))
            return err_set(e, ERR_INVALID,
                           "part %d: expected Content-Disposition: form-data; name=\"...\"",
                           m->n_parts);
        part.name = parameter(value, "name", name, sizeof name);
        part.filename = parameter(value, "filename", filename, sizeof filename);
    }
    if (!part.name.n)
        return err_set(e, ERR_INVALID,
                       "part %d: expected Content-Disposition: form-data; name=\"...\"",
                       m->n_parts);
    return m->h.on_part(m->h.arg, &part) ? OK : err_set(e, ERR_CANCELLED, "refused");
}

static enum err header_byte(struct multipart *m, char c, struct errmsg *e)
{
    buf_char(&m->headers, c);
    if (buf_failed(&m->headers))
        return err_set(e, ERR_TOO_LARGE, "part %d: its headers are over %d bytes", m->n_parts,
                       MULTIPART_HEADERS_MAX);
    struct str all = buf_view(&m->headers);
    bool empty = str_eq(all, STR("\r\n"));
    if (!empty && !str_ends(all, STR("\r\n\r\n"))) return OK;
    m->headers.n -= 2;
    enum err code = tell_part(m, e);
    buf_clear(&m->headers);
    m->state = IN_CONTENT;
    m->matched = 0;
    return code;
}

/* After the boundary: "--" ends the body, else padding and CRLF. */
static enum err delimiter_byte(struct multipart *m, char c, struct errmsg *e)
{
    bool dash = m->n_tail && m->tail[0] == '-';
    if (m->n_tail == sizeof m->tail)
        return err_set(e, ERR_INVALID, "bytes follow a boundary on its line");
    m->tail[m->n_tail++] = c;
    if (dash && c == '-') {
        m->state = AT_EPILOGUE;
        return OK;
    }
    bool cr = m->n_tail >= 2 && m->tail[m->n_tail - 2] == '\r';
    if (cr && c == '\n') {
        if (++m->n_parts > MULTIPART_PARTS_MAX)
            return err_set(e, ERR_TOO_LARGE, "more than %d parts", MULTIPART_PARTS_MAX);
        m->state = AT_HEADERS;
        return OK;
    }
    bool padding = c == ' ' || c == '\t' || c == '\r' || (c == '-' && m->n_tail == 1);
    if (!padding || dash || cr)
        return err_set(e, ERR_INVALID, "bytes follow a boundary on its line");
    return OK;
}

/* --- content */
static enum err give(struct multipart *m, struct str bytes, struct errmsg *e)
{
    if (!bytes.n) return OK;
    if (!m->begun)
        return err_set(e, ERR_INVALID,
                       "the body does not begin with the boundary that its "
                       "Content-Type names");
    return m->h.on_bytes(m->h.arg, bytes) ? OK : err_set(e, ERR_CANCELLED, "refused");
}

/* Takes bytes of in up to the end of a delimiter or of in; *used says how many. */
static enum err content(struct multipart *m, struct str in, size_t *used, struct errmsg *e)
{
    size_t from = 0, i = 0;
    enum err code = OK;
    while (i < in.n && code == OK) {
        if (!m->matched) { /* straight to what may begin a delimiter */
            const char *cr = memchr(in.p + i, '\r', in.n - i);
            i = cr ? (size_t)(cr - in.p) : in.n;
            if (!cr) break;
        }
        if (in.p[i] == m->delimiter[m->matched]) {
            if (!m->matched) code = give(m, str_sub(in, from, i - from), e), from = i;
            i++;
            if (++m->matched < m->n_delimiter) continue;
            m->matched = 0;
            m->begun = true;
            m->state = AT_DELIMITER_END;
            m->n_tail = 0;
            *used = i;
            return code;
        }
        /* it was content after all; only a CR begins a delimiter, and it holds just one */
        code = give(m, (struct str){m->delimiter, m->matched}, e);
        m->matched = 0;
        from = i;
    }
    *used = in.n;
    if (code == OK && !m->matched) code = give(m, str_sub(in, from, i - from), e);
    return code;
}

enum err multipart_feed(struct multipart *m, struct str in, struct errmsg *e)
{
    enum err code = OK;
    ASSERT(!m->bad);
    for (size_t i = 0; i < in.n && code == OK;) {
        size_t used = 1;
        if (m->state == IN_CONTENT)
            code = content(m, str_sub(in, i, in.n), &used, e);
        else if (m->state == AT_HEADERS)
            code = header_byte(m, in.p[i], e);
        else if (m->state == AT_DELIMITER_END)
            code = delimiter_byte(m, in.p[i], e);
        else
            used = in.n - i; /* what follows the end means nothing */
        i += used;
    }
    m->bad = code != OK;
    return code;
}

enum err multipart_end(const struct multipart *m, struct errmsg *e)
{
    if (m->state == AT_EPILOGUE) return OK;
    return err_set(e, ERR_INVALID, "the body ends before its closing boundary");
}
