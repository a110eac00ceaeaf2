#!/usr/bin/env python3
"""The engine as clients feel it: time to the first token, time per token, throughput, stalls; alone or beside a peer.
  bench_engine.py [--model FILE.gguf] [--peer URL | --peer-cmd 'CMD with {port} and {model}'] [--peer-model NAME]
                  [--rounds 5] [--scenarios single,distinct,sixteen,shared,warm,stall,start,revive,memory] [--tokens 64] [--engine-args '...'] [--json]
A peer is any OpenAI-compatible server of the same model. In every round both are asked one after the other (who is first alternates), values
are medians over rounds, a ratio is ours over the peer's (turned so that above 1 is better for us). Streams, greedy. The
checksum covers our greedy texts of the first round: it changes when the arithmetic does, not when the machine does.
Exit status 1 when a must with a peer present is not met."""
import argparse
import hashlib
import http.client
import json
import os
import random
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

from machine import free_port

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CACHE = os.environ.get("DEJA_CACHE", os.path.join(os.path.expanduser("~"), ".cache", "deja"))
BIN = os.environ.get("DEJA_BIN", os.path.join(ROOT, "build", "release", "deja"))
WORDS = ("time year people way day man thing woman life child world school state family student group country problem hand part place case week "
         "company system program question work government number night point home water room mother area money story fact month lot right study book eye "
         "job word business issue side kind head house service friend father power hour game line end member law car city community name").split()

# name, unit, higher is better, least ratio against a peer (None = shown only; a string names a limit of our own value instead)
METRICS = {
    "single_decode": ("tok/s", True, 1.0), "single_ttft_200": ("ms", False, None),
    "distinct8_throughput": ("tok/s", True, 1.0), "distinct8_ttft_p50": ("ms", False, 1.0), "distinct8_ttft_p95": ("ms", False, None), "distinct8_tpot_p50": ("ms", False, None),
    "sixteen_throughput": ("tok/s", True, 2.5), "sixteen_ttft_p50": ("ms", False, 3.33),
    "shared8_throughput": ("tok/s", True, 2.5), "shared8_ttft_p95": ("ms", False, 5.55), "shared8_cached": ("share", True, None),
    "warm_cold_ttft": ("ms", False, None), "warm_ttft": ("ms", False, None), "warm_share": ("ratio", False, None),
    "stall_largest_gap": ("ms", False, "<= 60"), "stall_usual_gap": ("ms", False, None), "stall_intruder_ttft": ("ms", False, None),
    "revive_cold_ttft": ("ms", False, None), "revive_ttft": ("ms", False, None), "revive_cached": ("share", True, None),
    "start_ready": ("ms", False, 1.0), "memory_ready": ("MiB", False, None), "memory_growth": ("%", False, "<= 2"),
}


def text(rng, n_words):
    return " ".join(rng.choice(WORDS) for _ in range(n_words))


class Answer:
    def __init__(self):
        self.times, self.text, self.prompt, self.cached, self.n = [], "", 0, 0, 0

    @property
    def gaps(self):
        return [(b - a) * 1000 for a, b in zip(self.times, self.times[1:])]


class Server:
    def __init__(self, name, host, port, model):
        self.name, self.host, self.port, self.model, self.process, self.argv, self.ready = name, host, port, model, None, None, []

    def request(self, method, path, body=None):
        c = http.client.HTTPConnection(self.host, self.port, timeout=600)
        c.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        return c.getresponse()

    def complete(self, prompt, n_tokens, on_token=None):
        """One streamed greedy completion; the clock starts before the connection does."""
        a, t0 = Answer(), time.perf_counter()
        body = {"model": self.model, "prompt": prompt, "max_tokens": n_tokens, "temperature": 0, "stream": True, "ignore_eos": True,
                "cache_prompt": True, "stream_options": {"include_usage": True}}
        r = self.request("POST", "/v1/completions", body)
        if r.status != 200:
            raise SystemExit(f"bench: {self.name} answered {r.status}: {r.read()[:300]!r}")
        for line in r:
            if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                continue
            chunk = json.loads(line[6:])
            usage = chunk.get("usage")
            if usage:
                a.prompt, a.n = usage["prompt_tokens"], usage["completion_tokens"]
                a.cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
            if chunk.get("choices") and chunk["choices"][0].get("text"):
                a.times.append(time.perf_counter())
                a.text += chunk["choices"][0]["text"]
                if on_token:
                    on_token(a)
        if not a.times:
            a.times = [time.perf_counter()]
        a.start, a.ttft = t0, (a.times[0] - t0) * 1000
        a.n = a.n or len(a.times)
        return a


