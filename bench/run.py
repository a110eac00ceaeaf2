#!/usr/bin/env python3
"""./dev bench WHAT [options]: runs bench_WHAT.py, or the compiled kernel benchmark. Options go through as they are; each knows --json
(one object a line) and, where it makes sense, --peer URL."""
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def machine():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
        text = f.read()
    flags = next((x for x in text.splitlines() if x.startswith("flags")), "").split()
    get = lambda key: next((x.split(":", 1)[1].strip() for x in text.splitlines() if x.startswith(key)), "?")
    isa = "avx512-vnni" if "avx512_vnni" in flags else "avx2" if "avx2" in flags else "portable"
    return f"{get('model name')} family {get('cpu family')} model {get('model')}, {os.cpu_count()} cores, {isa}"


def main():
    what, rest = sys.argv[1], sys.argv[2:]
    env = dict(os.environ, DEJA_BIN=os.environ.get("DEJA_BIN", os.path.join(ROOT, "build", "release", "deja")), DEJA_MACHINE=machine())
    env.setdefault("DEJA_CACHE", os.path.join(os.path.expanduser("~"), ".cache", "deja"))
    script = os.path.join(ROOT, "bench", f"bench_{what}.py")
    cmd = [sys.executable, script] + rest
    if not os.path.exists(script):
        cmd = [os.path.join(ROOT, "build", "release", f"bench_{what}")] + rest
    print(f"# {env['DEJA_MACHINE']}", file=sys.stderr)
    return subprocess.run(cmd, cwd=ROOT, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
