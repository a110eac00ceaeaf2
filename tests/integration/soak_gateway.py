#!/usr/bin/env python3
"""Goal: under ten thousand mixed requests (hits, misses, streams, clients that leave in the middle, broken JSON, broken upstreams, proxied
calls) every client that stays gets exactly the reply it must get, and memory stays flat. Method: the binary under test (best built
with sanitizers) with a private Redis and a scripted upstream in its own process; a seeded mix; resident memory at 40 % and at the
end. Not part of the quick tests: python3 -m tests.integration.soak_gateway [--requests N] [--seconds S] [--seed K]"""
import argparse
import collections
import http.client
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time

from tests.integration.rig import ROOT, Rig, call

THREADS = 12


class Client(threading.Thread):
    def __init__(self, soak, n):
        super().__init__(daemon=True)
        self.soak, self.rng = soak, random.Random(soak.seed * 1000 + n)
        self.conn = None

    def run(self):
        while self.soak.take():
            kind = self.rng.choices(*zip(*self.soak.mix))[0]
            try:
                problem = getattr(self, kind)()
            except (OSError, http.client.HTTPException, ValueError, KeyError, IndexError) as x:
                problem = f"{type(x).__name__}: {x}"
                self.drop()
            self.soak.count(kind, problem)
        self.drop()

    def drop(self):
        if self.conn:
            self.conn.close()
        self.conn = None

    def send(self, body, path="/v1/chat/completions", headers=None):
        if not self.conn:
            self.conn = http.client.HTTPConnection("127.0.0.1", self.soak.port, timeout=60)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.conn.request("POST", path, data, dict({"Content-Type": "application/json"}, **(headers or {})))
        r = self.conn.getresponse()
        return r.status, r.read()

    def ask(self, text, headers=None, **fields):
        return self.send({"model": "m", "messages": [{"role": "user", "content": text}], "temperature": 0, **fields}, headers=headers)

    def fresh(self):
        return f"{self.rng.random()}"

    def hit(self):
        n = self.rng.randrange(60)
        s, b = self.ask(f"[[say:answer {n}]] known {n}")
        got = json.loads(b)["choices"][0]["message"]["content"] if s == 200 else b[:100]
        return None if got == f"answer {n}" else f"{s} {got!r}"

    def miss(self):
        word = self.fresh()
        s, b = self.ask(f"[[say:{word}]] new")
        got = json.loads(b)["choices"][0]["message"]["content"] if s == 200 else b[:100]
        return None if got == word else f"{s} {got!r}"

    def stream(self):
        word = self.fresh() if self.rng.random() < 0.6 else f"shared {self.rng.randrange(30)}"
        s, b = self.ask(f"[[say:{word}]] stream", stream=True)
        chunks = [json.loads(x[6:]) for x in b.decode().split("\n\n") if x.startswith("data: {")]
        got = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c.get("choices"))
        return None if s == 200 and got == word and b.endswith(b"data: [DONE]\n\n") else f"{s} {got!r} instead of {word!r}"

    def leave(self):
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": f"[[drip:20]][[chunks:20]] {self.fresh()}"}], "stream": self.rng.random() < 0.7})
        s = socket.create_connection(("127.0.0.1", self.soak.port), timeout=30)
        s.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        time.sleep(self.rng.random() * 0.1)
        s.close()

    def broken(self):
        bad = self.rng.choice([b"{", b"", b"[]", b'{"model":"m"}', b'{"model":"m","messages":[{"role":"user","content":"\xff"}]}', b"nonsense" * 50])
        s, b = self.send(bad)
        return None if s == 400 and json.loads(b)["error"]["message"] else f"{s} {b[:100]!r}"

    def bad_upstream(self):
        do = self.rng.choice(["cut", "malformed", "empty", "html", "status:500", "status:429"])
        s, b = self.ask(f"[[{do}]] {self.fresh()}")
        want = {"status:500": 500, "status:429": 429}.get(do, 502)
        return None if s == want and json.loads(b)["error"]["message"] else f"{do}: {s} {b[:100]!r}"

    def cut_stream(self):
        s, b = self.ask(f"[[cut]] {self.fresh()}", stream=True)
        return None if s == 200 and b"[DONE]" not in b and b'"error"' in b else f"{s} {b[-200:]!r}"

    def proxied(self):
        s, b = self.send({"model": "m", "input": "x"}, "/v1/embeddings")
        return None if s == 200 and json.loads(b)["object"] == "list" else f"{s} {b[:100]!r}"


