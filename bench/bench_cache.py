#!/usr/bin/env python3
"""Is a cached answer ever wrong, and how often is there one? Stores the FAQ questions of tests/data by asking them, then asks them again
(must be exact hits), their other wordings (hits are good, those on another entry are not) and near questions that need another
answer (a hit on the entry they are near to is a false one; one on another entry, which may be a rewording of them, is shown). Prints shares per language and the time of each kind of reply.
  bench_cache.py [--base URL --model NAME] [--embed FILE] [--questions N] [--json]
Without --base it starts a gateway (DEJA_BIN) with the embedding model in front of a stub that answers at once. Any gateway that sets
x-deja-cache and x-deja-entry can be asked. must: no false hit, all asked again exact."""
import argparse
import http.client
import http.server
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SYSTEM = {"en": "You answer the frequent questions of a shop.", "zh": "你回答银行和电信客户的常见问题。"}


class Stub(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # head and body in one packet

    def do_GET(self):
        self.reply({"object": "list", "data": [{"id": "stub", "object": "model"}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = "Answer to: " + body["messages"][-1]["content"]
        self.reply({"id": "x", "object": "chat.completion", "created": int(time.time()), "model": body["model"],
                    "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}})

    def reply(self, value):
        out = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(out)))
        self.end_headers()
        self.wfile.write(out)

    def log_message(self, *args):
        pass


def start_own(embed):
    stub = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stub)
    threading.Thread(target=stub.serve_forever, daemon=True).start()
    log = tempfile.TemporaryFile()
    cmd = [os.environ["DEJA_BIN"], "gateway", "--port", "0", "--upstream", f"http://127.0.0.1:{stub.server_port}", "--embed-model", embed,
           "--cache-embed-deadline-ms", "5000", "--no-access-log"]
    p = subprocess.Popen(cmd, stdout=log, stderr=subprocess.STDOUT)
    for _ in range(300):
        log.seek(0)
        found = re.search(rb"listening .*port=(\d+)", log.read())
        if found:
            return p, f"http://127.0.0.1:{found.group(1).decode()}"
        if p.poll() is not None:
            break
        time.sleep(0.1)
    log.seek(0)
    p.kill()
    sys.exit("bench: the gateway did not start:\n" + log.read().decode(errors="replace")[-2000:])


class Client:
    def __init__(self, base, model):
        u = urllib.parse.urlsplit(base)
        self.conn, self.model = http.client.HTTPConnection(u.hostname, u.port or 80, timeout=120), model

    def ask(self, lang, text, store=False):
        body = {"model": self.model, "temperature": 0, "messages": [{"role": "system", "content": SYSTEM[lang]}, {"role": "user", "content": text}]}
        headers = {"Content-Type": "application/json"} | ({"x-deja-cache": "refresh"} if store else {"Cache-Control": "no-store"})
        t0 = time.perf_counter()
        self.conn.request("POST", "/v1/chat/completions", json.dumps(body, ensure_ascii=False).encode(), headers)
        r = self.conn.getresponse()
        reply = r.read()
        if r.status != 200:
            sys.exit(f"bench: status {r.status}: {reply[:300]!r}")
        return {"kind": r.getheader("x-deja-cache") or "none", "entry": r.getheader("x-deja-entry") or "", "reason": r.getheader("x-deja-reason") or "",
                "ms": (time.perf_counter() - t0) * 1000}


def is_hit(x):
    return x["kind"] in ("exact", "semantic", "stale", "coalesced")


def wilson_upper(k, n, z=1.96):
    p = k / n
    return (p + z * z / (2 * n) + z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))) / (1 + z * z / n)


def run(client, lang, limit):
    with open(os.path.join(ROOT, "tests", "data", f"faq_{lang}.jsonl"), encoding="utf8") as f:
        rows = [json.loads(x) for x in f][:limit]
    for r in rows:
        client.ask(lang, r["q"], store=True)
    time.sleep(1.0)
    own, times = {}, {"exact": [], "semantic": [], "miss": []}
    out = {"again": [0, 0], "paraphrase": [0, 0], "other_entry": [0, 0], "false": [0, 0], "near_elsewhere": [0, 0]}
    reasons = {}
    for r in rows:
        x = client.ask(lang, r["q"])
        own[r["q"]] = x["entry"]
        out["again"][0] += x["kind"] == "exact"
        out["again"][1] += 1
        times.setdefault(x["kind"], []).append(x["ms"])
    for r in rows:
        for text in r["same"]:
            x = client.ask(lang, text)
            times.setdefault(x["kind"], []).append(x["ms"])
            out["paraphrase"][0] += is_hit(x) and x["entry"] == own[r["q"]]
            out["other_entry"][0] += is_hit(x) and x["entry"] != own[r["q"]]
            out["paraphrase"][1] += 1
            out["other_entry"][1] += 1
            if not is_hit(x):
                reasons[x["reason"]] = reasons.get(x["reason"], 0) + 1
        for text in r["near"]:
            x = client.ask(lang, text)
            wrong = is_hit(x) and x["entry"] == own[r["q"]] and text != r["q"]
            elsewhere = is_hit(x) and not wrong and x["entry"] != own.get(text)
            out["false"][0] += wrong
            out["near_elsewhere"][0] += elsewhere
            out["false"][1] += 1
            out["near_elsewhere"][1] += 1
            if wrong or elsewhere:
                print(f"# {'FALSE HIT' if wrong else 'elsewhere'}: {text!r} got the answer to {[q for q, e in own.items() if e == x['entry']]} ({x['reason']})", file=sys.stderr)
    return out, times, reasons


def rows_of(lang, out, times):
    yield f"cache.{lang}.again_exact", 100 * out["again"][0] / out["again"][1], "%", 100
    yield f"cache.{lang}.paraphrase_hits", 100 * out["paraphrase"][0] / out["paraphrase"][1], "%", None
    yield f"cache.{lang}.other_entry_hits", 100 * out["other_entry"][0] / out["other_entry"][1], "%", None
    yield f"cache.{lang}.false_hits", out["false"][0], f"of {out['false'][1]}", 0
    yield f"cache.{lang}.near_hits_elsewhere", out["near_elsewhere"][0], f"of {out['near_elsewhere'][1]}", None
    yield f"cache.{lang}.false_hits_upper_95", 100 * wilson_upper(*out["false"]), "%", None
    for kind in ("exact", "semantic", "miss"):
        if times.get(kind):
            yield f"cache.{lang}.{kind}_p50", statistics.median(times[kind]), "ms", None


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--base", default="")
    a.add_argument("--model", default="stub")
    a.add_argument("--embed", default="")
    a.add_argument("--questions", type=int, default=1000)
    a.add_argument("--json", action="store_true")
    a = a.parse_args()
    embed = a.embed or os.path.join(os.environ.get("DEJA_CACHE", os.path.expanduser("~/.cache/deja")), "models", "multilingual-e5-small-q4.gguf")
    own, base, failed = None, a.base, False
    if not base:
        if not os.path.exists(embed):
            sys.exit(f"bench: {embed} is not there (./dev models e5)")
        own, base = start_own(embed)
    try:
        client = Client(base, a.model)
        for lang in ("en", "zh"):
            out, times, reasons = run(client, lang, a.questions)
            for name, value, unit, must in rows_of(lang, out, times):
                met = None if must is None else value == must
                failed = failed or met is False
                row = {"name": name, "value": round(value, 3), "unit": unit, "peer": None, "ratio": None, "must": must, "met": met, "checksum": None,
                       "machine": os.environ.get("DEJA_MACHINE", "?")}
                print(json.dumps(row, ensure_ascii=False) if a.json else f"{name:36} {value:9.2f} {unit:8}" + ("" if met is None else "  met" if met else f"  MISSED (must be {must})"), flush=True)
            if not a.json:
                print("  other wordings missed for: " + ", ".join(f"{k} {v}" for k, v in sorted(reasons.items(), key=lambda x: -x[1])[:8]))
    finally:
        if own:
            own.terminate()
            own.wait(20)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
