#!/usr/bin/env python3
"""Embeddings through the engine's /v1/embeddings: latency of one short question and throughput of many, English and Chinese.
  bench_embed.py [--models minilm,e5] [--peer URL --peer-model NAME] [--rounds 5] [--json]
A peer is any server with /v1/embeddings; both are asked in turn in one run and the ratio is of medians. The checksum is of the vectors
rounded to two digits: it changes when the arithmetic does, not when the machine does."""
import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import threading
import time
import http.client

from machine import free_port

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FILES = {"minilm": "all-minilm-l6-v2.gguf", "e5": "multilingual-e5-small-q4.gguf"}
TEXTS = {"en": [f"How do I change the delivery address of order number {i}?" for i in range(40)],
         "zh": [f"订单号{i}的收货地址怎么修改？" for i in range(40)]}


class Server:
    def __init__(self, host, port, model):
        self.host, self.port, self.model = host, port, model

    def embed(self, texts, conn=None):
        c = conn or http.client.HTTPConnection(self.host, self.port, timeout=60)
        c.request("POST", "/v1/embeddings", json.dumps({"model": self.model, "input": texts}), {"Content-Type": "application/json"})
        r = c.getresponse()
        body = r.read()
        if r.status != 200:
            sys.exit(f"bench: {self.host}:{self.port} answered {r.status}: {body[:200]!r}")
        return [d["embedding"] for d in json.loads(body)["data"]]

    def latency_ms(self, texts, tag):
        c, out = http.client.HTTPConnection(self.host, self.port, timeout=60), []
        for t in texts:
            t0 = time.perf_counter()
            self.embed([f"{t} {tag}"], c)
            out.append((time.perf_counter() - t0) * 1000)
        return statistics.median(out)

    def per_second(self, texts, tag, clients=8):
        todo, lock = [f"{t} {tag}" for t in texts], threading.Lock()

        def work():
            c = http.client.HTTPConnection(self.host, self.port, timeout=60)
            while True:
                with lock:
                    if not todo:
                        return
                    t = todo.pop()
                self.embed([t], c)
        threads = [threading.Thread(target=work) for _ in range(clients)]
        t0 = time.perf_counter()
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return len(texts) / (time.perf_counter() - t0)


def start(embed_path, chat_path):
    port = free_port()
    p = subprocess.Popen([os.environ["DEJA_BIN"], "engine", "--port", str(port), "--model", chat_path, "--embed-model", embed_path],
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(600):
        try:
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            c.request("GET", "/ready")
            if c.getresponse().status == 200:
                return p, port
        except OSError:
            pass
        if p.poll() is not None:
            sys.exit(f"bench: the engine ended with status {p.returncode}")
        time.sleep(0.1)
    sys.exit("bench: the engine was not ready after 60 s")


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--models", default="minilm,e5")
    a.add_argument("--peer", default="")
    a.add_argument("--peer-model", default="embed")
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--json", action="store_true")
    a = a.parse_args()
    cache = os.path.join(os.environ["DEJA_CACHE"], "models")
    chat = os.path.join(ROOT, "tests", "data", "tiny-llama-mixed.gguf")
    peer = None
    if a.peer:
        host, port = a.peer.split("//")[-1].split("/")[0].split(":")
        peer = Server(host, int(port), a.peer_model)
    for name in a.models.split(","):
        path = os.path.join(cache, FILES.get(name, name))
        if not os.path.exists(path):
            print(f"{name}: {path} is not there (./dev models {name})")
            continue
        p, port = start(path, chat)
        try:
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            c.request("GET", "/v1/models")
            ours = Server("127.0.0.1", port, json.loads(c.getresponse().read())["data"][-1]["id"])
            for lang, texts in TEXTS.items():
                if lang == "zh" and name == "minilm":
                    continue
                sides = [ours] + ([peer] if peer else [])
                lat, rate = [[] for _ in sides], [[] for _ in sides]
                for r in range(a.rounds):
                    for i, s in enumerate(sides):
                        lat[i].append(s.latency_ms(texts, f"l{r}"))
                        rate[i].append(s.per_second(texts, f"t{r}"))
                vec = ours.embed(texts[:4])
                checksum = hashlib.sha256(json.dumps([[round(x, 2) + 0.0 for x in v] for v in vec]).encode()).hexdigest()[:12]
                for what, unit, got, better in (("latency_p50", "ms", lat, -1), ("throughput_8_clients", "texts/s", rate, 1)):
                    mine, theirs = statistics.median(got[0]), statistics.median(got[1]) if peer else None
                    ratio = None if theirs is None else (mine / theirs if better > 0 else theirs / mine)
                    row = {"name": f"embed.{name}.{lang}.{what}", "value": round(mine, 3), "unit": unit, "peer": theirs and round(theirs, 3),
                           "ratio": ratio and round(ratio, 3), "must": None, "met": None, "checksum": checksum, "machine": os.environ["DEJA_MACHINE"]}
                    print(json.dumps(row, ensure_ascii=False) if a.json else
                          f"{row['name']:45} {mine:9.2f} {unit:8}" + (f" peer {theirs:9.2f} ratio {ratio:.2f}" if peer else "")
                          + f"  min {min(got[0]):.2f} max {max(got[0]):.2f}  checksum {checksum}", flush=True)
        finally:
            p.terminate()
            p.wait(20)


if __name__ == "__main__":
    main()
