/* http_body.c - body framing of http_parse.h: counted, chunked, to the end of the connection.
 * Chunked (RFC 9112 7.1) without any latitude: hexadecimal size at once, no blanks, extensions read over and bounded,
 * CRLF exact, trailers read over and bounded. Own code because llhttp 8's default build skips two arbitrary bytes after
 * a chunk and takes CR with any byte after it for a line end. */
#include <string.h>

#include "base/http_parse.h"

enum { CHUNK_LINE_MAX = 1024, TRAILERS_MAX = 8192, SIZE_DIGITS_MAX = 16 };
enum {
    SIZE,
    EXTENSION,
    SIZE_LF,
    CONTENT,
    CONTENT_CR,
    CONTENT_LF,
    TRAILER_START,
    TRAILER_NAME,
    TRAILER_VALUE,
    TRAILER_LF,
    END_LF
};

void http_body_begin(struct http_body *b, enum http_framing framing, uint64_t length)
{
    *b = (struct http_body){.framing = framing};
    if (framing == HTTP_BODY_LENGTH) b->left = length;
    b->done = framing == HTTP_BODY_NONE || (framing == HTTP_BODY_LENGTH && length == 0);
    b->phase = SIZE;
}

static bool is_text(unsigned char c)
{
    return c == '\t' || (c >= 0x20 && c != 0x7F);
}

static enum err size_byte(struct http_body *b, unsigned char c)
{
    int digit = hex_value((char)c);
    if (digit >= 0) {
        if (++b->n_digits > SIZE_DIGITS_MAX || b->left > (uint64_t)INT64_MAX >> 4)
            return ERR_CORRUPT;
        b->left = b->left << 4 | (uint64_t)digit;
        return OK;
    }
    if (!b->n_digits || (c != ';' && c != '\r')) return ERR_CORRUPT;
    b->phase = c == ';' ? EXTENSION : SIZE_LF;
    return OK;
}

/* Trailer lines: token ':' text CRLF. What they say is dropped. */
static enum err trailer_byte(struct http_body *b, unsigned char c)
{
    if (++b->n_line > TRAILERS_MAX) return ERR_CORRUPT;
    char one = (char)c;
    bool token = http_token_ok((struct str){&one, 1});
    switch (b->phase) {
    case TRAILER_START:
        b->phase = c == '\r' ? END_LF : TRAILER_NAME;
        return token || c == '\r' ? OK : ERR_CORRUPT;
    case TRAILER_NAME:
        if (c == ':') b->phase = TRAILER_VALUE;
        return token || c == ':' ? OK : ERR_CORRUPT;
    case TRAILER_VALUE:
        if (c == '\r') b->phase = TRAILER_LF;
        return is_text(c) || c == '\r' ? OK : ERR_CORRUPT;
    default: /* TRAILER_LF */
        b->phase = TRAILER_START;
        return c == '\n' ? OK : ERR_CORRUPT;
    }
}

static enum err framing_byte(struct http_body *b, unsigned char c)
{
    switch (b->phase) {
    case SIZE:
        return size_byte(b, c);
    case EXTENSION:
        if (++b->n_line > CHUNK_LINE_MAX) return ERR_CORRUPT;
        if (c == '\r') b->phase = SIZE_LF;
        return is_text(c) || c == '\r' ? OK : ERR_CORRUPT;
    case SIZE_LF:
        b->n_line = 0;
        b->n_digits = 0;
        b->phase = b->left ? CONTENT : TRAILER_START;
        return c == '\n' ? OK : ERR_CORRUPT;
    case CONTENT_CR:
        b->phase = CONTENT_LF;
        return c == '\r' ? OK : ERR_CORRUPT;
    case CONTENT_LF:
        b->phase = SIZE;
        return c == '\n' ? OK : ERR_CORRUPT;
    case END_LF:
        b->done = true;
        return c == '\n' ? OK : ERR_CORRUPT;
    default:
        return trailer_byte(b, c);
    }
}

enum err http_body_step(struct http_body *b, struct str in, size_t *used, struct str *content)
{
    *used = 0;
    *content = (struct str){in.p, 0};
    if (b->done || !in.n) return OK;
    if (b->framing == HTTP_BODY_TO_CLOSE) {
        *content = in;
        *used = in.n;
        return OK;
    }
    while (b->framing == HTTP_BODY_CHUNKED && b->phase != CONTENT && !b->done && *used < in.n) {
        enum err bad = framing_byte(b, (unsigned char)in.p[*used]);
        if (bad) return bad;
        ++*used;
    }
    if (b->done || *used == in.n) return OK;
    size_t n = in.n - *used;
    if (n > b->left) n = (size_t)b->left;
    *content = (struct str){in.p + *used, n};
    *used += n;
    b->left -= n;
    if (b->left) return OK;
    if (b->framing == HTTP_BODY_LENGTH)
        b->done = true;
    else
        b->phase = CONTENT_CR;
    return OK;
}
