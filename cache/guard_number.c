/* guard_number.c - numbers, dates and times as written in English and Chinese, read into one form each:
 *   n:12  n:0.5  n:1000   (thousands joined, words and Chinese numerals read, 万 and k multiplied; decimals kept as written, since
 *                          version 3.10 is not 3.1; with a currency, trailing zeros go)
 *   o:2                   ordinals
 *   t:15:00               times of day
 *   d:2025-06-01  d:-06-01  d:--05   dates, unknown parts empty; an order that cannot be known (03/04/2024) stays as written
 * The unit or currency behind a number lies in token->unit. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "cache/guard_text.h"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

struct reading { /* a cursor over the units */
    struct guard_text *t;
    const struct guard_lexicon *x;
    size_t i;
};

static const struct guard_unit *unit_at(const struct reading *r, size_t i)
{
    return i < r->t->n_units ? &r->t->units[i] : NULL;
}

static bool unit_is(const struct reading *r, size_t i, const char *text)
{
    const struct guard_unit *u = unit_at(r, i);
    return u && str_eqz(u->text, text);
}

static struct str keepf(struct guard_text *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
static struct str keepf(struct guard_text *t, const char *fmt, ...)
{
    char text[96];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return guard_text_keep(t, (struct str){text, n < 0                     ? 0
                                                 : (size_t)n < sizeof text ? (size_t)n
                                                                           : sizeof text - 1});
}

/* --- values */
struct value {
    char text[40]; /* digits with at most one dot */
    bool whole, ordinal, weak;
    int64_t n; /* when whole */
};

static void value_set(struct value *v, int64_t n)
{
    v->whole = true;
    v->n = n;
    snprintf(v->text, sizeof v->text, "%lld", (long long)n);
}

/* "1,000" "3.10" "007"; false when it is not a plain number */
static bool plain_digits(struct str s, struct value *v)
{
    size_t n = 0, dots = 0;
    if (s.n >= sizeof v->text) return false;
    ptrdiff_t comma = str_find_char(s, ',');
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (c == ',' && comma <= 3 && i + 3 < s.n) continue;
        if (c == '.')
            dots++;
        else if (!is_digit(c))
            return false;
        v->text[n++] = c;
    }
    v->text[n] = 0;
    if (dots > 1 || !n) return false;
    v->whole = !dots && n <= 15 && (n == 1 || v->text[0] != '0');
    if (v->whole && str_to_i64((struct str){v->text, n}, 0, INT64_MAX, &v->n) != OK)
        v->whole = false;
    return true;
}

static int numeral(struct str han)
{
    static const char *const digits[] = {"零", "一", "二", "三", "四", "五",
                                         "六", "七", "八", "九", "十"};
    for (int i = 0; i <= 10; i++)
        if (str_eqz(han, digits[i])) return i;
    if (str_eqz(han, "两") || str_eqz(han, "俩")) return 2;
    if (str_eqz(han, "仨")) return 3;
    if (str_eqz(han, "〇")) return 0;
    if (str_eqz(han, "百")) return 100;
    if (str_eqz(han, "千")) return 1000;
    if (str_eqz(han, "万")) return 10000;
    if (str_eqz(han, "亿")) return 100000000;
    return -1;
}

/* 三百二十, 二零二四, 一万五; returns units used */
static size_t han_numerals(const struct reading *r, size_t i, struct value *v)
{
    size_t used = 0;
    int64_t total = 0, section = 0, last_unit = 1, spelled = 0;
    int current = -1;
    bool units = false, zero = false;
    for (; used < 12; used++) {
        const struct guard_unit *u = unit_at(r, i + used);
        if (!u || u->kind != GU_HAN || (used && u->clause_start)) break;
        int d = numeral(u->text);
        if (d < 0) break;
        if (d < 10) {
            if (d == 0) zero = true;
            current = d;
            spelled = spelled * 10 + d;
        } else {
            units = true;
            if (d >= 10000) {
                total = (total + section + (current > 0 ? current : 0)) * d;
                if (!total) total = d;
                section = 0;
            } else {
                section += (current > 0 ? current : 1) * (int64_t)d;
            }
            last_unit = d;
            current = -1;
            zero = false;
        }
    }
    if (!used) return 0;
    if (!units)
        value_set(v, spelled);
    else
        value_set(
            v,
            total + section +
                (current > 0 ? (last_unit > 10 && !zero ? current * last_unit / 10 : current) : 0));
    return used;
}

