#!/usr/bin/env python3
"""What the papers this engine grew from promise, measured on it: each figure beside the same engine with the technique switched off.
  bench_seeds.py [--model FILE.gguf] [--rounds 5] [--only utilisation,prefix,int8,chunked,speculation] [--json]
utilisation  share of the KV blocks in use that holds tokens (Kwon et al. 2023), FAQ and chat traces, blocks of 8 and 16
prefix       first token with and without the prefix cache, 40 % of the prompt shared and none
int8         perplexity of a fixed text and bytes a token with f16 and int8 KV
chunked      99th percentile of the gaps of 4 running streams with and without a 4,000-token prompt in flight (Agrawal et al. 2024)
speculation  tokens a second with and without guesses: copying at one client, chat at 1..16 (Leviathan et al. 2023); beside it tokens a second of
             processor time, which neighbours do not disturb as much. --guess JSON: another --speculative-config than the default
Both engines of a pair run at once and are asked in turn. Exit status 1 when a must is not met."""
import argparse
import hashlib
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time

from bench_engine import BIN, CACHE, ROOT, end, percentile, start, text, together
from machine import cpu_s, free_port

ROWS = []


def row(o, name, value, unit, must, met, checksum="-"):
    ROWS.append(met)
    if o.json:
        print(json.dumps({"name": name, "value": round(value, 4), "unit": unit, "must": must, "met": met, "checksum": checksum,
                          "machine": os.environ.get("DEJA_MACHINE", "unnamed machine")}), flush=True)
    else:
        print(f"{name:34} {value:10.3f}  {unit:34} must {must:8} {'met' if met else 'NOT MET'}  {checksum}", flush=True)


class Engines:
    """Named engines of one model, each with its own options; ended on leaving."""

    def __init__(self, o, **options):
        self.o, self.options, self.all = o, options, []

    def __enter__(self):
        for name, args in self.options.items():
            port = free_port()
            start(self.all, name, ([BIN, "engine", "--port", str(port), "--model", self.o.model, "--served-model-name", "bench", *args], port), "bench", ["/ready"])
        return {s.name: s for s in self.all}

    def __exit__(self, *_):
        for s in self.all:
            end(s)


def digest(texts):
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


# --- KV utilisation
def faq_trace(rng):
    with open(os.path.join(ROOT, "tests", "data", "faq_en.jsonl"), encoding="utf-8") as f:
        questions = [json.loads(line)["q"] for line in f]
    system = ("You answer customers of a shop by chat. Be short and polite, give the steps in their order, name the page and the button, and say so when you do not "
              "know. Do not promise dates. If the customer is angry, say that you are sorry once.")
    return [(f"{system}\nCustomer: {rng.choice(questions)}\nAnswer:", rng.randint(60, 180)) for _ in range(48)]


def chat_trace(rng):
    return [(text(rng, rng.randint(80, 500)), rng.randint(60, 200)) for _ in range(48)]


def replay(server, trace, n_clients):
    """Clients take the trace's requests one after the other; samples of (tokens held, slots held) meanwhile."""
    todo, samples, done = list(trace)[::-1], [], threading.Event()

    def client():
        while todo:
            prompt, n = todo.pop()
            server.complete(prompt, n)
    threads = [threading.Thread(target=client) for _ in range(n_clients)]
    block = int(server.block)

    def watch():
        while not done.wait(0.05):
            body = server.request("GET", "/metrics").read().decode()
            get = lambda name: next(float(x.rsplit(" ", 1)[1]) for x in body.splitlines() if x.startswith(name) and x[len(name)] in " {")
            samples.append((get("deja_engine_kv_tokens"), get("deja_engine_kv_blocks_used") * block))
    watcher = threading.Thread(target=watch)
    for t in [*threads, watcher]:
        t.start()
    for t in threads:
        t.join()
    done.set()
    watcher.join()
    return samples


def utilisation(o):
    for block in (8, 16):
        with Engines(o, it=["--block-size", str(block)]) as e:
            e["it"].block = block
            for name, trace in (("faq", faq_trace), ("chat", chat_trace)):
                samples = replay(e["it"], trace(random.Random(name)), 8)
                tokens, slots = sum(s[0] for s in samples), sum(s[1] for s in samples)
                row(o, f"kv_utilisation_{name}_block{block}", 100 * tokens / max(1, slots), f"% of slots, {len(samples)} samples", ">= 90", tokens >= 0.9 * slots)


# --- prefix cache
def prefix(o):
    with Engines(o, on=["--enable-prefix-caching", "yes"], off=["--enable-prefix-caching", "no"]) as e:
        for share, must in ((40, ">= 30"), (0, ">= -1")):
            ttft, ratios = {"on": [], "off": []}, []
            common = text(random.Random(f"common {share}"), 4 * share)
            for r in range(8 * o.rounds):
                rng = random.Random(f"prefix {share} {r}")
                prompt = (common + " " if share else "") + text(rng, 400 - 4 * share)
                for name in ("on", "off") if r % 2 else ("off", "on"):
                    ttft[name].append(e[name].complete(prompt, 1).ttft)
                ratios.append(ttft["on"][-1] / ttft["off"][-1])
            gain = 100 * (1 - statistics.median(ratios[2:]))
            row(o, f"prefix_gain_shared_{share}", gain, f"% of first token ({statistics.median(ttft['off']):.1f} ms without)", must, gain >= float(must.split()[1]))


