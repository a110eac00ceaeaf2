#!/usr/bin/env python3
"""Runs each fuzz target for some seconds on its committed corpus. run_fuzz.py SECONDS [TARGET]
A finding is kept under build/fuzz/findings/TARGET and printed; it becomes a unit test with the fix. Last line: N passed, N failed."""
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def main():
    seconds = int(sys.argv[1])
    only = sys.argv[2] if len(sys.argv) > 2 else ""
    folder = os.path.join(ROOT, "build", "fuzz", "fuzz")
    targets = sorted(x for x in os.listdir(folder) if x.startswith("fuzz_") and os.access(os.path.join(folder, x), os.X_OK))
    passed = failed = 0
    for t in targets:
        if only not in t:
            continue
        findings = os.path.join(ROOT, "build", "fuzz", "findings", t)
        os.makedirs(findings, exist_ok=True)
        seeds = os.path.join(ROOT, "tests", "fuzz", "corpus", t[len("fuzz_"):])
        with tempfile.TemporaryDirectory() as work:
            cmd = [os.path.join(folder, t), f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=2048", "-max_len=65536",
                   f"-artifact_prefix={findings}/", "-print_final_stats=1", "-verbosity=0", work]
            if os.path.isdir(seeds):
                cmd.append(seeds)
            r = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds + 120, check=False)
        text = r.stdout.decode("utf8", "replace")
        runs = [x.split()[-1] for x in text.splitlines() if "number_of_executed_units" in x]
        ok = r.returncode == 0 and runs
        passed, failed = passed + bool(ok), failed + (not ok)
        print(f"{'ok  ' if ok else 'FAIL'} {t}: {runs[0] if runs else '?'} inputs in {seconds} s", flush=True)
        if not ok:
            print("\n".join("    " + x for x in text.splitlines()[-40:]), flush=True)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
