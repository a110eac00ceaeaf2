#!/usr/bin/env python3
"""What a semantic hit costs, the embedding of a question nobody has asked before included: a gateway on one core over a store of 100,000 entries answers
rewordings, each asked once, so that nothing is remembered; with the knob same_words off, because by their words alone most of them hit without any embedding,
and once with it on. Beside it, on the same core in turn, the embedder alone: the same texts in batches of 16 to
`deja engine`. Must: 0.9 of the embedder's batched rate, p50 of a whole hit 12 ms with the default encoder and 5 ms with MiniLM. The rate that must be met is
that of processor time: a core's seconds a text of the engine, of those an answer of the gateway takes, since clients, Redis and whatever else runs share the clock.
Twice as many clients as a batch has texts: one batch gathers while another is computed, as the engine's do.

  bench_semantic.py [--models e5,minilm] [--entries 100000] [--rounds 3] [--clients 32] [--json]

The entries are 240 real ones and copies with vectors and questions of their own, written to Redis as a gateway would have. Only hits count. Needs redis-server;
models: ./dev models e5 minilm. Exit status 1 when a must is not met."""
import argparse
import hashlib
import http.client
import json
import os
import random
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time

from bench_embed import FILES, ROOT, Server, start as start_engine
from bench_gateway import NULL, gateway_argv, launch
from load_rig import Programs, Rows, percentile
from machine import cpu_s, free_port

VERBS = ("reset", "change", "delete", "update", "print", "export", "share", "recover")
THINGS = ("password", "delivery address", "invoice", "phone number", "subscription", "order history", "profile picture", "payment method", "gift card", "wish list",
          "newsletter settings", "return label", "warranty", "account", "shopping cart", "privacy settings", "loyalty points", "parcel notification", "company name",
          "tax number", "language", "delivery date", "membership card", "product review", "email address", "backup", "voucher", "calendar", "playlist", "insurance policy")
FORMS = ("How can I %s my %s?", "What are the steps to %s my %s?", "What must I do to %s my %s?", "Is there a way to %s my %s?", "In what way can I %s my %s?",
         "How might I go about it to %s my %s?", "What is the way to %s my %s?", "Please tell me how I can %s my %s.", "Could you explain how to %s my %s?",
         "Can you tell me how to %s my %s?", "I would like to know how to %s my %s.", "What do I have to do to %s my %s?", "How am I able to %s my %s?",
         "I need to know how to %s my %s.", "How should I %s my %s?", "Would you please show me how to %s my %s?", "What would I do to %s my %s?",
         "Hello, how can I %s my %s please?", "What is the right way to %s my %s?", "How does one %s my %s here?", "Which steps do I take to %s my %s?",
         "Do you know how I can %s my %s?", "So how exactly do I %s my %s?", "Tell me, what do I do to %s my %s?")
MUST_MS = {"e5": 12, "minilm": 5}


class Asker:
    def __init__(self, port):
        self.c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, text, keep=False):
        """(x-deja-cache, seconds)"""
        body = json.dumps({"model": "m", "temperature": 0, "messages": [{"role": "user", "content": text}]})
        headers = {"Content-Type": "application/json", **({} if keep else {"Cache-Control": "no-store"})}
        t0 = time.perf_counter()
        self.c.request("POST", "/v1/chat/completions", body, headers)
        r = self.c.getresponse()
        r.read()
        self.reason = r.getheader("x-deja-reason")
        return r.getheader("x-deja-cache"), time.perf_counter() - t0


class Resp:
    """Commands in bulk to a Redis on a unix socket."""

    def __init__(self, path):
        self.s = socket.socket(socket.AF_UNIX)
        self.s.connect(path)
        self.f = self.s.makefile("rb")

    def read(self):
        line = self.f.readline()[:-2]
        if line[:1] == b"*":
            return [self.read() for _ in range(int(line[1:]))]
        if line[:1] == b"$":
            return self.f.read(int(line[1:]) + 2)[:-2] if line != b"$-1" else None
        if line[:1] == b"-":
            sys.exit(f"bench: Redis says {line!r}")
        return line[1:]

    def pipe(self, commands):
        self.s.sendall(b"".join(b"*%d\r\n" % len(c) + b"".join(b"$%d\r\n%s\r\n" % (len(x), x) for x in c) for c in commands))
        return [self.read() for _ in commands]