class Soak:
    mix = [("hit", 40), ("miss", 17), ("stream", 20), ("leave", 8), ("broken", 5), ("bad_upstream", 5), ("cut_stream", 2), ("proxied", 3)]

    def __init__(self, port, pid, requests, seconds, seed):
        self.port, self.pid, self.seed = port, pid, seed
        self.left, self.total, self.until = requests, requests, time.time() + seconds
        self.lock, self.done, self.problems = threading.Lock(), collections.Counter(), []
        self.rss = {}

    def take(self):
        with self.lock:
            if self.left == self.total * 6 // 10:
                self.rss["middle"] = self.rss_mb()
            if self.left <= 0 or time.time() > self.until or len(self.problems) > 20:
                return False
            self.left -= 1
            return True

    def count(self, kind, problem):
        with self.lock:
            self.done[kind] += 1
            if problem:
                self.problems.append(f"{kind}: {problem}")

    def rss_mb(self):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as f:
            return int(next(x for x in f if x.startswith("VmRSS")).split()[1]) / 1024

    def run(self):
        clients = [Client(self, n) for n in range(THREADS)]
        for c in clients:
            c.start()
        for c in clients:
            c.join()
        time.sleep(2)
        self.rss["end"] = self.rss_mb()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--requests", type=int, default=10000)
    p.add_argument("--seconds", type=int, default=400)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--no-redis", action="store_true")
    p.add_argument("--growth-mb", type=float, default=40)
    a = p.parse_args()
    # the sanitizer's quarantine would look like a leak
    os.environ.setdefault("ASAN_OPTIONS", "quarantine_size_mb=8:malloc_context_size=5")
    fake = subprocess.Popen([sys.executable, os.path.join(ROOT, "tests", "integration", "fake_upstream.py")], stdout=subprocess.PIPE, text=True)
    try:
        url = fake.stdout.readline().strip()
        with Rig() as rig:
            more = []
            if not a.no_redis:
                rig.redis()
                more = ["--redis", rig.redis_url]
            g = rig.gateway("--upstream", url, "--keep-after-gone-ms", "1000", "--cache-memory-bytes-max", "4194304", "--access-log", "no", *more)
            soak = Soak(rig.port, g.popen.pid, a.requests, a.seconds, a.seed)
            start = time.time()
            soak.run()
            took = time.time() - start
            alive = call(rig.port, "GET", "/health")[0] == 200
            inflight = [x for x in call(rig.port, "GET", "/metrics")[2].decode().splitlines() if x.startswith("deja_inflight ")]
            print(f"{sum(soak.done.values())} requests in {took:.0f} s: {dict(soak.done)}")
            print(f"resident MB: {soak.rss}; {inflight}; {g.tail(600) if soak.problems else ''}")
            for x in soak.problems[:20]:
                print("PROBLEM", x)
            grown = soak.rss["end"] - soak.rss.get("middle", soak.rss["end"])
            good = not soak.problems and alive and grown <= a.growth_mb and sum(soak.done.values()) == a.requests and inflight == ["deja_inflight 1"]
            print("ok" if good else f"FAILED (grown by {grown:.1f} MB)")
            return 0 if good else 1
    finally:
        fake.terminate()
        fake.wait()


if __name__ == "__main__":
    sys.exit(main())