def together(server, prompts, n_tokens):
    """All prompts at once; answers and wall seconds."""
    out = [None] * len(prompts)

    def one(i):
        out[i] = server.complete(prompts[i], n_tokens)
    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(prompts))]
    t0 = time.perf_counter()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if None in out:
        raise SystemExit(f"bench: a request to {server.name} failed")
    return out, time.perf_counter() - t0


def percentile(values, share):
    v = sorted(values)
    return v[min(len(v) - 1, int(share * len(v)))]


def tpot(a):
    return (a.times[-1] - a.times[0]) * 1000 / max(1, a.n - 1)


# --- scenarios: (server, seed, tokens) -> ({metric: value}, texts)
def single(server, seed, tokens):
    a = server.complete(text(random.Random(seed), 190), tokens)
    return {"single_decode": 1000 / max(1e-9, tpot(a)), "single_ttft_200": a.ttft}, [a.text]


def distinct(server, seed, tokens):
    rng = random.Random(seed)
    answers, wall = together(server, [text(rng, 190) for _ in range(8)], tokens)
    ttfts = [a.ttft for a in answers]
    return {"distinct8_throughput": sum(a.n for a in answers) / wall, "distinct8_ttft_p50": statistics.median(ttfts), "distinct8_ttft_p95": percentile(ttfts, 0.95),
            "distinct8_tpot_p50": statistics.median(tpot(a) for a in answers)}, [a.text for a in answers]


def sixteen(server, seed, tokens):
    rng = random.Random(seed)
    answers, wall = together(server, [text(rng, 190) for _ in range(16)], tokens)
    return {"sixteen_throughput": sum(a.n for a in answers) / wall, "sixteen_ttft_p50": statistics.median(a.ttft for a in answers)}, [a.text for a in answers]


def resident_mib(server):
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) / 1024


def settled_mib(server):
    """Resident memory once it has stopped growing for a second: our engine has its pool backed just after the start."""
    seen, since, end = resident_mib(server), time.monotonic(), time.monotonic() + 30
    while time.monotonic() < min(end, since + 1):
        time.sleep(0.05)
        now = resident_mib(server)
        if now != seen:
            seen, since = now, time.monotonic()
    return seen


def memory(server, seed, _tokens):
    """Resident memory of a fresh process soon after ready, and after distinct requests (240 at a peer, which is slow; 1000 of ours)."""
    if not server.argv:
        return {}, []
    fresh = start([], server.name, server.argv(free_port()), server.model, server.ready)
    try:
        rng, ready = random.Random(seed), settled_mib(fresh)
        n = 1000 if server.name == "deja" else 240
        for i in range(0, n, 8):
            together(fresh, [text(rng, 40) for _ in range(8)], 8)
        return {"memory_ready": ready, "memory_growth": (resident_mib(fresh) - ready) * 100 / ready}, []
    finally:
        end(fresh)


def restart(server, _seed, _tokens):
    """From exec to ready, files in the page cache."""
    if not server.argv:
        return {}, []
    t0 = time.perf_counter()
    fresh = start([], server.name, server.argv(free_port()), server.model, server.ready, 0.002)
    ms = (time.perf_counter() - t0) * 1000
    end(fresh)
    return {"start_ready": ms}, []


