/* guard_stem.c - base forms of English words, and slips of the keyboard. Rules only, no dictionary: several candidates may come
 * out, and two words are forms of one when their candidates meet. */
#include <string.h>

#include "cache/guard_text.h"

static bool vowel(char c)
{
    return c == 'a' || c == 'e' || c == 'i' || c == 'o' || c == 'u' || c == 'y';
}

static bool has_vowel(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (vowel(s.p[i])) return true;
    return false;
}

static void add(struct guard_text *t, struct str base, const char *tail,
                struct str out[GUARD_STEMS_MAX], size_t *n)
{
    if (*n == GUARD_STEMS_MAX) return;
    char word[64];
    size_t m = strlen(tail);
    if (base.n + m > sizeof word) return;
    memcpy(word, base.p, base.n);
    memcpy(word + base.n, tail, m);
    struct str made = guard_text_keep(t, (struct str){word, base.n + m});
    for (size_t i = 0; i < *n; i++)
        if (str_eq(out[i], made)) return;
    out[(*n)++] = made;
}

/* base of an -ing or -ed form, the ending taken off */
static void add_verb_bases(struct guard_text *t, struct str base, struct str out[GUARD_STEMS_MAX],
                           size_t *n)
{
    if (base.n < 2 || !has_vowel(base)) return;
    char last = base.p[base.n - 1], before = base.p[base.n - 2];
    if (last == before && !vowel(last)) { /* stopped -> stop, installed -> install */
        if (last != 'l' && last != 's' && last != 'z' && last != 'f') {
            add(t, str_sub(base, 0, base.n - 1), "", out, n);
        } else {
            add(t, base, "", out, n);
            add(t, str_sub(base, 0, base.n - 1), "", out, n);
        }
        return;
    }
    bool short_syllable =
        base.n <= 4 && !vowel(last) && vowel(before) && (base.n < 3 || !vowel(base.p[base.n - 3]));
    if (!short_syllable || last == 'w' || last == 'x')
        add(t, base, "", out, n); /* a short one would have doubled: car+ing is care */
    if (last != 'y') add(t, base, "e", out, n);
}

size_t guard_stems(struct guard_text *t, struct str w, struct str out[GUARD_STEMS_MAX])
{
    size_t n = 0;
    out[n++] = w;
    if (w.n < 4 || w.n > 48 || str_eqz(w, "news") || str_eqz(w, "lens") || str_eqz(w, "always") ||
        str_eqz(w, "series") || str_eqz(w, "species"))
        return n;
    if (str_ends(w, STR("ies")) && w.n > 4) {
        add(t, str_sub(w, 0, w.n - 3), "y", out, &n);
    } else if (str_ends(w, STR("es")) && w.n > 4 &&
               (strchr("sxzo", w.p[w.n - 3]) || str_ends(w, STR("ches")) ||
                str_ends(w, STR("shes")))) {
        add(t, str_sub(w, 0, w.n - 2), "", out, &n);
        add(t, str_sub(w, 0, w.n - 1), "", out, &n);
    } else if (w.p[w.n - 1] == 's' && !strchr("sui", w.p[w.n - 2])) {
        add(t, str_sub(w, 0, w.n - 1), "", out, &n);
    } else if (str_ends(w, STR("ied")) && w.n > 4) {
        add(t, str_sub(w, 0, w.n - 3), "y", out, &n);
    } else if (str_ends(w, STR("ing")) && w.n > 5) {
        add_verb_bases(t, str_sub(w, 0, w.n - 3), out, &n);
    } else if (str_ends(w, STR("in")) && w.n > 5) { /* workin */
        add_verb_bases(t, str_sub(w, 0, w.n - 2), out, &n);
    } else if (str_ends(w, STR("ed")) && w.n > 4) {
        add_verb_bases(t, str_sub(w, 0, w.n - 2), out, &n);
    }
    for (size_t i = 0; i < n; i++) { /* organise, organize */
        ptrdiff_t at = w.n >= 7 ? str_find(out[i], STR("is")) : -1;
        bool ise = at > 2 && (str_ends(out[i], STR("ise")) || str_ends(out[i], STR("isation")) ||
                              str_ends(out[i], STR("yse")));
        if (ise && n < GUARD_STEMS_MAX) {
            struct str z = guard_text_keep(t, out[i]);
            size_t s_at = z.n - (str_ends(z, STR("isation")) ? 6 : 2);
            if (z.n) ((char *)(uintptr_t)z.p)[s_at] = 'z';
            out[n++] = z;
            break;
        }
    }
    return n;
}

void guard_shared_ends(struct str a, struct str b, size_t *head, size_t *tail)
{
    size_t n = a.n < b.n ? a.n : b.n, h = 0, t = 0;
    while (h < n && a.p[h] == b.p[h])
        h++;
    while (t < n - h && a.p[a.n - 1 - t] == b.p[b.n - 1 - t])
        t++;
    *head = h;
    *tail = t;
}

/* Longest common prefix and suffix leave what was edited. Allowed: two neighbours swapped, a letter doubled or single that was the
 * other way round, one letter missing or too many inside, one vowel for another
 * inside, behind the first three letters (pre-, pro-, per- are words of their own). */
bool guard_typo(struct str a, struct str b)
{
    if (a.n > b.n) {
        struct str swap = a;
        a = b;
        b = swap;
    }
    if (a.n < 5 || b.n < 6 || b.n - a.n > 1 || a.p[0] != b.p[0]) return false;
    size_t head, tail;
    guard_shared_ends(a, b, &head, &tail);
    size_t da = a.n - head - tail, db = b.n - head - tail;
    if (head < 2) return false;
    if (da == 0 && db == 1) {
        char c = b.p[head];
        bool doubled = (head > 0 && b.p[head - 1] == c) || (head + 1 < b.n && b.p[head + 1] == c);
        return doubled || ((b.n >= 8 || (b.n >= 7 && vowel(c))) && tail >= 1);
    }
    if (da == 2 && db == 2) return a.p[head] == b.p[head + 1] && a.p[head + 1] == b.p[head];
    if (da == 1 && db == 1)
        return head >= 3 && tail >= 1 && b.n >= 7 && vowel(a.p[head]) && vowel(b.p[head]);
    return false;
}
