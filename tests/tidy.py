#!/usr/bin/env python3
"""The style rules a machine can hold: rooms include only downward, each library has one home, files and functions stay short,
every file says what it is, some calls have one place, nothing in the tree names the place it was made in.
Prints each breach with file and line; ends with `N passed, N failed` (one test a rule)."""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FILE_LINES_MAX, FUNCTION_LINES_MAX, LINE_CHARS_MAX = 600, 70, 140

# A room and everything it may include, lowest first.
ORDER = ["base", "engine/text", "engine/backend", "engine/model", "engine/sched", "engine/grammar", "engine", "embeddings", "cache", "gateway", "up"]
MAY = {
    "base": ["base"],
    "engine/text": ["base", "engine/text"],
    "engine/backend": ["base", "engine/backend"],
    "engine/model": ["base", "engine/text", "engine/backend", "engine/model"],
    "engine/sched": ["base", "engine/sched"],
    "engine/grammar": ["base", "engine/grammar"],
    "engine": ["base", "engine/text", "engine/backend", "engine/model", "engine/sched", "engine/grammar", "engine"],
    "embeddings": ["base", "engine/text", "engine/backend", "engine/model", "embeddings"],
    "cache": ["base", "engine/text", "engine/model", "embeddings", "cache"],
    "up": ["base", "up"],
    "gateway": ["base", "engine/text", "engine/model", "embeddings", "cache", "gateway"],
}
# A foreign header and the files that may include it (prefixes).
HOMES = {
    r"hiredis/": ["base/redis"],
    r"event2/": ["base/loop", "base/wire", "base/http", "base/redis", "base/workers", "base/zmtp_link"],
    r"llhttp\.h": ["base/http"],
    r"openssl/": ["base/crypto", "base/http"],
    r"xxhash\.h": ["base/hash"],
    r"faiss/": ["embeddings/faiss", "embeddings/vector_index_faiss"],
    r"(?:imm|x86|avx|nmm|emm)intrin\.h": ["engine/backend/cpu/", "base/json_scan", "embeddings/sign_scan"],
    r"cuda": ["engine/backend/cuda/", "tests/cuda_emu/"],
}
BANNED = {  # call: (files that may, what to use)
    r"(?<![\w.>])(?:malloc|calloc|realloc|free|strdup|strndup)\s*\(": (["base/mem.c", "embeddings/faiss"], "base/mem.h"),
    r"(?<![\w.>])(?:printf|puts|putchar)\s*\(": (["deja.c", "base/log.c", "base/err.c", "tests/", "bench/", "train/"], "base/log.h"),
    r"(?<![\w.>])(?:strcpy|strcat|sprintf|gets|strtok)\s*\(": ([], "base/buf.h or snprintf"),
    r"(?<![\w.>])(?:rand|srand|random)\s*\(": ([], "base/rng.h"),
    r"(?<![\w.>])time\s*\(\s*(?:NULL|0|&)": (["base/clock.c", "base/log.c"], "base/clock.h"),
    r"(?<![\w.>])exit\s*\(": (["deja.c", "bench/"], "an error returned to main"),
}
NO_TEST_NEEDED = {  # header: why
    "gateway/gateway_main.h": "run as a program by tests/integration",
    "cache/tool.h": "arguments of command line tools: run as programs by tests/integration/test_seed.py and tests/unit/cache/test_eval.c",
    "gateway/seed_run.h": "run by deja seed and /admin/seed in tests/integration/test_seed.py",
    "gateway/seed_main.h": "run as a program by tests/integration/test_seed.py",
    "gateway/judge_main.h": "run as a program by tests/integration/test_judge.py",
    "engine/engine_main.h": "run as a program by tests/integration",
    "up/up_main.h": "run as a program by tests/integration/test_up.py",
    "up/probe.h": "run as a program by tests/integration/test_up.py",
}
# words the tree must not hold, spelt so that this file does not hold them either
PLACE_WORDS = [r"/wo" r"rk/", r"/ro" r"ot/\.", r"pypi\." r"org", r"deb\.deb" r"ian\.org", r"\bsub-?age" r"nt", r"\bClau" r"de\b", r"\bAnthro" r"pic (?:model|assistant)"]


def tracked():
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [x for x in out.splitlines() if os.path.isfile(os.path.join(ROOT, x))]


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf8", errors="replace") as f:
        return f.read()


def room_of(path):
    d = os.path.dirname(path)
    for r in sorted(ORDER, key=len, reverse=True):
        if d == r or d.startswith(r + "/"):
            return r
    return None


def strip(text):
    """comments and strings blanked, line structure kept"""
    def blank(m):
        s = m.group(0)
        return re.sub(r"[^\n]", " ", s) if s.startswith("/") else '""' + " " * (len(s) - 2)
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.S)


def include_rule(path, text):
    room = room_of(path)
    for i, line in enumerate(text.splitlines(), 1):
        m = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if not m:
            continue
        kind, name = m[1], m[2]
        if kind == '"' and room:
            target = room_of(name)
            if target and target not in MAY[room]:
                yield i, f"{room} may not include {name} (an upward edge)"
        for pattern, homes in HOMES.items():
            if re.match(pattern, name) and not any(path.startswith(h) for h in homes + ["tests/"]):
                yield i, f"<{name}> is only for {', '.join(homes)}"


