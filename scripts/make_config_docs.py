#!/usr/bin/env python3
"""Writes docs/config.md from the option tables inside the program (DEJA_BIN, else build/release/deja). --check: exit 1 when the file
is not what would be written."""
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.environ.get("DEJA_BIN", os.path.join(ROOT, "build", "release", "deja"))
HEAD = """# Options

Made from the tables in the program by `scripts/make_config_docs.py`. Each option can be given on the command line (`--cache-ttl-s 60`),
in a file of `name value` lines (`--config FILE`) or in the environment (`DEJA_CACHE_TTL_S=60`); the command line wins, then the
environment, then the file.
"""
KNOBS = """
## Knobs
What may change while it runs, everywhere at once or for a namespace or an arm of an experiment (docs/operations.md):
`redis-cli FCALL deja_config_set 1 {deja}:config NAME VALUE`. Where nothing is set, the gateway's options above hold.

"""


def text():
    out = HEAD
    for command in ("up", "gateway", "engine"):
        r = subprocess.run([BIN, command, "--help-markdown"], stdout=subprocess.PIPE, text=True, check=True)
        table = "\n".join(x for x in r.stdout.splitlines() if x.startswith("|"))
        out += f"\n## deja {command}\n{table}\n"
    r = subprocess.run([BIN, "functions", "--knobs"], stdout=subprocess.PIPE, text=True, check=True)
    out += KNOBS + r.stdout
    return out


def main():
    path = os.path.join(ROOT, "docs", "config.md")
    if "--check" in sys.argv:
        with open(path, encoding="utf8") as f:
            return 0 if f.read() == text() else 1
    with open(path, "w", encoding="utf8") as f:
        f.write(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