/* twenty five, two hundred and five, half; returns units used */
static size_t english_number(const struct reading *r, size_t i, struct value *v)
{
    int64_t total = 0, current = 0;
    size_t used = 0;
    bool any = false;
    for (; used < 8; used++) {
        const struct guard_unit *u = unit_at(r, i + used);
        if (!u || u->kind != GU_WORD || (used && u->clause_start)) break;
        if (any && str_eqz(u->text, "and")) {
            const struct guard_unit *next = unit_at(r, i + used + 1);
            const struct guard_word *w = next ? guard_lexicon_find(r->x, next->text) : NULL;
            if (current >= 100 && w && (w->classes & GC_NUMBER) && w->number < 200) continue;
            break;
        }
        const struct guard_word *w = guard_lexicon_find(r->x, u->text);
        if (!w || !(w->classes & GC_NUMBER)) break;
        int64_t n = w->number / 2;
        if (w->number == 1) { /* half */
            if (any) break;
            snprintf(v->text, sizeof v->text, "0.5");
            return 1;
        }
        if (n == 100 || n == 1000 || n == 1000000) {
            current = (current ? current : 1) * n;
            if (n > 100) {
                total += current;
                current = 0;
            }
        } else if (any && (w->classes & GC_ORDINAL) && current % 10) {
            break;
        } else if (any && !(current % 100 >= 20 && current % 10 == 0 && n < 10) &&
                   !(current >= 100 && current % 100 == 0)) {
            break; /* "one two": two numbers */
        } else {
            current += n;
        }
        any = true;
        if (w->classes & GC_ORDINAL) {
            v->ordinal = true;
            used++;
            break;
        }
    }
    if (!any) return 0;
    value_set(v, total + current);
    v->weak = used == 1 && str_eqz(r->t->units[i].text, "one");
    return used;
}

/* --- dates and times */
static size_t han_time(struct reading *r, size_t i, struct value hour, struct guard_token *out)
{
    /* i: behind the 点 */
    int minutes = 0;
    size_t used = 0;
    struct value m = {0};
    if (unit_is(r, i, "半")) {
        minutes = 30;
        used = 1;
    } else if (unit_is(r, i + 1, "刻")) {
        minutes = unit_is(r, i, "三") ? 45 : 15;
        used = 2;
    } else if (unit_at(r, i) && !unit_at(r, i)->clause_start) {
        const struct guard_unit *u = unit_at(r, i);
        size_t n =
            u->kind == GU_DIGITS ? (plain_digits(u->text, &m) ? 1 : 0) : han_numerals(r, i, &m);
        if (n && m.whole && m.n < 60) {
            minutes = (int)m.n;
            used = n + (unit_is(r, i + n, "分") ? 1 : 0);
        }
    }
    if (unit_is(r, i + used, "钟") || unit_is(r, i + used, "整")) used++;
    out->kind = GT_TIME;
    out->canon = keepf(r->t, "t:%02lld:%02d", (long long)hour.n, minutes);
    return used;
}

