#!/usr/bin/env python3
"""A model's arithmetic without server and scheduler, beside llama.cpp's own bench programs: prompt, one sequence, several together.
  bench_model.py [--model FILE.gguf] [--peer-dir DIR] [--peer-file FILE.gguf] [--threads 2] [--isa avx2] [--rounds 5] [--hog] [--json]
--peer-dir holds llama-bench and llama-batched-bench; --peer-file gives the peer another file (the same weights in its best type).
--hog: one busy process beside everything, and our rows once more with one thread alone.
Both are asked in turn within a round; values are medians. The checksum is over our logits. Beside one sequence stands the share of what
the threads can read from huge pages in a second that its weights need. Exit status 1 when a must is not met."""
import argparse
import json
import os
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CACHE = os.environ.get("DEJA_CACHE", os.path.join(os.path.expanduser("~"), ".cache", "deja"))
BIN = os.path.join(os.path.dirname(os.environ.get("DEJA_BIN", os.path.join(ROOT, "build", "release", "deja"))), "bench_model")

# by a piece of the model's name: least ratios for (prompt 512, one sequence, 8 together, 16 together); another file at the peer
MUSTS = {"SmolLM2": (3.5, 2, 3, 4), "0.5b": (1.6, 1.4, None, None), "1.5b": (1.4, 1.15, None, None)}
MUSTS_OTHER_FILE = (1.3, 1.4, None, None)
ROWS = ("prefill 512", "decode 1", "decode 8", "decode 16")


def ours(o, threads):
    argv = [BIN, o.model, "--threads", str(threads), "--prompt", "512", "--decode", "1", "--decode", "8", "--decode", "16", "--tokens", "48", "--context", "64", "--bandwidth"]
    out = subprocess.run(argv + (["--isa", o.isa] if o.isa else []), capture_output=True, check=True, text=True).stdout
    rows = [json.loads(line) for line in out.splitlines()]
    read = rows.pop(0)
    speed = {r["name"]: r["tok_s"] for r in rows}
    o.read_share = getattr(o, "read_share", []) + [speed["decode 1"] * read["weight_bytes"] / read["gb_s"] / 1e9]
    return speed, {r["name"]: r["checksum"] for r in rows}


def peers(o):
    file, t = o.peer_file or o.model, str(o.threads)
    run = lambda *argv: subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True).stdout
    got = {}
    for r in json.loads(run(os.path.join(o.peer_dir, "llama-bench"), "-m", file, "-t", t, "-p", "512", "-n", "48", "-r", "1", "-o", "json")):
        got["prefill 512" if r["n_prompt"] else "decode 1"] = r["avg_ts"]
    together = run(os.path.join(o.peer_dir, "llama-batched-bench"), "-m", file, "-t", t, "-c", "4096", "-npp", "64", "-ntg", "48", "-npl", "8,16", "--output-format", "jsonl")
    for line in together.splitlines():
        if line.startswith("{"):
            r = json.loads(line)
            got[f"decode {r['pl']}"] = r["speed_tg"]
    return got


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default=os.path.join(CACHE, "models", "SmolLM2-135M-Instruct.Q4_1.gguf"))
    p.add_argument("--peer-dir")
    p.add_argument("--peer-file")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--isa", default="")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--hog", action="store_true")
    p.add_argument("--json", action="store_true")
    o = p.parse_args()
    if not os.path.exists(o.model):
        sys.exit(f"bench: there is no model file {o.model}; ./dev models smollm2 brings it")
    alone = {}
    if o.hog:
        alone = ours(o, 1)[0]
    hog = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if o.hog else None
    mine, theirs, checksums = {r: [] for r in ROWS}, {r: [] for r in ROWS}, {}
    try:
        for r in range(o.rounds):
            for who in ("ours", "peer") if r % 2 == 0 else ("peer", "ours"):
                if who == "peer" and not o.peer_dir:
                    continue
                print(f"# round {r + 1} of {o.rounds}: {who}", file=sys.stderr)
                if who == "ours":
                    got, checksums = ours(o, o.threads)
                else:
                    got = peers(o)
                for name, v in got.items():
                    (mine if who == "ours" else theirs)[name].append(v)
    finally:
        if hog:
            hog.kill()
            hog.wait()
    return report(o, mine, theirs, checksums, alone)


def report(o, mine, theirs, checksums, alone):
    musts = MUSTS_OTHER_FILE if o.peer_file else next((v for k, v in MUSTS.items() if k.lower() in os.path.basename(o.model).lower()), (None,) * 4)
    failed = False
    for name, must in zip(ROWS, musts):
        a, b = statistics.median(mine[name]), statistics.median(theirs[name]) if theirs[name] else None
        ratio = a / b if b else None
        if o.hog:
            must, ratio = (0.7, a / alone[name]) if name == "decode 1" else (None, ratio)
        met = None if must is None or ratio is None else ratio >= must
        failed |= met is False
        spread = (max(mine[name]) - min(mine[name])) / a
        if o.json:
            print(json.dumps({"name": name, "value": round(a, 2), "unit": "tok/s", "peer": b and round(b, 2), "ratio": ratio and round(ratio, 3), "must": must, "met": met,
                              "checksum": checksums[name], "read_share": round(statistics.median(o.read_share), 3) if name == "decode 1" else None, "machine": os.environ.get("DEJA_MACHINE", "unnamed machine"), "spread": round(spread, 3)}))
        else:
            beside = f" ({alone[name]:.1f} with one thread, no hog)" if o.hog else ""
            if name == "decode 1":
                beside += f"  {statistics.median(o.read_share):.0%} of the read bandwidth"
            print(f"{name:12} {a:9.1f} tok/s  peer {b and round(b, 1) or '-':>8}  ratio {ratio and round(ratio, 2) or '-':>6}  must {must or '-':>5} "
                  f"{'' if met is None else 'met' if met else 'NOT MET'}  spread {spread:.2f}  {checksums[name]}{beside}")
    return failed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
