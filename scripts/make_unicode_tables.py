#!/usr/bin/env python3
"""Writes engine/text/unicode_{class,norm,compat}_tables.c from Python's own unicodedata.

Run by hand when the Unicode version is to change; the results are committed, so that a build needs no Python.
Usage: scripts/make_unicode_tables.py [output folder]
"""
import sys
import unicodedata as u

LIMIT = 0x110000
# Order of enum unicode_class in unicode.h.
CLASSES = ["CN", "CC", "CF", "CO", "LU", "LL", "LT", "LM", "LO", "MN", "MC", "ND", "NO", "P", "S", "ZS", "ZL"]


def class_of(c):
    cat = u.category(chr(c))
    if cat in ("Cs", "Co"):
        return "CO"
    if cat == "Me":
        return "MC"
    if cat == "Nl":
        return "NO"
    if cat == "Zp":
        return "ZL"
    if cat[0] in "PS":
        return cat[0]
    return cat.upper()


def rows(values, per_line_bytes=150):
    line, lines = "   ", []
    for v in values:
        if len(line) + len(v) + 2 > per_line_bytes:
            lines.append(line)
            line = "   "
        line += " " + v + ","
    lines.append(line)
    return "\n".join(lines)


def array(c_type, name, values, comment):
    return "/* %s */\nconst %s %s[] = {\n%s\n};\nconst int %s_n = sizeof %s / sizeof %s[0];\n" % (
        comment, c_type, name, rows(values), name, name, name)


def class_ranges():
    out, last = [], None
    for c in range(LIMIT):
        k = CLASSES.index(class_of(c))
        if k != last:
            out.append("0x%x" % (c << 5 | k))
            last = k
    return out


def case_ranges(mapped):
    """[first, last, step, delta]: c in first..last with (c - first) % step == 0 maps to c + delta."""
    pairs = [(c, mapped(c) - c) for c in range(LIMIT) if mapped(c) != c]
    out, i = [], 0
    while i < len(pairs):
        best_j, best_step = i, 1
        for step in (1, 2):
            j = i
            while j + 1 < len(pairs) and pairs[j + 1][0] - pairs[j][0] == step and pairs[j + 1][1] == pairs[i][1]:
                j += 1
            if j > best_j:
                best_j, best_step = j, step
        out.append("{0x%x, 0x%x, %d, %d}" % (pairs[i][0], pairs[best_j][0], best_step, pairs[i][1]))
        i = best_j + 1
    return out


def lower(c):
    s = chr(c).lower()
    return ord(s) if len(s) == 1 else c


def upper(c):
    s = chr(c).upper()
    return ord(s) if len(s) == 1 else c


def combining_ranges():
    out, start, last = [], 0, 0
    for c in range(LIMIT + 1):
        k = u.combining(chr(c)) if c < LIMIT else 0
        if k != last:
            if last:
                out.append("{0x%x, 0x%x, %d}" % (start, c - 1, last))
            start, last = c, k
    return out


def is_hangul(c):
    return 0xAC00 <= c <= 0xD7A3


def canonical():
    """(code point, first, second or 0), sorted by code point."""
    out = []
    for c in range(LIMIT):
        d = u.decomposition(chr(c))
        if d and d[0] != "<" and not is_hangul(c):
            parts = [int(x, 16) for x in d.split()]
            out.append((c, parts[0], parts[1] if len(parts) > 1 else 0))
    return out


def compositions(canon):
    """Indices into canon, sorted by (first, second), of the pairs that compose back under NFC."""
    ok = [i for i, (c, a, b) in enumerate(canon) if b and u.normalize("NFC", chr(a) + chr(b)) == chr(c)]
    return sorted(ok, key=lambda i: (canon[i][1], canon[i][2]))


def compatibility():
    """Runs [first, last, offset into pool, length of each], pool: full NFKD of what differs from its NFD."""
    runs, pool = [], []
    for c in range(LIMIT):
        if 0xD800 <= c < 0xE000 or is_hangul(c):
            continue
        k = [ord(x) for x in u.normalize("NFKD", chr(c))]
        if k == [ord(x) for x in u.normalize("NFD", chr(c))]:
            continue
        if runs and runs[-1][1] == c - 1 and runs[-1][3] == len(k):
            runs[-1][1] = c
        else:
            runs.append([c, c, len(pool), len(k)])
        pool += k
    return runs, pool


def nfc_touched(canon, comps):
    """Ranges of code points that NFC may change or that may join with the one before."""
    second = {canon[i][2] for i in comps} | set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
    out, start, last = [], 0, False
    for c in range(LIMIT + 1):
        k = False
        if c < LIMIT and not 0xD800 <= c < 0xE000:
            k = c in second or u.combining(chr(c)) != 0 or u.normalize("NFC", chr(c)) != chr(c)
        if k != last:
            if last:
                out.append("{0x%x, 0x%x}" % (start, c - 1))
            start, last = c, k
    return out


HEAD = """/* %s - %s
 * Written by scripts/make_unicode_tables.py from the Unicode Character Database %s; do not edit.
 * Constants only; any thread. */
#include "engine/text/unicode_tables.h"

"""


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "engine/text"
    canon = canonical()
    comps = compositions(canon)
    compat, pool = compatibility()
    with open(folder + "/unicode_class_tables.c", "w") as f:
        f.write(HEAD % ("unicode_class_tables.c", "character classes and case mappings.", u.unidata_version))
        f.write(array("uint32_t", "unicode_class_ranges", class_ranges(), "start << 5 | class; a range lasts until the next one starts") + "\n")
        f.write(array("struct unicode_case_range", "unicode_lower_ranges", case_ranges(lower), "first, last, step, delta") + "\n")
        f.write(array("struct unicode_case_range", "unicode_upper_ranges", case_ranges(upper), "first, last, step, delta"))
    with open(folder + "/unicode_norm_tables.c", "w") as f:
        f.write(HEAD % ("unicode_norm_tables.c", "normalisation data (UAX #15).", u.unidata_version))
        f.write(array("struct unicode_combining_range", "unicode_combining_ranges", combining_ranges(), "first, last, canonical combining class") + "\n")
        f.write(array("struct unicode_range", "unicode_nfc_touched", nfc_touched(canon, comps), "first, last of what NFC may change or join to the character before") + "\n")
        f.write(array("struct unicode_pair", "unicode_canonical", ["{0x%x, 0x%x, 0x%x}" % x for x in canon], "code point, first, second (0 = none)") + "\n")
        f.write(array("uint16_t", "unicode_compositions", [str(x) for x in comps], "indices into unicode_canonical by (first, second)") + "\n")
    with open(folder + "/unicode_compat_tables.c", "w") as f:
        f.write(HEAD % ("unicode_compat_tables.c", "compatibility decompositions (UAX #15).", u.unidata_version))
        f.write(array("struct unicode_expansion", "unicode_compat", ["{0x%x, 0x%x, %d, %d}" % tuple(x) for x in compat], "first, last, offset into the pool, length of each") + "\n")
        f.write(array("uint32_t", "unicode_compat_pool", ["0x%x" % x for x in pool], "full compatibility decompositions"))


main()
