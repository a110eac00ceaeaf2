"""The live half of bench_routing.py: engines of ours behind one gateway, prompts that share long beginnings, asked by several clients at
a time; the same requests once with the knob route_prefix off (least loaded, ties go round) and once on, in turn, several rounds.
Both ways start from empty caches, and every
beginning is asked once before the measured part. Prints time to the first token and share of prompt tokens found; must: twice the hit rate, p95 of
the time to the first token at most 0.7 of the other."""
import http.client
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import tempfile
import threading
import time

from bench_engine import BIN, CACHE, text
from machine import free_port, ready

RATIO_HIT, RATIO_TTFT = 2.0, 0.7


class Fleet:
    """n engines, a Redis for the knob, the gateway."""

    def __init__(self, n, model, kv_bytes, on):
        self.folder, self.children = tempfile.mkdtemp(prefix="bench-routing-"), []
        env = dict(os.environ, DEJA_GATEWAY_KEY="bench")
        threads = str(max(1, (os.cpu_count() or 2) // n))
        ports = [free_port() for _ in range(n)]
        for p in ports:
            self.start([BIN, "engine", "--port", str(p), "--model", model, "--served-model-name", "m", "--threads", threads, "--kv-bytes", kv_bytes,
                        "--max-model-len", "2048", "--swap-space", "0"], env)
        socket_path = os.path.join(self.folder, "redis.sock")
        self.start(["redis-server", "--port", "0", "--unixsocket", socket_path, "--save", "", "--dir", self.folder], env)
        self.port = free_port()
        for p in ports:
            self.wait(p)
        self.start([BIN, "gateway", "--port", str(self.port), "--redis", "unix:" + socket_path, "--no-access-log"]
                   + [x for p in ports for x in ("--engine-url", f"http://127.0.0.1:{p}")], env)
        self.wait(self.port)
        time.sleep(2)                                        # tokenizers and streams of events
        subprocess.run(["redis-cli", "-s", socket_path, "FCALL", "deja_config_set", "1", "{deja}:config", "route_prefix", "yes" if on else "no"],
                       stdout=subprocess.DEVNULL, check=True)
        time.sleep(1.5)

    def start(self, argv, env):
        with open(os.path.join(self.folder, "log"), "ab") as log:
            self.children.append(subprocess.Popen(argv, stdout=log, stderr=log, env=env))

    def wait(self, port, seconds=120):
        end = time.time() + seconds
        while time.time() < end:
            if ready(port):
                return
            time.sleep(0.1)
        with open(os.path.join(self.folder, "log"), encoding="utf8", errors="replace") as f:
            raise SystemExit("bench: a server did not start:\n" + f.read()[-2000:])

    def close(self):
        for c in reversed(self.children):
            c.send_signal(signal.SIGTERM)
        for c in self.children:
            c.wait(20)
        shutil.rmtree(self.folder, ignore_errors=True)


def ask(port, prompt):
    """milliseconds to the first token, cached tokens, prompt tokens"""
    body = {"model": "m", "stream": True, "stream_options": {"include_usage": True}, "max_tokens": 4, "temperature": 0,
            "messages": [{"role": "user", "content": prompt}]}
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    begin, first, usage = time.perf_counter(), None, {}
    c.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json", "Cache-Control": "no-store, no-cache"})
    r = c.getresponse()
    if r.status != 200:
        raise SystemExit(f"bench: status {r.status}: {r.read()[:300]}")
    for line in r:
        if not line.startswith(b"data: {"):
            continue
        frame = json.loads(line[6:])
        if first is None and any(x["delta"].get("content") for x in frame.get("choices", [])):
            first = (time.perf_counter() - begin) * 1000
        usage = frame.get("usage") or usage
    c.close()
    return first, usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"]


def run(fleet, heads, rounds, clients, seed):
    order, out, lock = [(h, t) for t in range(rounds) for h in range(len(heads))], [], threading.Lock()
    random.Random(seed).shuffle(order)

    def client():
        while True:
            with lock:
                if not order:
                    return
                head, turn = order.pop()
            one = ask(fleet.port, f"{heads[head]} Question {seed} {turn}: what does it say?")
            with lock:
                out.append(one)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    times = sorted(x[0] for x in out if x[0] is not None)
    return {"hit": sum(x[1] for x in out) / sum(x[2] for x in out), "p50": statistics.median(times), "p95": times[int(len(times) * 0.95)]}


def live(a):
    """rows: name, value, unit, must, met"""
    rng = random.Random(11)
    heads = [text(rng, 500) for _ in range(a.heads)]
    model = a.model or os.path.join(CACHE, "models", "SmolLM2-135M-Instruct.Q4_1.gguf")
    seen = {True: [], False: []}
    for i in range(a.rounds):
        for on in (True, False) if i % 2 else (False, True):
            fleet = Fleet(a.engines, model, a.kv_bytes, on)
            try:
                run(fleet, heads, 1, a.clients, seed=99)      # everybody's first time is a miss
                seen[on].append(run(fleet, heads, a.turns, a.clients, seed=i))
            finally:
                fleet.close()
    mid = lambda on, key: statistics.median(x[key] for x in seen[on])
    for on in (False, True):
        for key, unit in (("hit", "share"), ("p50", "ms"), ("p95", "ms")):
            yield f"routing_live_{'by_kv' if on else 'least_loaded'}_{'hit_rate' if key == 'hit' else 'ttft_' + key}", mid(on, key), unit, None, True
    hits, p95 = mid(True, "hit") / mid(False, "hit"), mid(True, "p95") / mid(False, "p95")
    yield "routing_live_hit_ratio", hits, "ratio", RATIO_HIT, hits >= RATIO_HIT
    yield "routing_live_ttft_p95_ratio", p95, "ratio", RATIO_TTFT, p95 <= RATIO_TTFT