/* 2024年 [5月 [6日]], 5月 [6日], 6日/6号; i: at the marker behind value. Returns units used behind the value, 0 = no date. */
static size_t han_date(struct reading *r, size_t i, struct value v, struct guard_token *out)
{
    char year[8] = "", month[8] = "", day[8] = "";
    size_t used = 0;
    for (int part = 0; part < 3; part++) {
        bool is_year = unit_is(r, i + used, "年") && v.n >= 1900 && v.n < 2200 && part == 0;
        bool is_month = unit_is(r, i + used, "月") && v.n >= 1 && v.n <= 12 && !*month && !*day;
        bool is_day = (unit_is(r, i + used, "日") || unit_is(r, i + used, "号")) && v.n >= 1 &&
                      v.n <= 31 && !*day;
        if (is_year)
            snprintf(year, sizeof year, "%d", (int)v.n);
        else if (is_month)
            snprintf(month, sizeof month, "%02d", (int)v.n);
        else if (is_day)
            snprintf(day, sizeof day, "%02d", (int)v.n);
        else
            break;
        used++;
        if (is_month && unit_is(r, i + used, "份")) used++;
        if (is_day) break;
        /* the next part needs its own number */
        struct value next = {0};
        const struct guard_unit *u = unit_at(r, i + used);
        if (!u || u->clause_start) break;
        size_t n = u->kind == GU_DIGITS ? (plain_digits(u->text, &next) ? 1 : 0)
                                        : han_numerals(r, i + used, &next);
        if (!n || !next.whole) break;
        bool follows = (unit_is(r, i + used + n, "月") && !*month) ||
                       unit_is(r, i + used + n, "日") || unit_is(r, i + used + n, "号");
        if (!follows) break;
        used += n;
        v = next;
    }
    if (!used) return 0;
    out->kind = GT_DATE;
    out->canon = keepf(r->t, "d:%s-%s-%s", year, month, day);
    return used;
}

/* 15:00, 2025-06-01, 2025/6/1, 03/04/2024, 192.168.0.1 */
static bool punctuated(struct guard_text *t, struct str s, struct guard_token *out)
{
    long long a, b, c;
    char text[40], tail;
    if (s.n >= sizeof text) return false;
    memcpy(text, s.p, s.n);
    text[s.n] = 0;
    if (str_find_char(s, ':') > 0) {
        if (sscanf(text, "%2lld:%2lld%c", &a, &b, &tail) == 2 && a <= 24 && b < 60) {
            out->kind = GT_TIME;
            out->canon = keepf(t, "t:%02lld:%02lld", a, b);
            return true;
        }
    } else if (sscanf(text, "%4lld-%2lld-%2lld%c", &a, &b, &c, &tail) == 3 ||
               sscanf(text, "%4lld/%2lld/%2lld%c", &a, &b, &c, &tail) == 3 ||
               sscanf(text, "%4lld.%2lld.%2lld%c", &a, &b, &c, &tail) == 3) {
        if (a >= 1900 && a < 2200 && b >= 1 && b <= 12 && c >= 1 && c <= 31) {
            out->kind = GT_DATE;
            out->canon = keepf(t, "d:%lld-%02lld-%02lld", a, b, c);
            return true;
        }
        if (sscanf(text, "%2lld/%2lld/%4lld%c", &a, &b, &c, &tail) == 3 && c >= 1900) {
            out->kind = GT_DATE;
            out->canon = keepf(t, "d:%lld/%lld/%lld", a, b, c);
            return true;
        }
    } else if (sscanf(text, "%2lld/%2lld/%4lld%c", &a, &b, &c, &tail) == 3 && c >= 1900) {
        out->kind = GT_DATE;
        out->canon = keepf(t, "d:%lld/%lld/%lld", a, b, c);
        return true;
    }
    out->kind = GT_IDENT;
    out->canon = s;
    return true;
}

/* --- what stands behind a number */
static size_t read_unit(struct reading *r, size_t i, struct guard_token *out, bool *measured)
{
    size_t n = 0;
    const struct guard_unit *u = unit_at(r, i);
    if (!u || u->clause_start) return 0;
    const struct guard_word *w = guard_text_phrase(r->t, r->x, i, &n);
    if (u->kind == GU_SYMBOL) w = guard_lexicon_find(r->x, u->text), n = 1;
    /* "day" in "14 day trial": inflections of a unit's name are listed, so a look-up is enough */
    if (!w || !(w->classes & (GC_UNIT | GC_CURRENCY | GC_MEASURE))) {
        for (n = u->kind == GU_HAN ? 3 : 1; n > 0;
             n--) { /* a longer phrase that is no unit may hide a unit: 天内 */
            char text[64];
            size_t m = 0;
            for (size_t k = 0; k < n && unit_at(r, i + k); k++) {
                struct str s = unit_at(r, i + k)->text;
                if (m + s.n > sizeof text || (k && unit_at(r, i + k)->clause_start)) break;
                memcpy(text + m, s.p, s.n);
                m += s.n;
            }
            w = guard_lexicon_find(r->x, (struct str){text, m});
            if (w && (w->classes & (GC_UNIT | GC_CURRENCY | GC_MEASURE))) break;
        }
        if (!n) return 0;
    }
    *measured = true;
    if (w->classes & (GC_UNIT | GC_CURRENCY)) out->unit = w->canon;
    if (str_starts(w->canon, STR("cur:"))) out->classes |= GC_CURRENCY;
    return n;
}

