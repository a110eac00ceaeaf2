#!/usr/bin/env python3
"""What running answers feel of long prompts that arrive beside them: one engine that computes them itself, and the same engine with the
prompts computed by a second one (docs/disaggregation.md), in turn.
  bench_disaggregation.py [--model FILE.gguf] [--prompt 1200] [--streams 3] [--prompts 4] [--rounds 3] [--json]
Each engine has one thread and, where the machine has two cores, one of its own: a machine each, but for memory and caches. Prints the gaps between
two tokens of the running answers, and the time to the first token of the long prompts. No must: who else works on the machine decides."""
import argparse
import http.client
import json
import os
import random
import signal
import statistics
import subprocess
import tempfile
import threading
import time

from bench_engine import BIN, CACHE, text
from machine import free_port, ready

KEY = "bench"


def start(role, core, model, log):
    port = free_port()
    argv = [BIN, "engine", "--port", str(port), "--model", model, "--served-model-name", "m", "--threads", "1", "--role", role,
            "--max-model-len", "4096", "--kv-transfer-ms", "60000", "--speculative-config", "off"]
    p = subprocess.Popen(argv, stdout=log, stderr=log, env=dict(os.environ, DEJA_GATEWAY_KEY=KEY))
    if (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(p.pid, {core})
    end = time.time() + 120
    while not ready(port):
        if p.poll() is not None or time.time() > end:
            raise SystemExit("bench: an engine did not start")
        time.sleep(0.1)
    return port, p


def stream(port, prompt, n, salt, prefill=None):
    """When each token came, and how many of the prompt's were cached."""
    body = {"model": "m", "stream": True, "stream_options": {"include_usage": True}, "max_tokens": n, "temperature": 0, "ignore_eos": True,
            "messages": [{"role": "user", "content": prompt}]}
    headers = {"Content-Type": "application/json", "x-deja-key": KEY, "x-deja-salt": salt}
    if prefill:
        headers["x-deja-prefill"] = f"http://127.0.0.1:{prefill} 0"
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    times, usage = [time.perf_counter()], {}
    c.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    for line in c.getresponse():
        if line.startswith(b"data: {"):
            frame = json.loads(line[6:])
            if any(x["delta"].get("content") for x in frame.get("choices", [])):
                times.append(time.perf_counter())
            usage = frame.get("usage") or usage
    c.close()
    return times, usage


def one_round(a, decode, prefill, seed):
    rng, stop, gaps, lock = random.Random(seed), threading.Event(), [], threading.Lock()

    def neighbour(k):
        while not stop.is_set():
            times, _ = stream(decode, f"Tell story {seed} {k}.", 120, f"n{seed}{k}")
            with lock:
                gaps.extend((y - x) * 1000 for x, y in zip(times[1:], times[2:]))

    threads = [threading.Thread(target=neighbour, args=(k,)) for k in range(a.streams)]
    for t in threads:
        t.start()
    time.sleep(1)
    firsts, cached, n = [], 0, 0
    for i in range(a.prompts):
        times, usage = stream(decode, text(rng, a.prompt) + f" {seed} {i}?", 2, f"p{seed}{i}{bool(prefill)}", prefill)
        firsts.append((times[1] - times[0]) * 1000 if len(times) > 1 else float("nan"))
        cached, n = cached + usage["prompt_tokens_details"]["cached_tokens"], n + usage["prompt_tokens"]
    stop.set()
    for t in threads:
        t.join()
    gaps.sort()
    return {"gap_p50": gaps[len(gaps) // 2], "gap_p95": gaps[int(len(gaps) * 0.95)], "gap_p99": gaps[int(len(gaps) * 0.99)], "gap_max": gaps[-1],
            "long_ttft": statistics.median(firsts), "from_elsewhere": cached / n, "prompt_tokens": n / a.prompts}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default=os.path.join(CACHE, "models", "SmolLM2-135M-Instruct.Q4_1.gguf"))
    for name, preset in (("prompt", 1200), ("streams", 3), ("prompts", 4), ("rounds", 3)):
        p.add_argument("--" + name, type=int, default=preset)
    p.add_argument("--json", action="store_true")
    a = p.parse_args()
    seen = {False: [], True: []}
    with tempfile.TemporaryFile() as log:
        engines = [start(role, core, a.model, log) for role, core in (("decode", 0), ("prefill", 1))]
        try:
            for i in range(a.rounds):
                for elsewhere in (True, False) if i % 2 else (False, True):
                    seen[elsewhere].append(one_round(a, engines[0][0], engines[1][0] if elsewhere else None, i))
        finally:
            for _, e in engines:
                e.send_signal(signal.SIGTERM)
            for _, e in engines:
                e.wait(30)
    for key in seen[True][0]:
        here, there = (statistics.median(x[key] for x in seen[k]) for k in (False, True))
        unit = "ms" if "gap" in key or "ttft" in key else "share" if key == "from_elsewhere" else "tokens"
        if a.json:
            for name, value in (("alone", here), ("disaggregated", there)):
                print(json.dumps({"name": f"disaggregation_{name}_{key}", "value": round(value, 3), "unit": unit}))
        else:
            print(f"{key:16} alone {here:10.2f}   disaggregated {there:10.2f}   {unit}")


if __name__ == "__main__":
    main()
