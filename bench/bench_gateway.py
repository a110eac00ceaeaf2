#!/usr/bin/env python3
"""What the gateway costs, beside nginx as a plain proxy in the same run: wrk against a null upstream (bench_null.c) directly, through nginx, and
through the gateway as pass-through (cache bypassed), as a miss that is stored, as exact hits in both forms, and as a relay of streams.
Scenarios are interleaved over the rounds, medians count. Load generator, upstream and proxy share the machine, so beside rates there is
the gateway's own CPU time a request.

  bench_gateway.py [--rounds 5] [--seconds 2] [--connections 1,64] [--no-redis] [--idle 10000] [--peer URL] [--json]

--peer URL: another proxy in front of an upstream of its own (a router for language models), asked what "pass" is asked. --idle N: memory
with N idle connections. Needs wrk, redis-server, nginx; without nginx its rows are left out. Exit status 1 when a must is not met."""
import argparse
import contextlib
import hashlib
import http.client
import json
import os
import re
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from machine import cpu_s, free_port, rss_mb

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.environ.get("DEJA_BIN", os.path.join(ROOT, "build", "release", "deja"))
NULL = os.path.join(os.path.dirname(BIN), "bench_null")
ROWS = []

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

NGINX = """
worker_processes 1; daemon off; pid %(folder)s/nginx.pid; error_log stderr crit;
events { worker_connections 4096; }
http {
  access_log off; client_body_temp_path %(folder)s/b; proxy_temp_path %(folder)s/p; fastcgi_temp_path %(folder)s/f; uwsgi_temp_path %(folder)s/u; scgi_temp_path %(folder)s/s;
  keepalive_requests 1000000;
  upstream null { server 127.0.0.1:%(upstream)d; keepalive 256; keepalive_requests 1000000; }
  server { listen 127.0.0.1:%(port)d; location / { proxy_pass http://null; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; } }
}
"""


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