def revive(server, seed, _tokens):
    """First token of a prompt that was answered before a restart: ours keeps its blocks on disk, a peer begins anew."""
    if not server.argv:
        return {}, []
    prompt, answers = text(random.Random(seed), 520), []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            argv, port = server.argv(free_port())
            fresh = start([], server.name, (argv + (["--kv-disk", folder] if server.name == "deja" else []), port), server.model, server.ready)
            try:
                answers.append(fresh.complete(prompt, 4))
            finally:
                end(fresh)
    cold, again = answers
    if server.name == "deja" and cold.text != again.text:
        raise SystemExit("bench: another answer after the restart")
    return {"revive_cold_ttft": cold.ttft, "revive_ttft": again.ttft, "revive_cached": again.cached / max(1, again.prompt)}, [again.text]


def shared(server, seed, tokens):
    rng = random.Random(seed)
    prefix = text(rng, 510)  # new in every round: nobody has it cached
    answers, wall = together(server, [f"{prefix} {text(rng, 20)}" for _ in range(8)], tokens)
    return {"shared8_throughput": sum(a.n for a in answers) / wall, "shared8_ttft_p95": percentile([a.ttft for a in answers], 0.95),
            "shared8_cached": sum(a.cached for a in answers) / max(1, sum(a.prompt for a in answers))}, [a.text for a in answers]


def warm(server, seed, _tokens):
    rng = random.Random(seed)
    prompt = text(rng, 520)
    cold = server.complete(prompt + " " + text(rng, 10), 4)
    hot = server.complete(prompt + " " + text(rng, 10), 4)
    return {"warm_cold_ttft": cold.ttft, "warm_ttft": hot.ttft, "warm_share": hot.ttft / cold.ttft}, [cold.text, hot.text]


def stall(server, seed, _tokens):
    """Two running streams, then a long prompt: the largest silence they hear."""
    rng = random.Random(seed)
    go, answers = threading.Event(), [None, None]

    prompts = [text(rng, 10) for _ in range(2)]

    def victim(i):
        answers[i] = server.complete(prompts[i], 150, lambda a: go.set() if len(a.times) == 20 else None)
    threads = [threading.Thread(target=victim, args=(i,)) for i in range(2)]
    for t in threads:
        t.start()
    go.wait(120)
    intruder = server.complete(text(random.Random(seed + " intruder"), 1750), 4)
    for t in threads:
        t.join()
    gaps = [g for a in answers for g in a.gaps]
    return {"stall_largest_gap": max(gaps), "stall_usual_gap": statistics.median(gaps), "stall_intruder_ttft": intruder.ttft}, [a.text for a in answers]


SCENARIOS = {"single": single, "distinct": distinct, "sixteen": sixteen, "shared": shared, "warm": warm, "stall": stall, "start": restart, "revive": revive, "memory": memory}


def wait_ready(server, paths, every_s=0.1):
    for _ in range(int(120 / every_s)):
        if server.process and server.process.poll() is not None:
            raise SystemExit(f"bench: {server.name} ended with status {server.process.returncode}")
        try:
            for path in paths:
                r = server.request("GET", path)
                r.read()
                if r.status == 200:
                    return
        except OSError:
            pass
        time.sleep(every_s)
    raise SystemExit(f"bench: {server.name} is not ready after 120 s")


def start(servers, name, argv, model, paths, every_s=0.1):
    """argv is (list, port)"""
    argv, port = argv
    s = Server(name, "127.0.0.1", port, model)
    servers.append(s)  # first, so that it is ended whatever happens
    s.ready = paths
    s.process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_ready(s, paths, every_s)
    return s


def end(server):
    if not server.process:
        return
    server.process.terminate()
    try:
        server.process.wait(20)
    except subprocess.TimeoutExpired:
        server.process.kill()


