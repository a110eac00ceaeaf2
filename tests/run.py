#!/usr/bin/env python3
"""Runs the test suite and adds up what each program says of itself.

  run.py all|unit|integration|rare|cuda [NAME]
A test program is a unit test binary (its last line reads `N passed, N failed, N skipped`), a Python unittest file under
tests/integration, or a check in Python under tests/ that ends with the same line. Each has a time limit. NAME runs only programs
whose name holds it. rare: the integration files against the build with tiny limits (docs/decisions/018); with integration and all, those
that meet these limits. The last line of the whole run is `N passed, N failed, N skipped`.

Real servers and clients share a machine that may be busy with something else, so an integration file whose only fault is an assertion is
tried once more when all others are through; what passes then is named as unsteady, with what it said, and wants a cause. A sanitizer's
report, an assertion of the product or a time-out stays a failure.
"""
import os
import re
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build", "dev")
RARE = os.path.join(ROOT, "build", "rare", "deja")      # tiny limits, so that rare paths are common
TSAN = os.path.join(ROOT, "build", "tsan")              # the tests of threaded code, once more under the thread sanitizer
RARE_TESTS = ("test_engine_", "test_speculation", "test_disaggregation", "test_kv_events", "test_plan", "test_shutdown")
AGAIN_MAX = 3                                           # more than that is no accident
HARD = re.compile(r"Sanitizer|runtime error:|bug at |ended with status|Connection refused|Connection reset|\(ended after", re.I)
LINE = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", re.M)
LIMIT_S = {"unit": 900, "tsan": 900, "integration": 900, "rare": 900, "check": 300, "cuda": 1800}  # for a machine that is busy or slow


def programs(what):
    if what in ("unit", "all"):
        yield "check", "tidy", [sys.executable, "tests/tidy.py"]
        for kind, build in (("unit", BUILD), ("tsan", TSAN)):
            folder = os.path.join(build, "unit")
            for n in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
                path = os.path.join(folder, n)
                if os.path.isfile(path) and os.access(path, os.X_OK):
                    yield kind, n, [path]
    if what in ("cuda", "all"):
        yield "cuda", "cuda_compile", ["bash", "tests/cuda_emu/compile.sh"]
    if what in ("integration", "rare", "all"):
        for n in sorted(os.listdir(os.path.join(ROOT, "tests", "integration"))):
            if n.startswith("test_") and n.endswith(".py"):
                cmd = [sys.executable, "-m", "unittest", "-v", f"tests.integration.{n[:-3]}"]
                if what != "rare":
                    yield "integration", n[:-3], cmd
                if what == "rare" or (n.startswith(RARE_TESTS) and os.path.exists(RARE)):
                    yield "rare", n[:-3], cmd


def unittest_counts(text):
    """python's own summary -> (passed, failed, skipped, names of skipped)"""
    ran = re.search(r"^Ran (\d+) tests? in", text, re.M)
    if not ran:
        return None
    bad = sum(int(x) for x in re.findall(r"(?:failures|errors|unexpected successes)=(\d+)", text))
    skip = sum(int(x) for x in re.findall(r"skipped=(\d+)", text))
    return int(ran[1]) - bad - skip, bad, skip


def run(kind, name, cmd, env):
    t0 = time.time()
    try:
        r = subprocess.run(cmd, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S[kind],
                           check=False, stdin=subprocess.DEVNULL)
        out, rc = r.stdout.decode("utf8", "replace"), r.returncode
    except subprocess.TimeoutExpired as e:
        out, rc = (e.stdout or b"").decode("utf8", "replace") + f"\n(ended after {LIMIT_S[kind]} s)\n", -1
    found = LINE.findall(out)
    if kind in ("integration", "rare"):
        counts = unittest_counts(out)
    else:
        counts = tuple(int(x or 0) for x in found[-1]) if found else None
    if counts is None:
        counts = (0, 1, 0)
        out += f"\n(no count of tests in the output; exit status {rc})\n"
    elif rc and not counts[1]:
        counts = (counts[0], 1, counts[2])
        out += f"\n(all tests passed but the program ended with status {rc})\n"
    print(f"{'ok  ' if not counts[1] else 'FAIL'} {kind}/{name}: {counts[0]} passed, {counts[1]} failed, {counts[2]} skipped"
          f" ({time.time() - t0:.1f} s)", flush=True)
    if counts[1]:
        lines = out.strip().splitlines()
        print("\n".join("    " + x for x in lines[-120:]), flush=True)
    elif counts[2]:
        for x in out.splitlines():
            if x.startswith("skip ") or "... skipped" in x:
                print("    " + x, flush=True)
    return counts, out


def steady(kind, name, cmd, env):
    """A second try, alone -> counts, or None when it fails again."""
    print(f"again {kind}/{name}", flush=True)
    counts, _ = run(kind, name, cmd, env)
    return None if counts[1] else counts


def main():
    what = sys.argv[1] if len(sys.argv) > 1 else "all"
    only = sys.argv[2] if len(sys.argv) > 2 else ""
    env = dict(os.environ, DEJA_BIN=os.path.join(BUILD, "deja"), SOURCE_DIR=ROOT, PYTHONDONTWRITEBYTECODE="1")
    env.setdefault("DEJA_CACHE", os.path.join(os.path.expanduser("~"), ".cache", "deja"))
    env.setdefault("ASAN_OPTIONS", "abort_on_error=0:detect_stack_use_after_return=1")
    env.setdefault("UBSAN_OPTIONS", "print_stacktrace=1")
    # FAISS brings OpenMP, whose library is not instrumented
    env.setdefault("TSAN_OPTIONS", "suppressions=" + os.path.join(ROOT, "tests", "tsan.supp") + " ignore_noninstrumented_modules=1")
    env.setdefault("OMP_NUM_THREADS", "1")
    env.setdefault("OPENBLAS_NUM_THREADS", "1")
    total, broken, unsteady = [0, 0, 0], [], []
    later = []
    for kind, name, cmd in programs(what):
        if only and only not in name:
            continue
        if not shutil.which(cmd[0]):
            print(f"FAIL {kind}/{name}: {cmd[0]} is not there")
            total[1] += 1
            continue
        its_env = dict(env, DEJA_BIN=RARE) if kind == "rare" else env
        c, out = run(kind, name, cmd, its_env)
        if c[1] and kind in ("integration", "rare") and len(later) < AGAIN_MAX and not HARD.search(out):
            later.append((c, (kind, name, cmd, its_env)))
            continue
        total = [a + b for a, b in zip(total, c)]
        if c[1]:
            broken.append(name)
    for c, what in later:
        second = steady(*what)
        (unsteady if second else broken).append(what[1])
        total = [a + b for a, b in zip(total, second or c)]
    if unsteady:
        print("unsteady, passed when tried again: " + ", ".join(unsteady))
    if broken:
        print("failed in: " + ", ".join(broken))
    if not sum(total):
        print("no test was run")
        total[1] = 1
    print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
    return 1 if total[1] else 0


if __name__ == "__main__":
    sys.exit(main())
