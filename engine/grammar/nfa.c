/* nfa.c - see nfa.h. */
#include "engine/grammar/nfa.h"

#include <string.h>

#include "base/mem.h"

void nfa_init(struct nfa *a)
{
    *a = (struct nfa){0};
}

void nfa_fini(struct nfa *a)
{
    mem_free(a->node);
    mem_free(a->call);
    *a = (struct nfa){0};
}

static int add(struct nfa *a, struct nfa_node node)
{
    if (a->n == a->cap) {
        int cap = a->cap ? 2 * a->cap : 64;
        void *p = a->n < NFA_NODES_MAX ? try_realloc(a->node, (size_t)cap * sizeof *a->node) : NULL;
        if (!p) {
            ASSERT(a->cap); /* the first 64 are small */
            a->failed = true;
            return 0;
        }
        a->node = p;
        a->cap = cap;
    }
    a->node[a->n] = node;
    return a->n++;
}

int nfa_accept(struct nfa *a)
{
    return add(a, (struct nfa_node){.kind = NFA_ACCEPT});
}
int nfa_begin(struct nfa *a, int next)
{
    return add(a, (struct nfa_node){.kind = NFA_BEGIN, .a = next});
}
int nfa_end(struct nfa *a, int next)
{
    return add(a, (struct nfa_node){.kind = NFA_END, .a = next});
}
int nfa_bytes(struct nfa *a, uint8_t lo, uint8_t hi, uint32_t flags, int next)
{
    return add(a,
               (struct nfa_node){.kind = NFA_BYTE, .lo = lo, .hi = hi, .flags = flags, .a = next});
}
int nfa_split(struct nfa *a, int one, int other)
{
    return add(a, (struct nfa_node){.kind = NFA_SPLIT, .a = one, .b = other});
}
int nfa_head(struct nfa *a)
{
    int head = nfa_split(a, 0, 0);
    nfa_close(a, head, head, head);
    return head;
}
void nfa_close(struct nfa *a, int head, int one, int other)
{
    if (a->failed) return;
    a->node[head].a = one;
    a->node[head].b = other;
}
int nfa_never(struct nfa *a)
{
    return nfa_head(a); /* splits to itself */
}

int nfa_call(struct nfa *a, struct callee c, uint32_t flags, int next)
{
    int i = 0;
    while (i < a->n_calls && memcmp(&a->call[i], &c, sizeof c) != 0)
        i++;
    if (i == a->cap_calls) {
        a->cap_calls = a->cap_calls ? 2 * a->cap_calls : 8;
        a->call = xrealloc(a->call, (size_t)a->cap_calls * sizeof *a->call);
    }
    if (i == a->n_calls) a->call[a->n_calls++] = c;
    return add(a, (struct nfa_node){.kind = NFA_CALL, .flags = flags, .a = next, .b = i});
}

int nfa_text(struct nfa *a, struct str bytes, int next)
{
    for (size_t i = bytes.n; i-- > 0;)
        next = nfa_bytes(a, (uint8_t)bytes.p[i], (uint8_t)bytes.p[i], 0, next);
    return next;
}

/* Code points that take n bytes: up to limit[n]. */
static const uint32_t limit[5] = {0, 0x7F, 0x7FF, 0xFFFF, CHARSET_LAST};

/* One or several ways, collected in *ways (-1 = none yet). */
static void offer(struct nfa *a, int *ways, int node)
{
    *ways = *ways < 0 ? node : nfa_split(a, *ways, node);
}

/* lo..hi, both of n bytes, as byte ranges: where the first bytes differ, the range is cut so that all but the first differing
 * byte run over everything. */
static void utf8_range(struct nfa *a, struct char_range r, uint32_t flags, int next, int *ways)
{
    char lo[4], hi[4];
    size_t n = utf8_encode(r.lo, lo);
    utf8_encode(r.hi, hi);
    for (size_t tail = 1; tail < n; tail++) { /* the last `tail` bytes carry 6 bits each */
        uint32_t m = (1u << 6 * tail) - 1;
        if ((r.lo & ~m) == (r.hi & ~m)) continue;
        if (r.lo & m) {
            utf8_range(a, (struct char_range){r.lo, r.lo | m}, flags, next, ways);
            utf8_range(a, (struct char_range){(r.lo | m) + 1, r.hi}, flags, next, ways);
            return;
        }
        if ((r.hi & m) != m) {
            utf8_range(a, (struct char_range){r.lo, (r.hi & ~m) - 1}, flags, next, ways);
            utf8_range(a, (struct char_range){r.hi & ~m, r.hi}, flags, next, ways);
            return;
        }
    }
    for (size_t i = n; i-- > 0;)
        next = nfa_bytes(a, (uint8_t)lo[i], (uint8_t)hi[i], i ? 0 : flags, next);
    offer(a, ways, next);
}

/* Plain UTF-8, no escapes. */
static void plain_char(struct nfa *a, const struct charset *set, uint32_t flags, int next,
                       int *ways)
{
    for (int i = 0; i < set->n; i++)
        for (int n = 1; n <= 4; n++) {
            uint32_t from = n > 1 ? limit[n - 1] + 1 : 0;
            struct char_range r = set->range[i];
            if (r.lo < from) r.lo = from;
            if (r.hi > limit[n]) r.hi = limit[n];
            if (r.lo <= r.hi) utf8_range(a, r, flags, next, ways);
        }
}

static const char *short_escape(uint32_t c)
{
    switch (c) {
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    case '\b':
        return "\\b";
    case '\f':
        return "\\f";
    case '\n':
        return "\\n";
    case '\r':
        return "\\r";
    case '\t':
        return "\\t";
    default:
        return NULL;
    }
}

/* The one way this character is escaped, as most writers of JSON do it. */
static int escaped_char(struct nfa *a, uint32_t c, uint32_t flags, int next)
{
    char text[8];
    const char *escape = short_escape(c);
    if (!escape) {
        static const char hex[] = "0123456789abcdef";
        memcpy(text, "\\u00", 4);
        text[4] = hex[c >> 4 & 15];
        text[5] = hex[c & 15];
        text[6] = 0;
        escape = text;
    }
    next = nfa_text(a, str_of(escape + 1), next);
    return nfa_bytes(a, '\\', '\\', flags, next);
}

int nfa_char(struct nfa *a, const struct charset *set, uint32_t flags, int next)
{
    int ways = -1;
    a->failed |= set->failed;
    if (!a->json) {
        plain_char(a, set, flags, next, &ways);
        return ways < 0 ? nfa_never(a) : ways;
    }
    struct charset plain = {0}, part;
    const struct char_range fine[] = {
        {' ', '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, CHARSET_LAST}};
    for (int i = 0; i < 3; i++) {
        charset_within(set, fine[i].lo, fine[i].hi, &part);
        charset_add_all(&plain, &part);
    }
    plain_char(a, &plain, flags, next, &ways);
    for (uint32_t c = 0; c <= '\\'; c++)
        if ((c < ' ' || c == '"' || c == '\\') && charset_has(set, c))
            offer(a, &ways, escaped_char(a, c, flags, next));
    return ways < 0 ? nfa_never(a) : ways;
}