def open_servers(o, servers):
    ours = lambda port: ([BIN, "engine", "--port", str(port), "--model", o.model, "--served-model-name", "bench", *shlex.split(o.engine_args)], port)
    start(servers, "deja", ours(free_port()), "bench", ["/ready"]).argv = ours
    if o.peer_cmd:
        peer = lambda port: ([x.format(port=port, model=o.model) for x in shlex.split(o.peer_cmd)], port)
        start(servers, "peer", peer(free_port()), o.peer_model, ["/ready", "/health", "/v1/models"]).argv = peer
    elif o.peer:
        u = urllib.parse.urlparse(o.peer)
        servers.append(Server("peer", u.hostname, u.port or 80, o.peer_model))


def report(o, values, texts, machine):
    failed = False
    has_peer = "peer" in values
    if not o.json and values["deja"]:
        print(f"{'value':24} {'deja':>12} {'peer':>12} {'ratio':>7} {'must':>5}  unit   (median of {o.rounds}; spread = (max-min)/median)")
    for name in values["deja"]:
        unit, higher, must = METRICS[name]
        ours = statistics.median(values["deja"][name])
        spread = (max(values["deja"][name]) - min(values["deja"][name])) / ours if ours else 0
        peer = statistics.median(values["peer"][name]) if has_peer and name in values["peer"] else None
        ratio = (ours / peer if higher else peer / ours) if peer and ours else None
        if isinstance(must, str):
            met = ours <= float(must.split()[1])
        else:
            met = None if ratio is None or must is None else ratio >= must
        failed |= met is False
        scenario = next(s for s in SCENARIOS if name.startswith(s))
        checksum = hashlib.sha256("\0".join(texts.get(scenario, [])).encode()).hexdigest()[:16] if texts.get(scenario) else "-"
        if o.json:
            print(json.dumps({"name": name, "value": round(ours, 4), "unit": unit, "peer": peer and round(peer, 4), "ratio": ratio and round(ratio, 4), "must": must,
                              "met": met, "checksum": checksum, "machine": machine, "spread": round(spread, 3)}), flush=True)
        else:
            show = lambda v, f: "-" if v is None else v if isinstance(v, str) else format(v, f)
            print(f"{name:24} {ours:12.2f} {show(peer, '12.2f'):>12} {show(ratio, '7.2f'):>7} {show(must, '5.2f'):>5}  {unit:6} spread {spread:.2f}  {checksum}"
                  f"{'' if met is None else '  met' if met else '  NOT MET'}")
    return failed


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default=os.path.join(CACHE, "models", "SmolLM2-135M-Instruct.Q4_1.gguf"))
    p.add_argument("--peer")
    p.add_argument("--peer-cmd")
    p.add_argument("--peer-model", default="bench")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--tokens", type=int, default=64)
    p.add_argument("--scenarios", default="single,distinct,sixteen,shared,warm,stall,start")
    p.add_argument("--engine-args", default="")
    p.add_argument("--json", action="store_true")
    o = p.parse_args()
    if not os.path.exists(o.model):
        sys.exit(f"bench: there is no model file {o.model}; ./dev models smollm2 brings it")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    servers, values, texts, stopped = [], {"deja": {}}, {}, None
    try:
        open_servers(o, servers)
        for s in servers:
            s.complete("warm up", 4)
        for r in range(o.rounds):
            for name in o.scenarios.split(","):
                for s in servers if r % 2 == 0 else servers[::-1]:
                    print(f"# round {r + 1} of {o.rounds}: {name}, {s.name}", file=sys.stderr)
                    got, said = SCENARIOS[name](s, f"{name} {r}", o.tokens)  # no two scenarios share a prompt
                    for k, v in got.items():  # a scenario may have nothing to say of a server it did not start
                        values.setdefault(s.name, {}).setdefault(k, []).append(v)
                    if s.name == "deja" and r == 0:
                        texts[name] = said
    except (SystemExit, KeyboardInterrupt) as e:  # what was measured is shown all the same
        stopped = e
    finally:
        for s in servers:
            end(s)
    if stopped:
        print(f"bench: stopped early: {stopped}", file=sys.stderr)
    return report(o, values, texts, os.environ.get("DEJA_MACHINE", "unnamed machine")) or stopped is not None


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