def wrk(where, script, connections, seconds):
    out = subprocess.run(["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", script, where],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout
    total = int(re.search(r"(\d+) requests in", out).group(1))
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
    return {"rps": float(re.search(r"Requests/sec:\s+([\d.]+)", out).group(1)), "p50_us": micros(re.search(r"(?m)^ +50% +(\S+)", out).group(1)),
            "p99_us": micros(re.search(r"(?m)^ +99% +(\S+)", out).group(1)), "requests": total, "bad": int(bad.group(1)) if bad else 0}


def answers(port, path="/health"):
    with contextlib.suppress(OSError, http.client.HTTPException):
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        c.request("GET", path)
        return c.getresponse().status < 500
    return False


def wait_ready(port, what):
    end = time.time() + 20
    while not answers(port):
        if time.time() > end:
            sys.exit(f"bench: {what} did not start")
        time.sleep(0.002)


def launch(processes, argv, port, what, log=subprocess.DEVNULL):
    began = time.perf_counter()
    processes.append(subprocess.Popen(argv, stdout=log, stderr=log))
    wait_ready(port, what)
    return processes[-1], time.perf_counter() - began


def gateway_argv(port, up_port, *more):
    return [BIN, "gateway", "--port", str(port), "--upstream", f"http://127.0.0.1:{up_port}/v1", "--probe", "off", "--access-log", "no", *more]


def through_redis(folder, up_port, sock, processes, o, row):
    """Exact hits whose entries this process does not hold: 2,000 long answers kept by another gateway, and the least memory for copies."""
    port = free_port()
    p, _ = launch(processes, gateway_argv(port, up_port, "--redis", "unix:" + sock, "--cache-memory-bytes-max", "1048576", "--ns", "bench-redis"), port, "the gateway")
    script = lua(folder, "redis", "same", {}, False)
    with open(script, encoding="utf8") as f:
        text = f.read().replace("% 64", "% 4000")
    with open(script, "w", encoding="utf8") as f:
        f.write(text)
    wrk(f"http://127.0.0.1:{port}", script, 16, 2)
    got = [wrk(f"http://127.0.0.1:{port}", script, 64, o.seconds) for _ in range(o.rounds)]
    row("hit through Redis, 64 connections", statistics.median(g["rps"] for g in got), "1/s", ">= 15000")
    p.terminate()


def idle_memory(o, up_port, processes, row):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * o.idle + 1000), hard))
    port = free_port()
    p, _ = launch(processes, gateway_argv(port, up_port, "--client-idle-ms", "600000"), port, "the gateway")
    held = []
    try:
        for _ in range(o.idle):
            held.append(socket.create_connection(("127.0.0.1", port), 5))
        time.sleep(0.5)
        row(f"resident with {o.idle} idle connections", rss_mb(p.pid), "MB", "<= 150")
        if not answers(port):
            sys.exit("bench: it does not answer beside idle connections")
    except OSError as e:
        print(f"# {len(held)} connections, then: {e}", file=sys.stderr)
    finally:
        for s in held:
            s.close()
    p.terminate()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=int, default=2)
    p.add_argument("--connections", default="1,64")
    p.add_argument("--no-redis", action="store_true")
    p.add_argument("--idle", type=int, default=10000)
    p.add_argument("--peer")
    p.add_argument("--json", action="store_true")
    o = p.parse_args()
    if not shutil.which("wrk"):
        sys.exit("bench: wrk is not installed (./dev setup bench)")
    folder, processes = tempfile.mkdtemp(prefix="deja-bench-"), []
    checksum = hashlib.sha256(open(os.path.join(ROOT, "bench", "bench_null.c"), "rb").read()).hexdigest()[:12]

    def row(name, value, unit, must=None, peer=None, ratio=None):
        measured, met = value if ratio is None else ratio, None
        if must:
            sign, bound = must.split()
            met = measured <= float(bound) if sign == "<=" else measured >= float(bound)
        ROWS.append(met)
        if o.json:
            print(json.dumps({"name": name, "value": round(value, 3), "unit": unit, "peer": peer and round(peer, 3), "ratio": ratio and round(ratio, 3), "must": must,
                              "met": met, "checksum": checksum, "machine": os.environ.get("DEJA_MACHINE", "unknown machine")}), flush=True)
        else:
            beside = f"  peer {peer:.0f}, ratio {ratio:.2f}" if peer else ""
            print(f"{name:44} {value:10.2f} {unit:4} {('must ' + must) if must else '':14} {'' if met is None else 'met' if met else 'NOT MET'}{beside}", flush=True)
    try:
        measure(o, folder, processes, row)
    finally:
        for x in reversed(processes):
            x.terminate()
            x.wait()
        shutil.rmtree(folder, ignore_errors=True)
    return False in ROWS