# --- int8 KV
def int8(o):
    corpus = os.path.join(ROOT, "build", "seeds-text.txt")
    with open(os.path.join(ROOT, "tests", "data", "faq_en.jsonl"), encoding="utf-8") as f, open(corpus, "w", encoding="utf-8") as out:
        for line in f:
            out.write("\n".join(v for v in json.loads(line).values() if isinstance(v, str)) + "\n")
    got = {}
    for kv in ("f16", "int8"):
        said = subprocess.run([os.path.join(os.path.dirname(BIN), "bench_model"), o.model, "--kv", kv, "--perplexity", corpus], capture_output=True, check=True, text=True).stdout
        got[kv] = json.loads(said.splitlines()[-1])
    bytes_of = lambda kv: json.loads(subprocess.run([BIN, "plan", "--model", o.model, "--kv-cache-dtype", kv, "--no-self-test", "--json"], capture_output=True, check=False).stdout)["kv_bytes_per_token"]
    worse = 100 * (got["int8"]["value"] / got["f16"]["value"] - 1)
    share = 100 * bytes_of("int8") / bytes_of("f16")
    row(o, "int8_kv_perplexity", worse, f"% above f16 ({got['f16']['value']:.3f})", "<= 0.3", worse <= 0.3)
    row(o, "int8_kv_bytes", share, "% of f16", "<= 55", share <= 55)  # scales included


# --- chunked prefill
def gaps_of(server, intruder):
    go, answers, rng = threading.Event(), [None] * 4, random.Random("chunked")
    prompts = [text(rng, 20) for _ in range(4)]

    def stream(i):
        answers[i] = server.complete(prompts[i], 250, lambda a: go.set() if len(a.times) == 20 else None)
    threads = [threading.Thread(target=stream, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    go.wait(120)
    begin = time.perf_counter()
    if intruder:
        server.complete(intruder, 1)
    until = time.perf_counter() if intruder else float("inf")
    for t in threads:
        t.join()
    # gaps that lie while the prompt was in flight (without one: all after the start)
    return [(b - a) * 1000 for x in answers for a, b in zip(x.times, x.times[1:]) if b > begin and a < until], digest([a.text for a in answers])


def chunked(o):
    with Engines(o, it=[]) as e:
        ratios, quiet, loud, checksum = [], [], [], "-"
        for r in range(o.rounds):
            without, checksum = gaps_of(e["it"], None)
            within, _ = gaps_of(e["it"], text(random.Random(f"intruder {r}"), 3900))
            quiet.append(percentile(without, 0.99))
            loud.append(percentile(within, 0.99))
            ratios.append(loud[-1] / quiet[-1])
        ratio = statistics.median(ratios)
        row(o, "chunked_p99_gap", ratio, f"times ({statistics.median(quiet):.1f} -> {statistics.median(loud):.1f} ms)", "<= 2", ratio <= 2, checksum)


# --- speculation
def speculation(o):
    with Engines(o, on=["--speculative-config", o.guess] if o.guess else [], off=["--speculative-config", "off"]) as e:
        passage = text(random.Random("passage"), 60)
        for kind, n_clients, must in (("copy", 1, 1.5), ("chat", 1, 0.97), ("chat", 2, 0.97), ("chat", 4, 0.97), ("chat", 8, 0.97), ("chat", 16, 0.97), ("copy", 16, 0.97)):
            ratios, busy, equal, texts, rate = [], [], True, [], []
            for r in range(o.rounds):
                rng, speed, spent = random.Random(f"{kind} {n_clients} {r}"), {}, {}
                if kind == "copy":
                    prompts = [f"{rng.choice(passage.split())} {passage}. Again: {passage}. Again: {passage}. Again:" for _ in range(n_clients)]
                else:
                    prompts = [text(rng, 40) for _ in range(n_clients)]
                said = {}
                for name in ("on", "off") if r % 2 else ("off", "on"):
                    cpu = cpu_s(e[name].process.pid)
                    answers, _ = together(e[name], prompts, 96)
                    spent[name] = cpu_s(e[name].process.pid) - cpu
                    first, last = min(a.times[0] for a in answers), max(a.times[-1] for a in answers)
                    speed[name] = sum(a.n for a in answers) / max(1e-9, last - first)
                    said[name] = [a.text for a in answers]
                equal &= said["on"] == said["off"]
                texts += said["on"]
                ratios.append(speed["on"] / speed["off"])
                busy.append(spent["off"] / max(0.01, spent["on"]))
                rate.append(speed["on"])
            ratio = statistics.median(ratios)
            row(o, f"speculation_{kind}_{n_clients}", ratio, f"times ({statistics.median(rate):.0f} tok/s; by processor {statistics.median(busy):.2f}), texts {'equal' if equal else 'DIFFER'}", f">= {must}",
                ratio >= must and equal, digest(texts))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default=os.path.join(CACHE, "models", "SmolLM2-135M-Instruct.Q4_1.gguf"))
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--only", default="utilisation,prefix,int8,chunked,speculation")
    p.add_argument("--guess", default="")
    p.add_argument("--json", action="store_true")
    o = p.parse_args()
    if not os.path.exists(o.model):
        sys.exit(f"bench: there is no model file {o.model}; ./dev models smollm2 brings it")
    parts = {"utilisation": utilisation, "prefix": prefix, "int8": int8, "chunked": chunked, "speculation": speculation}
    for name in o.only.split(","):
        if name not in parts:
            sys.exit(f"bench: seeds knows {', '.join(parts)}")
        parts[name](o)
    return not all(ROWS)


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
