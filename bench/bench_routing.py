#!/usr/bin/env python3
"""What routing by held KV brings. Simulates policies on request traces with the gateway's own index and score (bench_routing.c).
  bench_routing.py [--trace FILE.jsonl ...] [--weight W] [--json]
  bench_routing.py --live [--model FILE.gguf] [--engines 3] [--rounds 3] [--json]      real engines (bench_routing_live.py)
A trace has a JSON object a line: {"timestamp": ms, "input_length", "output_length", "hash_ids": [one a 512-token block]}, the form of
the public Mooncake traces; without --trace one of that shape is made. Eight replicas keep 1,000, 4,000 or 16,000 blocks each.
must: on the public conversation and synthetic traces the hit rates that routing by the true state of the caches can reach, on a made
one twice that of round robin, or with room 0.95 of one infinite cache; the busiest replica computes at most 1.05 of the mean; a look-up of 64 blocks takes 10 us (p99)."""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CAPS = (1000, 4000, 16000)
MUST = {"conversation": (0.168, 0.315, 0.349), "synthetic": (0.353, 0.608, 0.614)}
IMBALANCE_MAX, LOOKUP_P99_US, EVENTS_PER_S = 1.05, 10, 500_000


def make_trace(path, seed=5):
    """Conversations that grow turn by turn, a few long instructions that many begin with, and one-off documents."""
    rng, fresh, lines = random.Random(seed), iter(range(1, 1 << 30)), []
    heads = [[0] + [next(fresh) for _ in range(rng.randint(1, 12))] for _ in range(24)]
    for _ in range(2200):
        at, ids = rng.random() * 3_600_000, list(rng.choice(heads))
        ids += [next(fresh) for _ in range(rng.randint(1, 30))]
        for _ in range(1 if rng.random() < 0.4 else rng.randint(2, 8)):
            lines.append((at, list(ids)))
            at += 5_000 + rng.expovariate(1 / 60_000)
            ids += [next(fresh) for _ in range(rng.randint(1, 4))]
    lines.sort(key=lambda x: x[0])
    with open(path, "w", encoding="ascii") as f:
        for at, ids in lines:
            f.write(json.dumps({"timestamp": int(at), "input_length": 512 * len(ids), "output_length": 200, "hash_ids": ids}) + "\n")


def simulate(traces, weight):
    tool = os.environ.get("BENCH_ROUTING", os.path.join(ROOT, "build", "release", "bench_routing"))
    if not os.path.exists(tool):
        sys.exit("bench: build it first: cmake --preset release && cmake --build build/release --target bench_routing")
    out = subprocess.run([tool, f"--weight={weight}"] + traces, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [json.loads(x) for x in out.splitlines()]


def judge(rows):
    """name, value, unit, must (None = only shown), met"""
    by = {(r["trace"], r["cap"], r["policy"]): r for r in rows if "policy" in r}
    for (trace, cap, policy), r in by.items():
        name = trace.replace(".jsonl", "").replace("_trace", "")
        must = None
        if policy == "precise_load":
            made = round(2 * by[trace, cap, "round_robin"]["hit_rate"] if cap == CAPS[0] else 0.95 * by[trace, cap, "infinite"]["hit_rate"], 3)
            must = MUST[name][CAPS.index(cap)] if name in MUST else made
        label = f"routing_{name}_{cap}_{policy}"
        yield label + "_hit_rate", r["hit_rate"], "share", must, must is None or round(r["hit_rate"], 3) >= must
        limit = IMBALANCE_MAX if policy == "precise_load" else None
        yield label + "_imbalance", r["imbalance"], "max/mean", limit, limit is None or r["imbalance"] <= limit
        if policy == "history_load":
            yield label + "_overclaim", r["overclaim"], "share of requests", None, True
    for r in rows:
        if "index" in r:
            yield "prefix_lookup_64_p50", r["lookup_p50_us"], "us", None, True
            yield "prefix_lookup_64_p99", r["lookup_p99_us"], "us", LOOKUP_P99_US, r["lookup_p99_us"] <= LOOKUP_P99_US
            yield "prefix_events", r["events_per_s"], "1/s", EVENTS_PER_S, r["events_per_s"] >= EVENTS_PER_S


def table(rows):
    for r in rows:
        if "policy" in r and r["policy"] == "random":
            print(f"\n{r['trace']} ({r['requests']} requests), {r['cap']} blocks a replica\n  {'policy':14} {'hit rate':>8} {'imbalance':>9} {'overclaim':>9}")
        if "policy" in r:
            print(f"  {r['policy']:14} {r['hit_rate']:8.3f} {r['imbalance']:9.2f} {100 * r['overclaim']:8.1f}%")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--trace", nargs="+", default=[])
    p.add_argument("--weight", type=float, default=0.7, help="the knob route_load_weight")
    p.add_argument("--json", action="store_true")
    p.add_argument("--live", action="store_true")
    p.add_argument("--model", default="")
    p.add_argument("--engines", type=int, default=3)
    p.add_argument("--clients", type=int, default=3)
    p.add_argument("--heads", type=int, default=18, help="beginnings that prompts share")
    p.add_argument("--turns", type=int, default=3, help="prompts of each")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--kv-bytes", default="110M", help="KV pool of each engine")
    a = p.parse_args()
    if a.live:
        from bench_routing_live import live
        return show(live(a), a.json)
    with tempfile.TemporaryDirectory() as d:
        made = os.path.join(d, "made.jsonl")
        if not a.trace:
            make_trace(made)
        rows = simulate(a.trace or [made], a.weight)
    if not a.json:
        table(rows)
        print()
    return show(judge(rows), a.json)


def show(rows, as_json):
    bad = 0
    for name, value, unit, must, met in rows:
        bad += not met
        if as_json:
            print(json.dumps({"name": name, "value": value, "unit": unit, "must": must, "met": met, "machine": os.environ.get("DEJA_MACHINE", "?")}))
        elif must is not None or "live" in name:
            must = "-" if must is None else f"{must:g}"
            print(f"{'ok  ' if met else 'FAIL'} {name} {value:g} {unit} (must {must})")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