static void scale(struct value *v, int64_t by)
{
    double d;
    if (v->whole) {
        if (v->n < INT64_MAX / 100000000) value_set(v, v->n * by);
    } else if (str_to_f64(str_of(v->text), &d) == OK && d * (double)by < 1e15) {
        double scaled = d * (double)by;
        if (scaled == (double)(int64_t)scaled)
            value_set(v, (int64_t)scaled);
        else
            snprintf(v->text, sizeof v->text, "%.6g", scaled);
    }
}

/* multipliers and ordinal endings directly behind the digits */
static size_t read_suffix(struct reading *r, size_t i, struct value *v)
{
    static const struct {
        const char *text;
        int64_t by;
    } multipliers[] = {{"k", 1000}, {"万", 10000},        {"亿", 100000000},  {"千", 1000},
                       {"百", 100}, {"million", 1000000}, {"thousand", 1000}, {"hundred", 100}};
    if (unit_is(r, i, "st") || unit_is(r, i, "nd") || unit_is(r, i, "rd") || unit_is(r, i, "th")) {
        v->ordinal = true;
        return 1;
    }
    if (unit_is(r, i, "x")) return 1;
    if (unit_is(r, i, "千") &&
        (unit_is(r, i + 1, "克") || unit_is(r, i + 1, "米") || unit_is(r, i + 1, "瓦")))
        return 0;
    for (size_t k = 0; k < sizeof multipliers / sizeof *multipliers; k++)
        if (unit_is(r, i, multipliers[k].text)) return scale(v, multipliers[k].by), 1;
    return 0;
}

static void strip_zeros(char *text)
{
    size_t n = strlen(text);
    if (!strchr(text, '.')) return;
    while (n && text[n - 1] == '0')
        text[--n] = 0;
    if (n && text[n - 1] == '.') text[n - 1] = 0;
}

/* Half a year is six months, half an hour 30 minutes. */
static void half_of_unit(struct guard_token *out)
{
    if (str_eqz(out->unit, "unit:year")) out->canon = STR("n:6"), out->unit = STR("unit:month");
    if (str_eqz(out->unit, "unit:hour")) out->canon = STR("n:30"), out->unit = STR("unit:minute");
}

static size_t finish_number(struct reading *r, size_t i, size_t used, struct value *v,
                            struct guard_token *out)
{
    bool measured = false, han = r->t->units[i].kind == GU_HAN;
    size_t n = read_unit(r, i + used, out, &measured);
    if (n && !out->unit.n &&
        unit_at(r, i + used + n)) { /* a counting word, perhaps with a unit behind: 两个小时 */
        size_t more = 0;
        bool again = false;
        more = read_unit(r, i + used + n, out, &again);
        n += out->unit.n ? more : 0;
    }
    bool first_of = i > 0 && str_eqz(r->t->units[i - 1].text, "第");
    /* a lone 三 or 一 inside other words is a number only when it counts something */
    if (han && used == 1 && !measured && !first_of && !v->ordinal) {
        int d = numeral(r->t->units[i].text);
        if (d >= 10) return 0;
        if (d == 1) v->weak = true;
    }
    if (han && v->whole && v->n == 1 && used == 1 && !out->unit.n && !first_of) v->weak = true;
    if (str_eqz(out->unit, "unit:discount") &&
        v->whole) { /* 八折 = 80 percent, 85折 = 85 percent */
        value_set(v, v->n < 10 ? v->n * 10 : v->n);
        out->unit = STR("unit:percent");
    }
    if (out->classes & GC_CURRENCY) strip_zeros(v->text);
    if (out->unit.n) v->weak = false;
    if (measured && !out->unit.n && v->whole && v->n == 1 && !first_of && !v->ordinal && !han &&
        unit_at(r, i + used)->kind == GU_HAN)
        v->weak = true; /* 1张 is 一张 */
    out->kind = GT_NUMBER;
    out->weak = v->weak && !v->ordinal;
    out->canon = keepf(r->t, "%c:%s", v->ordinal || first_of ? 'o' : 'n', v->text);
    if (!strcmp(v->text, "0.5") && !han) half_of_unit(out);
    return used + n;
}

