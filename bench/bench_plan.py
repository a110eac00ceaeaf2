#!/usr/bin/env python3
"""What `deja plan` says an engine holds, beside what it then holds: resident memory once the KV pool and the swap space are full.
  bench_plan.py [--model FILE.gguf]... [--kv-mib 96] [--json]
Exit status 1 when a plan is off by more than 5 %."""
import argparse
import json
import os
import random
import subprocess
import sys
import time
import urllib.request

from machine import free_port

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CACHE = os.environ.get("DEJA_CACHE", os.path.join(os.path.expanduser("~"), ".cache", "deja"))
BIN = os.environ.get("DEJA_BIN", os.path.join(ROOT, "build", "release", "deja"))
SWAP_GIB = 0.05


def resident(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) * 1024


def fill(port, n_tokens):
    """Distinct prompts, more tokens than pool and swap space hold."""
    rng, sent = random.Random(1), 0
    while sent < n_tokens:
        ids = [rng.randrange(300, 3000) for _ in range(500)]
        body = json.dumps({"model": "m", "prompt": ids, "max_tokens": 1}).encode()
        urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body, {"Content-Type": "application/json"}), timeout=300).read()
        sent += len(ids)


def measure(model, kv_mib):
    args = ["--model", model, "--max-model-len", "1024", "--kv-bytes", str(kv_mib << 20), "--swap-space", str(SWAP_GIB)]
    told = json.loads(subprocess.run([BIN, "plan", *args, "--no-self-test", "--json"], capture_output=True, check=False).stdout)
    port = free_port()
    p = subprocess.Popen([BIN, "engine", *args, "--port", str(port), "--served-model-name", "m"], stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5).read()
                break
            except OSError:
                time.sleep(0.1)
        ready = resident(p.pid)
        fill(port, int(1.2 * told["kv_tokens"] * (1 + SWAP_GIB * 1024 / kv_mib)))
        return told["total_bytes"], ready, resident(p.pid)
    finally:
        p.terminate()
        p.wait(30)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", action="append")
    p.add_argument("--kv-mib", type=int, default=96)
    p.add_argument("--json", action="store_true")
    o = p.parse_args()
    failed = False
    for model in o.model or [os.path.join(CACHE, "models", "SmolLM2-135M-Instruct.Q4_1.gguf")]:
        told, ready, full = measure(model, o.kv_mib)
        off = told / full - 1
        failed |= abs(off) > 0.05
        if o.json:
            print(json.dumps({"name": "plan_memory", "value": told, "unit": "bytes", "peer": full, "ratio": round(told / full, 4), "must": "within 5 %",
                              "met": abs(off) <= 0.05, "checksum": os.path.basename(model), "machine": os.environ.get("DEJA_MACHINE", "unnamed machine")}))
        else:
            print(f"{os.path.basename(model)}: planned {told / 2**20:.1f} MiB, held when full {full / 2**20:.1f} MiB ({off:+.1%}), at ready {ready / 2**20:.1f} MiB")
    return failed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
