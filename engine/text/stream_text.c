/* stream_text.c - three stages a byte: UTF-8 assembly (a broken sequence becomes one U+FFFD per maximal subpart, Unicode
 * 3.9 table 3-8), stop matching on the repaired text, and holding back of the longest tail that begins a stop string.
 * Everything is decided byte by byte from the state, so cutting the input elsewhere cannot change the result. */
#include "engine/text/stream_text.h"

#include <string.h>

#include "base/mem.h"

enum { STOPS_MAX = 16, STOP_BYTES_MAX = 1024 };

struct stream_text {
    struct str stops[STOPS_MAX];
    uint16_t *fail[STOPS_MAX]; /* [n] Knuth-Morris-Pratt: longest proper border of each prefix */
    size_t matched[STOPS_MAX]; /* bytes of the stop that the emitted-or-held text ends with */
    int n_stops;
    char held
        [STOP_BYTES_MAX]; /* tail not sent yet: whole characters, or the head of one inside a stop */
    uint8_t fed[STOP_BYTES_MAX]; /* how many bytes that were fed each of them stands for */
    size_t n_held;
    size_t released;          /* of the bytes that were fed, those whose text is out */
    unsigned char partial[4]; /* an unfinished UTF-8 sequence */
    size_t n_partial;
    bool stopped;
};

static void fill_borders(struct str stop, uint16_t *fail)
{
    fail[0] = 0;
    uint16_t k = 0;
    for (size_t i = 1; i < stop.n; i++) {
        while (k && stop.p[i] != stop.p[k])
            k = fail[k - 1];
        if (stop.p[i] == stop.p[k]) k++;
        fail[i] = k;
    }
}

enum err stream_text_new(struct stream_text **out, const struct str *stops, size_t n_stops,
                         struct errmsg *e)
{
    *out = NULL;
    if (n_stops > STOPS_MAX)
        return err_set(e, ERR_RANGE, "stop: %zu strings, expected at most %d", n_stops, STOPS_MAX);
    for (size_t i = 0; i < n_stops; i++) {
        if (!stops[i].n)
            return err_set(e, ERR_INVALID, "stop[%zu]: empty, expected at least one character", i);
        if (stops[i].n > STOP_BYTES_MAX)
            return err_set(e, ERR_RANGE, "stop[%zu]: %zu bytes, expected at most %d", i, stops[i].n,
                           STOP_BYTES_MAX);
        if (!utf8_valid(stops[i])) return err_set(e, ERR_INVALID, "stop[%zu]: not UTF-8", i);
    }
    struct stream_text *s = xcalloc(1, sizeof *s);
    for (size_t i = 0; i < n_stops; i++) {
        s->stops[i] = (struct str){xstrndup(stops[i].p, stops[i].n), stops[i].n};
        s->fail[i] = xcalloc(stops[i].n, sizeof *s->fail[i]);
        fill_borders(s->stops[i], s->fail[i]);
    }
    s->n_stops = (int)n_stops;
    *out = s;
    return OK;
}

void stream_text_free(struct stream_text *s)
{
    if (!s) return;
    for (int i = 0; i < s->n_stops; i++) {
        mem_free((char *)s->stops[i].p);
        mem_free(s->fail[i]);
    }
    mem_free(s);
}

size_t stream_text_released(const struct stream_text *s)
{
    return s->released;
}

/* Sends all but the last `keep` held bytes. */
static void release(struct stream_text *s, size_t keep, struct buf *out)
{
    size_t n = s->n_held - keep;
    buf_add(out, s->held, n);
    for (size_t i = 0; i < n; i++)
        s->released += s->fed[i];
    memmove(s->held, s->held + n, keep);
    memmove(s->fed, s->fed + n, keep);
    s->n_held = keep;
}

/* Takes one byte of good text, which stands for n_fed of the input. True when it completes a stop string: of several the longest, so that
 * less is shown. */
static bool push(struct stream_text *s, char c, size_t n_fed, struct buf *out)
{
    size_t keep = 0, hit = 0;
    for (int i = 0; i < s->n_stops; i++) {
        size_t k = s->matched[i];
        while (k && s->stops[i].p[k] != c)
            k = s->fail[i][k - 1];
        if (s->stops[i].p[k] == c) k++;
        if (k == s->stops[i].n) {
            hit = k > hit ? k : hit;
            k = s->fail[i][k - 1];
        }
        s->matched[i] = k;
        if (k > keep) keep = k;
    }
    /* Before c the held bytes were a prefix of some stop, at most STOP_BYTES_MAX - 1 of them: there is room. */
    ASSERT(s->n_held < STOP_BYTES_MAX);
    s->fed[s->n_held] = (uint8_t)n_fed;
    s->held[s->n_held++] = c;
    if (hit) {
        release(s, hit, out);
        s->n_held = 0;
        s->stopped = true;
        return true;
    }
    release(s, keep, out);
    return false;
}

static bool push_all(struct stream_text *s, const char *p, size_t n, struct buf *out)
{
    for (size_t i = 0; i < n; i++)
        if (push(s, p[i], 1, out)) return true;
    return false;
}

/* U+FFFD for a broken sequence of n_fed bytes. */
static bool push_broken(struct stream_text *s, size_t n_fed, struct buf *out)
{
    return push(s, '\xef', n_fed, out) || push(s, '\xbf', 0, out) || push(s, '\xbd', 0, out);
}

/* Bytes that a sequence with this lead has; 0 when no sequence starts so. */
static size_t length_of_lead(unsigned char c)
{
    if (c < 0x80) return 1;
    if (c >= 0xC2 && c <= 0xDF) return 2;
    if (c >= 0xE0 && c <= 0xEF) return 3;
    return c >= 0xF0 && c <= 0xF4 ? 4 : 0;
}

/* May c follow the bytes in partial (n of them) in a well-formed sequence? */
static bool continues(const unsigned char *partial, size_t n, unsigned char c)
{
    unsigned char lo = 0x80, hi = 0xBF;
    if (n == 1) {
        if (partial[0] == 0xE0) lo = 0xA0;
        if (partial[0] == 0xED) hi = 0x9F;
        if (partial[0] == 0xF0) lo = 0x90;
        if (partial[0] == 0xF4) hi = 0x8F;
    }
    return c >= lo && c <= hi;
}

static bool feed_byte(struct stream_text *s, unsigned char c, struct buf *out)
{
    if (s->n_partial && !continues(s->partial, s->n_partial, c)) {
        size_t broken = s->n_partial;
        s->n_partial = 0;
        if (push_broken(s, broken, out)) return true;
    }
    if (!s->n_partial) {
        size_t n = length_of_lead(c);
        if (n == 0) return push_broken(s, 1, out);
        if (n == 1) return push(s, (char)c, 1, out);
    }
    s->partial[s->n_partial++] = c;
    if (s->n_partial < length_of_lead(s->partial[0])) return false;
    size_t n = s->n_partial;
    s->n_partial = 0;
    return push_all(s, (char *)s->partial, n, out);
}

bool stream_text_feed(struct stream_text *s, struct str bytes, struct buf *out)
{
    for (size_t i = 0; i < bytes.n && !s->stopped; i++)
        if (feed_byte(s, (unsigned char)bytes.p[i], out)) return true;
    return s->stopped;
}

void stream_text_finish(struct stream_text *s, struct buf *out)
{
    if (s->stopped) return;
    size_t cut = s->n_partial;
    s->n_partial = 0;
    if (cut && push_broken(s, cut, out)) return;
    release(s, 0, out);
    s->stopped = true;
}