def halves(rng, dim):
    """Random half vectors of length sqrt(1/2), as f16 bytes: any two make one of length 1."""
    out = []
    for _ in range(1500):
        v = [rng.gauss(0, 1) for _ in range(dim // 2)]
        n = (2 * sum(x * x for x in v)) ** 0.5
        out.append(struct.pack(f"<{dim // 2}e", *(x / n for x in v)))
    return out


def fill(redis, entries):
    """Copies of one real entry, each with an id, a question and a vector of its own, until the partition holds so many."""
    rng = random.Random(5)
    key = next(k for k in redis.pipe([[b"KEYS", b"deja:{deja}:e:*"]])[0])
    flat = redis.pipe([[b"HGETALL", key]])[0]
    entry = dict(zip(flat[::2], flat[1::2]))
    zset = b"deja:{deja}:p:" + entry[b"part"]
    expires = redis.pipe([[b"ZRANGE", zset, b"0", b"0", b"WITHSCORES"]])[0][1]
    half, commands = halves(rng, len(entry[b"vec"]) // 2), []
    for i in range(entries - redis.pipe([[b"ZCARD", zset]])[0].__len__()):
        name = hashlib.md5(b"filler %d" % i).hexdigest().encode()
        mine = {**entry, b"q": b"Where does clause %d of contract %d apply?" % (i, i * 7), b"check": hashlib.md5(b"check %d" % i).hexdigest().encode(),
                b"vec": rng.choice(half) + rng.choice(half)}
        commands += [[b"HSET", b"deja:{deja}:e:" + name] + [x for kv in mine.items() for x in kv], [b"ZADD", zset, expires, name]]
        if len(commands) >= 2000:
            redis.pipe(commands)
            commands = []
    redis.pipe(commands)
    return int(redis.pipe([[b"ZCARD", zset]])[0])


def pinned(argv):
    return ["taskset", "-c", "0"] + argv if os.cpu_count() > 1 else argv


def store(port):
    a = Asker(port)
    for v in VERBS:
        for t in THINGS:
            a.ask(f"How do I {v} my {t}?", keep=True)


def wordings():
    """Every question in every form, the forms in turn, each to be asked once."""
    todo = [f % (v, t) for f in FORMS for v in VERBS for t in THINGS]
    random.Random(3).shuffle(todo)
    return todo


def hits_per_second(port, texts, clients, seconds, pid):
    """(hits a second, share of hits, the gateway's CPU time a request); stops when the time or the texts are over."""
    lock, until, kinds = threading.Lock(), time.perf_counter() + seconds, []

    def work():
        a = Asker(port)
        while time.perf_counter() < until:
            with lock:
                if not texts:
                    return
                t = texts.pop()
            kinds.append(a.ask(t)[0])
    threads = [threading.Thread(target=work) for _ in range(clients)]
    t0, c0 = time.perf_counter(), cpu_s(pid)
    for x in threads:
        x.start()
    for x in threads:
        x.join()
    took, n = time.perf_counter() - t0, max(1, len(kinds))
    return kinds.count("semantic") / took, kinds.count("semantic") / n, (cpu_s(pid) - c0) / n


def embedder_rate(server, texts, seconds, pid):
    """(texts a second, the engine's CPU time a text)"""
    t0, c0, n = time.perf_counter(), cpu_s(pid), 0
    while time.perf_counter() - t0 < seconds:
        batch = texts[n % len(texts):][:16]
        server.embed([f"{x} {n}" if n >= len(texts) else x for x in batch])
        n += len(batch)
    return n / (time.perf_counter() - t0), (cpu_s(pid) - c0) / n


def measure(name, o, rows, programs):
    path = os.path.join(os.environ.get("DEJA_CACHE", os.path.expanduser("~/.cache/deja")), "models", FILES[name])
    if not os.path.exists(path):
        print(f"# {name}: {path} is not there (./dev models {name})", file=sys.stderr)
        return
    processes, up_port, port = [], free_port(), free_port()
    engine, engine_port = start_engine(path, os.path.join(ROOT, "tests", "data", "tiny-llama-mixed.gguf"))
    subprocess.run(["taskset", "-a", "-p", "-c", "0", str(engine.pid)], stdout=subprocess.DEVNULL, check=False)
    try:
        processes.append(subprocess.Popen([NULL, str(up_port)]))
        programs.redis("2gb")
        time.sleep(0.5)
        argv = gateway_argv(port, up_port, "--redis", "unix:" + programs.socket, "--embed-model", path, "--cache-embed-deadline-ms", "1000", "--workers", "1")
        first, _ = launch(processes, argv, port, "the gateway")
        store(port)
        time.sleep(1.5)
        first.terminate()
        first.wait()
        n = fill(Resp(programs.socket), o.entries)
        gateway, _ = launch(processes, pinned(argv), port, "the gateway")
        c, t0 = Asker(port), time.perf_counter()
        while c.ask(FORMS[0] % (VERBS[0], THINGS[0])) and c.reason == "index_loading" and time.perf_counter() - t0 < 60:
            time.sleep(0.2)
        rows.row(f"{name}: entries", n)
        rows.row(f"{name}: until they could be used", time.perf_counter() - t0, "s")
        set_knob(programs, "same_words", "no")
        todo, alone, rates, shares, embeds, cpu, embed_cpu = wordings(), [], [], [], [], [], []
        server = Server("127.0.0.1", engine_port, engine_model(engine_port))
        for i in range(o.rounds):
            share = todo[i::o.rounds]                            # of all texts, so that the last round has as many
            alone += [s for kind, s in (c.ask(share.pop()) for _ in range(60)) if kind == "semantic"]
            for kept, value in zip((embeds, embed_cpu), embedder_rate(server, wordings(), o.seconds, engine.pid)):
                kept.append(value)
            for kept, value in zip((rates, shares, cpu), hits_per_second(port, share, o.clients, o.seconds, gateway.pid)):
                kept.append(value)
        rows.row(f"{name}: whole hit, one at a time, p50", percentile(alone, 0.5) * 1000, "ms", f"<= {MUST_MS[name]}")
        rows.row(f"{name}: the same, p99", percentile(alone, 0.99) * 1000, "ms")
        rows.row(f"{name}: rewordings that hit", statistics.median(shares) * 100, "%")
        rows.row(f"{name}: the embedder alone, batches of 16", statistics.median(embeds), "1/s")
        rows.row(f"{name}: hits", statistics.median(rates), "1/s")
        rows.row(f"{name}: answers, hits and misses, of the embedder's rate by the clock", statistics.median(r / s / e for r, s, e in zip(rates, shares, embeds)), "")
        rows.row(f"{name}: the embedder's CPU time a text", statistics.median(embed_cpu) * 1000, "ms")
        rows.row(f"{name}: the gateway's CPU time a question", statistics.median(cpu) * 1000, "ms")
        rows.row(f"{name}: answers of the embedder's rate, by processor time", statistics.median(e / c for e, c in zip(embed_cpu, cpu)), "", ">= 0.9")
        set_knob(programs, "same_words", "yes")
        by_words = hits_per_second(port, wordings(), o.clients, o.seconds, gateway.pid)
        rows.row(f"{name}: hits with same_words on, {by_words[1] * 100:.0f} % of what was asked", by_words[0], "1/s")
    finally:
        for p in processes + [engine]:
            p.terminate()
            p.wait()
        programs.stop("redis")


def set_knob(programs, name, value):
    subprocess.run(["redis-cli", "-s", programs.socket, "FCALL", "deja_config_set", "1", "{deja}:config", name, value], stdout=subprocess.DEVNULL, check=True)
    time.sleep(1.5)


def engine_model(port):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    c.request("GET", "/v1/models")
    return json.loads(c.getresponse().read())["data"][-1]["id"]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--models", default="e5,minilm")
    p.add_argument("--entries", type=int, default=100000)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--clients", type=int, default=32)
    p.add_argument("--seconds", type=float, default=1.5)
    p.add_argument("--json", action="store_true")
    o = p.parse_args()
    rows = Rows(o.json)
    for name in o.models.split(","):
        programs = Programs()
        try:
            measure(name, o, rows, programs)
        finally:
            programs.close()
    return 0 if rows.all_met else 1


if __name__ == "__main__":
    sys.exit(main())