/* am, pm, o'clock behind an hour */
static size_t english_clock(struct reading *r, size_t i, struct value v, struct guard_token *out)
{
    size_t n = 0;
    if (out->kind == GT_TIME || (v.whole && v.n <= 12)) {
        const struct guard_word *w = guard_text_phrase(r->t, r->x, i, &n);
        if (w && (w->classes & GC_CLOCK) && !(w->classes & GC_WHEN)) {
            long long hour = v.n, minute = 0;
            if (out->kind == GT_TIME) sscanf(out->canon.p, "t:%2lld:%2lld", &hour, &minute);
            if (hour <= 12) hour = hour % 12 + w->clock;
            out->kind = GT_TIME;
            out->canon = keepf(r->t, "t:%02lld:%02lld", hour, minute);
            return n;
        }
        bool morning =
            unit_is(r, i, "in") && unit_is(r, i + 1, "the") && unit_is(r, i + 2, "morning");
        bool later = unit_is(r, i, "in") && unit_is(r, i + 1, "the") &&
                     (unit_is(r, i + 2, "afternoon") || unit_is(r, i + 2, "evening"));
        if (out->kind != GT_TIME && v.n >= 1 && (morning || later)) {
            out->kind = GT_TIME;
            out->canon = keepf(r->t, "t:%02lld:00", (long long)v.n % 12 + (later ? 12 : 0));
            return 3;
        }
        if (unit_is(r, i, "o") && unit_is(r, i + 1, "clock")) {
            out->kind = GT_TIME;
            out->canon = keepf(r->t, "t:%02lld:00", (long long)v.n);
            return 2;
        }
    }
    return 0;
}

size_t guard_number_read(struct guard_text *t, const struct guard_lexicon *x, size_t i,
                         struct guard_token *out)
{
    struct reading r = {t, x, i};
    const struct guard_unit *u = &t->units[i];
    struct value v = {0};
    size_t used = 0;
    bool percent = false;
    if (unit_is(&r, i, "百") && unit_is(&r, i + 1, "分") && unit_is(&r, i + 2, "之")) {
        percent = true;
        i += 3;
        if (!(u = unit_at(&r, i))) return 0;
    }
    if (u->kind == GU_DIGITS) {
        if (!plain_digits(u->text, &v)) {
            punctuated(t, u->text, out);
            return out->kind == GT_TIME ? 1 + english_clock(&r, i + 1, v, out) : 1;
        }
        used = 1;
    } else if (u->kind == GU_HAN) {
        if (unit_is(&r, i, "半")) {
            bool measured = false;
            size_t skip = unit_is(&r, i + 1, "个") ? 2 : 1;
            size_t n = read_unit(&r, i + skip, out, &measured);
            if (!out->unit.n) return 0;
            out->kind = GT_NUMBER;
            out->canon = STR("n:0.5");
            half_of_unit(out);
            return skip + n;
        }
        used = han_numerals(&r, i, &v);
    } else if (u->kind == GU_WORD) {
        used = english_number(&r, i, &v);
    }
    if (!used) return 0;
    if (percent) {
        out->kind = GT_NUMBER;
        out->unit = STR("unit:percent");
        out->canon = keepf(t, "n:%s", v.text);
        return used + 3;
    }
    used += read_suffix(&r, i + used, &v);
    if (v.whole && v.n <= 24 && unit_is(&r, i + used, "点") && !unit_is(&r, i + used + 1, "击") &&
        !unit_is(&r, i + used + 1, "数")) {
        used++;
        return used + han_time(&r, i + used, v, out);
    }
    size_t n = v.whole ? han_date(&r, i + used, v, out) : 0;
    if (n) return used + n;
    n = english_clock(&r, i + used, v, out);
    if (n) return used + n;
    return finish_number(&r, i, used, &v, out);
}