def banned_rule(path, text):
    if path.startswith("tests/"):
        return
    for i, line in enumerate(strip(text).splitlines(), 1):
        for pattern, (homes, instead) in BANNED.items():
            if re.search(pattern, line) and not any(path.startswith(h) for h in homes):
                yield i, f"`{line.strip()[:60]}`: use {instead}"


def head_rule(path, text):
    if not text.startswith("/*") or os.path.basename(path) not in text[:200]:
        if not path.startswith("tests/") or not text.startswith("/*"):
            yield 1, "the file does not begin with a comment that names it and says what it owns"


def size_rule(path, text):
    lines = text.splitlines()
    if len(lines) > FILE_LINES_MAX:
        yield len(lines), f"{len(lines)} lines (at most {FILE_LINES_MAX})"
    for i, line in enumerate(lines, 1):
        if len(line) > LINE_CHARS_MAX:
            yield i, f"{len(line)} characters in a line (at most {LINE_CHARS_MAX})"
    start = None
    for i, line in enumerate(lines, 1):
        if line == "{":
            start = i
        elif line == "}" and start:
            if i - start - 1 > FUNCTION_LINES_MAX:
                yield start, f"a function of {i - start - 1} lines (at most {FUNCTION_LINES_MAX})"
            start = None


def marker_rule(path, text):
    for i, line in enumerate(text.splitlines(), 1):
        if re.search(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X)\b", line):
            yield i, "a leftover marker: do it, or put it under Not yet"


def place_rule(path, text):
    for i, line in enumerate(text.splitlines(), 1):
        for w in PLACE_WORDS:
            if re.search(w, line):
                yield i, f"names the place it was made in ({w})"


def test_rule(files):
    """Each header another room includes is a seam, and a test includes it too, directly or not (private files are tested through their seam)."""
    included = {}
    for f in files:
        if f.endswith((".c", ".h", ".cpp")):
            for name in re.findall(r'^\s*#\s*include\s*"([^"]+)"', read(f), re.M):
                included.setdefault(name, set()).add(f)
    reached, todo = set(), [h for h, users in included.items() if any(u.startswith("tests/") for u in users)]
    while todo:
        header = todo.pop()
        if header not in reached:
            reached.add(header)
            todo += [h for h, users in included.items() if header in users]
    for header, users in sorted(included.items()):
        room = room_of(header)
        outside = [u for u in users if room_of(u) not in (room, None) or u == "deja.c"]
        if room and outside and header not in NO_TEST_NEEDED and header not in reached:
            yield header, 1, f"{outside[0]} relies on it, and no test includes it"


def name_rule(files):
    """Rooms are archives of one program: of two functions with one name the linker takes the first and says nothing."""
    seen = {}
    for f in files:
        if not f.endswith(".c") or not room_of(f):
            continue
        text = read(f)
        for m in re.finditer(r"^(?=[A-Za-z_])(?!.*\b(?:static|INLINE)\b)[\w *]*[ *](\w+)\([^;{}]*\)\n\{", text, re.M):
            line = text.count("\n", 0, m.start()) + 1
            if m[1] in seen and m[1] != "main":
                yield f, line, f"{m[1]} is the name of another room's function too: {seen[m[1]]}"
            seen.setdefault(m[1], f"{f}:{line}")


RULES = {"includes point down and libraries have one home": include_rule, "some calls have one place": banned_rule,
         "every file says what it is": head_rule, "files, functions and lines stay short": size_rule,
         "no leftover markers": marker_rule, "the tree speaks of the project alone": place_rule}
TREE_RULES = {"every seam between rooms has a test": test_rule, "no two functions share a name": name_rule}
TEXT_RULES = ("the tree speaks of the project alone",)


def main():
    files = tracked()
    failed = 0
    for name, rule in RULES.items():
        breaches = []
        for f in files:
            if f.startswith("tests/data/") or f.startswith("tests/fuzz/corpus/"):
                continue
            is_c = f.endswith((".c", ".h"))
            if not is_c and not (name in TEXT_RULES and f.endswith((".md", ".py", ".sh", ".txt", ".cmake", ".cpp", ".cu", ".lua", "dev", "run"))):
                continue
            if f.endswith(("_table.c", "_tables.c")) and name.startswith("files"):
                continue
            breaches += [f"{f}:{line}: {what}" for line, what in rule(f, read(f))]
        print(("FAIL " if breaches else "ok   ") + name)
        for b in breaches[:200]:
            print("    " + b)
        failed += bool(breaches)
    for name, rule in TREE_RULES.items():
        breaches = [f"{f}:{line}: {what}" for f, line, what in rule(files)]
        print(("FAIL " if breaches else "ok   ") + name)
        for b in breaches:
            print("    " + b)
        failed += bool(breaches)
    total = len(RULES) + len(TREE_RULES)
    print(f"{total - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
