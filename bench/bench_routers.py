#!/usr/bin/env python3
"""The gateway beside routers for language models, in one run: wrk against a null upstream (bench_null.c) directly, through the gateway (its cache
bypassed, bodies parsed, keyed and routed all the same) and through each router found. Scenarios are interleaved over the rounds, medians count; wrk, upstream and
proxy share the machine, so beside rates there is each proxy's own CPU time a request.

  bench_routers.py [--bin FOLDER] [--rounds 5] [--seconds 2] [--connections 1,16,64] [--json]

FOLDER: the bin folder of a Python environment with the packages sglang-router and vllm-router in it, or one of them:
  python3 -m venv /tmp/routers && /tmp/routers/bin/pip install sglang-router vllm-router && ./dev bench routers --bin /tmp/routers/bin
Must: at 64 connections twice the best of them, at one connection no more added time than half of the least of theirs. Exit status 1 when not met."""
import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from bench_gateway import NULL, gateway_argv, launch, lua, wrk
from load_rig import Rows
from machine import cpu_s, free_port, rss_mb

ROUTERS = {"sglang-router": ["launch", "--worker-urls", "%s", "--policy", "cache_aware"], "vllm-router": ["--worker-urls", "%s", "--policy", "cache_aware"]}


def start_router(name, folder, up, processes):
    """(process, port), or None when it is not there."""
    program = os.path.join(folder, name)
    if not os.path.exists(program):
        print(f"# no {name} in {folder}", file=sys.stderr)
        return None
    port = free_port()
    argv = [program] + [x % up if "%s" in x else x for x in ROUTERS[name]] + ["--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port())]
    return launch(processes, argv, port, name)[0], port


def tree_cpu_s(pid):
    """A wheel's program may be a Python process with the router as a thread or a child."""
    total, todo = 0, [pid]
    while todo:
        p = todo.pop()
        total += cpu_s(p)
        with open(f"/proc/{p}/task/{p}/children", encoding="ascii") as f:
            todo += [int(x) for x in f.read().split()]
    return total


def measure(o, folder, processes, rows):
    up_port, port = free_port(), free_port()
    processes.append(subprocess.Popen([NULL, str(up_port)]))
    time.sleep(0.3)
    up = f"http://127.0.0.1:{up_port}"
    gateway, _ = launch(processes, gateway_argv(port, up_port), port, "the gateway")
    targets = {"direct": (None, up_port), "deja": (gateway, port)}
    for name in ROUTERS:
        started = start_router(name, o.bin, up, processes) if o.bin else None
        if started:
            targets[name] = started
    passing = lua(folder, "pass", "unique", {"x-deja-cache": "bypass"}, False)
    got = {}
    for c in [int(x) for x in o.connections.split(",")]:
        for r in range(o.rounds):
            for name, (p, at) in list(targets.items()) if r % 2 == 0 else list(targets.items())[::-1]:
                before = tree_cpu_s(p.pid) if p else 0
                one = wrk(f"http://127.0.0.1:{at}", passing, c, o.seconds)
                one["cpu_us"] = (tree_cpu_s(p.pid) - before) * 1e6 / max(1, one["requests"]) if p else 0
                got.setdefault((name, c), []).append(one)
    med = {k: {f: statistics.median(x[f] for x in v) for f in ("rps", "p50_us", "p99_us", "cpu_us", "bad")} for k, v in got.items()}
    report(o, med, list(targets)[2:], rows)
    for name, (p, _) in targets.items():
        if p:
            rows.row(f"resident afterwards: {name}", rss_mb(p.pid), "MB")


def report(o, med, routers, rows):
    if not o.json:
        print(f"{'proxy':16} {'conns':>5} {'req/s':>9} {'p50 us':>9} {'p99 us':>9} {'CPU us/req':>11} {'bad':>6}")
        for (name, c), m in med.items():
            print(f"{name:16} {c:5d} {m['rps']:9.0f} {m['p50_us']:9.0f} {m['p99_us']:9.0f} {m['cpu_us']:11.1f} {m['bad']:6.0f}")
    for c in sorted({c for _, c in med}):
        ours = med[("deja", c)]
        added = {n: max(1.0, med[(n, c)]["p50_us"] - med[("direct", c)]["p50_us"]) for n in ["deja"] + routers}
        rows.row(f"added p50, {c} connections", added["deja"], "us")
        for n in routers:
            rows.row(f"the same, {n}", added[n], "us")
        if not routers:
            continue
        best = max(med[(n, c)]["rps"] for n in routers)
        rows.row(f"requests a second beside the best of them, {c} connections", ours["rps"] / best, "", ">= 2" if c > 16 else None)
        if c == 1:
            rows.row("added p50 of the least of theirs, 1 connection", added["deja"] / min(added[n] for n in routers), "", "<= 0.5")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--bin")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=int, default=2)
    p.add_argument("--connections", default="1,16,64")
    p.add_argument("--json", action="store_true")
    o = p.parse_args()
    if not shutil.which("wrk"):
        sys.exit("bench: wrk is not installed (./dev setup bench)")
    folder, processes, rows = tempfile.mkdtemp(prefix="deja-bench-"), [], Rows(o.json)
    try:
        measure(o, folder, processes, rows)
    finally:
        for x in reversed(processes):
            x.terminate()
            x.wait()
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if rows.all_met else 1


if __name__ == "__main__":
    sys.exit(main())