def measure(o, folder, processes, row):
    up_port, port, more, sock = free_port(), free_port(), [], os.path.join(folder, "redis.sock")
    processes.append(subprocess.Popen([NULL, str(up_port)]))
    if not o.no_redis:
        processes.append(subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", sock, "--dir", folder, "--save", ""], stdout=subprocess.DEVNULL))
        more = ["--redis", "unix:" + sock]
    time.sleep(0.5)
    starts = []
    for _ in range(3):
        alone, took = launch(processes, gateway_argv(port, up_port), port, "the gateway")
        starts.append(took)
        idle = rss_mb(alone.pid)
        alone.terminate()
        alone.wait()
    row("start until it answers", statistics.median(starts), "s", "<= 0.2")
    row("resident idle, no models", idle, "MB", "<= 25")
    gateway, _ = launch(processes, gateway_argv(port, up_port, *more), port, "the gateway")
    here, direct = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{up_port}"
    unique, passing = lua(folder, "unique", "unique", {}, False), lua(folder, "pass", "unique", {"x-deja-cache": "bypass"}, False)
    hit, hit_stream = lua(folder, "hit", "same", {}, False), lua(folder, "hit_stream", "same", {}, True)
    relay, relay_pass = lua(folder, "relay", "unique", {}, True), lua(folder, "relay_pass", "unique", {"x-deja-cache": "bypass"}, True)
    scenarios = [("direct", direct, unique), ("pass", here, passing), ("miss", here, unique), ("hit", here, hit), ("hit_stream", here, hit_stream),
                 ("stream_direct", direct, relay), ("stream", here, relay_pass)]
    if shutil.which("nginx"):
        nginx_port = free_port()
        with open(os.path.join(folder, "nginx.conf"), "w", encoding="utf8") as f:
            f.write(NGINX % {"folder": folder, "upstream": up_port, "port": nginx_port})
        processes.append(subprocess.Popen(["nginx", "-p", folder, "-c", os.path.join(folder, "nginx.conf")], stderr=subprocess.DEVNULL))
        time.sleep(0.5)
        there = f"http://127.0.0.1:{nginx_port}"
        scenarios += [("nginx", there, unique), ("stream_nginx", there, relay)]
    if o.peer:
        scenarios.append(("peer", o.peer, unique))
    wrk(here, hit, 4, 1)  # fills the cache
    rows = {}
    for c in [int(x) for x in o.connections.split(",")]:
        for r in range(o.rounds):
            for name, to, script in scenarios if r % 2 == 0 else scenarios[::-1]:
                before = cpu_s(gateway.pid)
                got = wrk(to, script, c, o.seconds)
                got["cpu_us"] = (cpu_s(gateway.pid) - before) * 1e6 / max(1, got["requests"]) if to == here else 0
                rows.setdefault((name, c), []).append(got)
    report({k: {f: statistics.median(x[f] for x in v) for f in ("rps", "p50_us", "p99_us", "cpu_us", "bad")} for k, v in rows.items()}, o, row)
    row("resident afterwards", rss_mb(gateway.pid), "MB")
    gateway.terminate()
    gateway.wait()
    if not o.no_redis:
        through_redis(folder, up_port, sock, processes, o, row)
    if o.idle:
        idle_memory(o, up_port, processes, row)


def report(med, o, row):
    if not o.json:
        print(f"{'scenario':14} {'conns':>5} {'req/s':>9} {'p50 us':>9} {'p99 us':>9} {'over direct p50':>16} {'CPU us/req':>11} {'bad':>5}")
        for (name, c), m in med.items():
            over = m["p50_us"] - med[("stream_direct" if name.startswith("stream") else "direct", c)]["p50_us"]
            print(f"{name:14} {c:5d} {m['rps']:9.0f} {m['p50_us']:9.0f} {m['p99_us']:9.0f} {over:16.0f} {m['cpu_us']:11.1f} {m['bad']:5.0f}")
    for (name, c), m in med.items():
        get = lambda n, f, c=c: med[(n, c)][f] if (n, c) in med else None
        if name == "pass" and c == 1:
            row("pass-through added p50, 1 connection", (m["p50_us"] - get("direct", "p50_us")) / 1000, "ms", "<= 0.10")
        if name == "hit" and c == 1:
            row("exact hit p50, 1 connection", m["p50_us"] / 1000, "ms", "<= 0.10")
        if name == "hit" and c > 1:
            row(f"exact hit, {c} connections", m["rps"], "1/s", ">= 30000")
        if name == "pass" and c > 1 and get("nginx", "rps"):
            row(f"pass-through beside nginx, {c} connections", m["rps"], "1/s", ">= 0.5", get("nginx", "rps"), m["rps"] / get("nginx", "rps"))
        if name == "pass" and c > 1 and get("peer", "rps"):
            row(f"pass-through beside the peer, {c} connections", m["rps"], "1/s", ">= 2", get("peer", "rps"), m["rps"] / get("peer", "rps"))
        if name == "stream" and c > 1 and get("stream_nginx", "rps"):
            row(f"19-event streams beside nginx, {c} connections", m["rps"], "1/s", ">= 0.4", get("stream_nginx", "rps"), m["rps"] / get("stream_nginx", "rps"))


if __name__ == "__main__":
    sys.exit(main())
