#!/usr/bin/env python3
"""What the gateway costs: wrk against a null upstream directly, and through the gateway as pass-through (cache bypassed), as a miss that is
stored, and as exact hits in both forms. Scenarios are interleaved over the rounds, the median counts. Load generator, upstream and
gateway share the machine, so beside rates there is the gateway's own CPU time a request, which does not depend on the others.

  bench_gateway.py [--rounds 5] [--seconds 2] [--connections 1,64] [--no-redis] [--json]

Needs wrk and redis-server; DEJA_BIN is a release build. Measures, asserts nothing."""
import argparse
import asyncio
import hashlib
import json
import multiprocessing
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)
CONTENT = "Shipping to Norway costs 79 kroner and takes three to five working days. " * 8

LUA = """
local body_a, body_b = %s, %s
local n, thread_seed = 0, 0
function setup(thread) thread:set("seed", tostring({}):sub(8)) end
function request()
   n = n + 1
   local key
   if "%s" == "unique" then key = seed .. "-" .. n else key = "q" .. (n %% 64) end
   return wrk.format("POST", "/v1/chat/completions", %s, body_a .. key .. body_b)
end
"""


class Null(asyncio.Protocol):
    """Answers every POST with one canned completion."""
    reply = json.dumps({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "usage": {"prompt_tokens": 20, "completion_tokens": 110, "total_tokens": 130},
                        "choices": [{"index": 0, "message": {"role": "assistant", "content": CONTENT}, "finish_reason": "stop", "logprobs": None}]}).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(reply)

    def connection_made(self, transport):
        self.transport, self.buffer = transport, b""
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data):
        self.buffer += data
        while True:
            at = self.buffer.find(b"\r\n\r\n")
            if at < 0:
                return
            m = re.search(rb"(?i)content-length: *(\d+)", self.buffer[:at])
            n = at + 4 + (int(m.group(1)) if m else 0)
            if len(self.buffer) < n:
                return
            self.buffer = self.buffer[n:]
            self.transport.write(self.head + self.reply)


def serve_null(port):
    async def main():
        server = await asyncio.get_running_loop().create_server(Null, "127.0.0.1", port, backlog=512)
        await server.serve_forever()
    asyncio.run(main())


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def cpu_s(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mb(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return int(next(x for x in f if x.startswith("VmRSS")).split()[1]) / 1024


def lua(folder, name, keys, headers, stream):
    body = {"model": "m", "temperature": 0, "messages": [{"role": "system", "content": "You are the support bot of a shop."}, {"role": "user", "content": "KEY"}]}
    if stream:
        body["stream"] = True
    a, b = json.dumps(body).split("KEY")
    table = "{" + ", ".join(f'["{k}"]="{v}"' for k, v in dict({"Content-Type": "application/json"}, **headers).items()) + "}"
    path = os.path.join(folder, name + ".lua")
    with open(path, "w", encoding="utf8") as f:
        f.write(LUA % (json.dumps(a), json.dumps("What does shipping to Norway cost?" + b), keys, table))
    return path


def micros(text):
    n, unit = re.match(r"([\d.]+)(us|ms|s)", text).groups()
    return float(n) * {"us": 1, "ms": 1e3, "s": 1e6}[unit]


def wrk(port, script, connections, seconds):
    out = subprocess.run(["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", script, f"http://127.0.0.1:{port}"],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout
    total = int(re.search(r"(\d+) requests in", out).group(1))
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
    return {"rps": float(re.search(r"Requests/sec:\s+([\d.]+)", out).group(1)), "p50_us": micros(re.search(r"(?m)^ +50% +(\S+)", out).group(1)),
            "p99_us": micros(re.search(r"(?m)^ +99% +(\S+)", out).group(1)), "requests": total, "bad": int(bad.group(1)) if bad else 0}


def wait_ready(port, seconds=20):
    import http.client
    end = time.time() + seconds
    while time.time() < end:
        try:
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
            c.request("GET", "/health")
            if c.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.05)
    sys.exit("bench: the gateway did not start")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=int, default=2)
    p.add_argument("--connections", default="1,64")
    p.add_argument("--no-redis", action="store_true")
    p.add_argument("--json", action="store_true")
    a = p.parse_args()
    if not shutil.which("wrk"):
        sys.exit("bench: wrk is not installed (./dev setup bench)")
    binary = os.environ.get("DEJA_BIN", os.path.join(ROOT, "build", "release", "deja"))
    folder, processes = tempfile.mkdtemp(prefix="deja-bench-"), []
    up_port, port = free_port(), free_port()
    null = multiprocessing.Process(target=serve_null, args=(up_port,), daemon=True)
    null.start()
    more = []
    try:
        if not a.no_redis:
            sock = os.path.join(folder, "redis.sock")
            processes.append(subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", sock, "--dir", folder, "--save", ""], stdout=subprocess.DEVNULL))
            more = ["--redis", "unix:" + sock]
            time.sleep(0.5)
        log = open(os.path.join(folder, "gateway.log"), "wb")
        gateway = subprocess.Popen([binary, "gateway", "--port", str(port), "--upstream", f"http://127.0.0.1:{up_port}/v1", "--probe", "off", *more], stderr=log, stdout=log)
        processes.append(gateway)
        wait_ready(port)
        idle = rss_mb(gateway.pid)
        scenarios = [("direct", up_port, lua(folder, "direct", "unique", {}, False)),
                     ("pass", port, lua(folder, "pass", "unique", {"x-deja-cache": "bypass"}, False)),
                     ("miss", port, lua(folder, "miss", "unique", {}, False)),
                     ("hit", port, lua(folder, "hit", "same", {}, False)),
                     ("hit_stream", port, lua(folder, "hit_stream", "same", {}, True))]
        wrk(port, scenarios[3][2], 4, 1)  # fills the cache
        rows = {}
        for c in [int(x) for x in a.connections.split(",")]:
            for _ in range(a.rounds):
                for name, to, script in scenarios:
                    before = cpu_s(gateway.pid)
                    got = wrk(to, script, c, a.seconds)
                    got["cpu_us"] = (cpu_s(gateway.pid) - before) * 1e6 / max(1, got["requests"]) if to == port else 0
                    rows.setdefault((name, c), []).append(got)
        report(rows, idle, rss_mb(gateway.pid), a.json)
    finally:
        for x in reversed(processes):
            x.terminate()
            x.wait()
        null.terminate()
        shutil.rmtree(folder, ignore_errors=True)


def report(rows, idle_mb, end_mb, as_json):
    machine = os.environ.get("DEJA_MACHINE", "unknown machine")
    checksum = hashlib.sha256(CONTENT.encode()).hexdigest()[:12]
    med = {k: {f: statistics.median(x[f] for x in v) for f in ("rps", "p50_us", "p99_us", "cpu_us", "bad")} for k, v in rows.items()}
    spread = {k: max(x["p50_us"] for x in v) / max(1e-9, min(x["p50_us"] for x in v)) for k, v in rows.items()}
    if as_json:
        for (name, c), m in med.items():
            direct = med[("direct", c)]
            for field, unit in (("rps", "1/s"), ("p50_us", "us"), ("p99_us", "us"), ("cpu_us", "us")):
                print(json.dumps({"name": f"gateway.{name}.c{c}.{field}", "value": round(m[field], 2), "unit": unit, "peer": round(direct[field], 2) if name != "direct" else None,
                                  "ratio": round(m[field] / direct[field], 3) if direct[field] and name != "direct" else None, "must": None, "met": None,
                                  "checksum": checksum, "machine": machine}))
        for name, v in (("rss_idle", idle_mb), ("rss_after", end_mb)):
            print(json.dumps({"name": f"gateway.{name}", "value": round(v, 1), "unit": "MB", "peer": None, "ratio": None, "must": None, "met": None, "checksum": checksum, "machine": machine}))
        return
    print(f"{'scenario':12} {'conns':>5} {'req/s':>9} {'p50 us':>9} {'p99 us':>9} {'over direct p50':>16} {'CPU us/req':>11} {'bad':>5} {'spread':>7}")
    for (name, c), m in med.items():
        over = m["p50_us"] - med[("direct", c)]["p50_us"]
        print(f"{name:12} {c:5d} {m['rps']:9.0f} {m['p50_us']:9.0f} {m['p99_us']:9.0f} {over:16.0f} {m['cpu_us']:11.1f} {m['bad']:5.0f} {spread[(name, c)]:7.2f}")
    print(f"gateway resident: {idle_mb:.1f} MB idle, {end_mb:.1f} MB afterwards")


if __name__ == "__main__":
    main()
