"""What bench_overload.py and bench_soak.py share, all in one asyncio loop: an upstream of a fixed capacity that can be made to fail in every
way, a client that reads replies to the byte, programs started and ended by pid, rows of must and seen. Every question carries an id that
its answer repeats piece by piece, so lost, doubled and mixed-up replies are seen. Standard library only, loopback only."""
import argparse
import asyncio
import collections
import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

from machine import free_port

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.environ.get("DEJA_BIN", os.path.join(ROOT, "build", "release", "deja"))
PIECES = 12
ID = re.compile(r"id=([0-9a-z]+)")


def answer_of(name):
    return [f"{name}.{i} " for i in range(PIECES)]


# --- the upstream
class Upstream:
    """At most `slots` calls at a time are its capacity; more are counted in `over`. A whole answer takes service_s, a stream the same until
    its end. fault: None, hang, hangmid, reset, garbage, or a status as text."""

    def __init__(self, slots, service_s):
        self.slots, self.service_s, self.fault = slots, service_s, None
        self.port, self.server, self.open = free_port(), None, set()
        self.at_work = self.over = self.most = 0
        self.asked, self.finished = collections.Counter(), collections.Counter()

    async def start(self):
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, backlog=512, limit=1 << 20)

    def kill(self):
        """As kill -9 leaves it: nobody listens, what is open is reset."""
        self.server.close()
        for w in list(self.open):
            self._reset(w)

    @staticmethod
    def _reset(w):
        with contextlib.suppress(OSError, AttributeError):
            w.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        w.transport.abort()

    @staticmethod
    async def _gone(r, seconds):
        """Waits; true when the other side has hung up meanwhile."""
        try:
            return not await asyncio.wait_for(r.read(1), seconds)
        except asyncio.TimeoutError:
            return False
        except OSError:
            return True

    async def _serve(self, r, w):
        self.open.add(w)
        w.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while await self._one(r, w):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.open.discard(w)
            w.close()

    async def _one(self, r, w):
        head = (await r.readuntil(b"\r\n\r\n")).decode("latin1")
        length = re.search(r"(?i)content-length: *(\d+)", head)
        body = await r.readexactly(int(length[1])) if length else b""
        if head.startswith("GET"):
            self._whole(w, 200, {"object": "list", "data": [{"id": "m", "object": "model"}]})
            return True
        doc = json.loads(body)
        if "/embeddings" in head.split("\r\n")[0]:
            self._embeddings(w, doc)
            return True
        name = ID.search(doc["messages"][-1]["content"])[1]
        self.asked[name] += 1
        self.at_work += 1
        self.most = max(self.most, self.at_work)
        self.over += self.at_work > self.slots
        try:
            return await self._answer(r, w, doc, name)
        finally:
            self.at_work -= 1

    async def _answer(self, r, w, doc, name):
        fault, pieces = self.fault, answer_of(name)
        if fault == "garbage":
            w.write(b"\x00\x01nothing like it\r\n\r\n")
            return False
        if fault and fault.isdigit():
            await self._gone(r, 0.005)
            self._whole(w, int(fault), {"error": {"message": "as asked", "type": "test_error", "code": None}}, "Retry-After: 1\r\n")
            return True
        if fault == "hang":
            await self._gone(r, 60)
            return False
        chunk = {"id": "c-" + name, "object": "chat.completion.chunk", "created": 1, "model": "m"}
        usage = {"prompt_tokens": 20, "completion_tokens": PIECES, "total_tokens": 20 + PIECES}
        if not doc.get("stream"):
            if await self._gone(r, self.service_s):
                return False
            choice = {"index": 0, "message": {"role": "assistant", "content": "".join(pieces)}, "finish_reason": "stop", "logprobs": None}
            self._whole(w, 200, {"id": "c-" + name, "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage},
                        cut=fault in ("hangmid", "reset"))
            if fault == "hangmid":
                await self._gone(r, 60)
            if fault == "reset":
                self._reset(w)
            self.finished[name] += not fault
            return not fault
        w.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for i, text in enumerate(pieces):
            if await self._gone(r, self.service_s / PIECES):
                return False
            self._event(w, json.dumps({**chunk, "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}))
            await w.drain()
            if i == PIECES // 2 and self.fault in ("hangmid", "reset"):
                if self.fault == "hangmid":
                    await self._gone(r, 60)
                self._reset(w)
                return False
        self._event(w, json.dumps({**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
        if (doc.get("stream_options") or {}).get("include_usage"):
            self._event(w, json.dumps({**chunk, "choices": [], "usage": usage}))
        self._event(w, "[DONE]")
        w.write(b"0\r\n\r\n")
        await w.drain()
        self.finished[name] += 1
        return True

    @staticmethod
    def _event(w, text):
        data = f"data: {text}\n\n".encode()
        w.write(b"%x\r\n%s\r\n" % (len(data), data))

    @staticmethod
    def _whole(w, status, doc, more="", cut=False):
        body = json.dumps(doc).encode()
        head = f"HTTP/1.1 {status} Said\r\nContent-Type: application/json\r\n{more}Content-Length: {len(body)}\r\n\r\n"
        w.write(head.encode() + (body[:len(body) // 2] if cut else body))

    @staticmethod
    def _embeddings(w, doc):
        texts = doc["input"] if isinstance(doc["input"], list) else [doc["input"]]
        rows = []
        for i, t in enumerate(texts):
            rng = random.Random(t)
            rows.append({"object": "embedding", "index": i, "embedding": [rng.uniform(-1, 1) for _ in range(64)]})
        Upstream._whole(w, 200, {"object": "list", "data": rows, "model": "e", "usage": {"prompt_tokens": 1, "total_tokens": 1}})


# --- the client
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}


class Reply:
    """status 0: the connection ended or failed before a status; why says how."""

    def __init__(self):
        self.status, self.headers, self.body, self.why, self.took_s, self.door = 0, {}, b"", "", 0.0, "chat"

    def text(self):
        """What a model said, and how a stream ended: done, error or cut."""
        if self.door != "chat":
            return self.text_of_door()
        if not self.headers.get("content-type", "").startswith("text/event-stream"):
            return json.loads(self.body)["choices"][0]["message"]["content"], "done"
        events = [e[6:] for e in self.body.decode().split("\n\n") if e.startswith("data: ")]
        said = "".join((c.get("delta") or {}).get("content") or "" for e in events if e.startswith("{") for c in json.loads(e).get("choices", []))
        if events.count("[DONE]") > 1:
            return said, "done twice"
        return said, "done" if events and events[-1] == "[DONE]" else "error" if b'"error"' in self.body else "cut"


    def text_of_door(self):
        """The same through /v1/responses or /v1/messages."""
        responses = self.door == "responses"
        if not self.headers.get("content-type", "").startswith("text/event-stream"):
            doc = json.loads(self.body)
            blocks = [b for item in doc["output"] if item["type"] == "message" for b in item["content"]] if responses else doc["content"]
            return "".join(b["text"] for b in blocks), "done"
        events = [json.loads(line[6:]) for block in self.body.decode().split("\n\n") for line in block.split("\n") if line.startswith("data: ")]
        kind, last = ("response.output_text.delta", "response.completed") if responses else ("content_block_delta", "message_stop")
        said = "".join(e["delta"] if responses else e["delta"].get("text", "") for e in events if e["type"] == kind)
        if sum(e["type"] == last for e in events) > 1:
            return said, "done twice"
        broken = b"event: response.failed" if responses else b"event: error"
        return said, "done" if events and events[-1]["type"] == last else "error" if broken in self.body else "cut"

    def response_id(self):
        """Of an answer of /v1/responses that is kept, or None."""
        if not self.headers.get("content-type", "").startswith("text/event-stream"):
            doc = json.loads(self.body)
        else:
            last = [line[6:] for line in self.body.decode().split("\n") if line.startswith("data: ")][-1]
            doc = json.loads(last).get("response") or {}
        return doc.get("id") if doc.get("store") else None


class Client:
    """Kept-alive connections to one port. A connection that holds a byte more than its reply is counted in `stray`."""

    def __init__(self, port):
        self.port, self.free, self.stray = port, [], 0

    async def ask(self, body, headers=(), timeout_s=20, read_pause_s=0, door="chat"):
        reply, began, pair = Reply(), time.monotonic(), None
        reply.door = door
        while self.free and self.free[-1][0].at_eof():       # closed while nothing was asked
            self.free.pop()[1].close()
        kept = bool(self.free)
        try:
            async with asyncio.timeout(timeout_s):
                pair = self.free.pop() if self.free else await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)
                self._send(pair[1], body, headers, PATHS[door])
                await self._read(pair[0], reply, read_pause_s)
            reply.took_s = time.monotonic() - began
            if pair[0]._buffer:                              # nobody asked for these
                self.stray += 1
            elif reply.headers.get("connection", "").lower() != "close":
                self.free.append(pair)
                pair = None
        except TimeoutError:
            reply.why = "no end in time"
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as e:
            reply.why = f"{type(e).__name__} after {time.monotonic() - began:.3f} s, {'kept' if kept else 'new'} connection, {len(reply.body)} bytes of a body"
        finally:
            if pair:
                pair[1].transport.abort()
        return reply

    async def leave(self, body, after_s):
        with contextlib.suppress(OSError):
            _, w = await asyncio.open_connection("127.0.0.1", self.port)
            self._send(w, body, ())
            await asyncio.sleep(after_s)
            w.transport.abort()

    @staticmethod
    def _send(w, body, headers, path="/v1/chat/completions"):
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        more = "".join(f"{k}: {v}\r\n" for k, v in headers)
        w.write(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{more}Content-Length: {len(data)}\r\n\r\n".encode() + data)

    @staticmethod
    async def _read(r, reply, pause_s):
        lines = (await r.readuntil(b"\r\n\r\n")).decode("latin1").split("\r\n")
        reply.headers = {k.lower(): v.strip() for k, _, v in (x.partition(":") for x in lines[1:] if x)}
        if "content-length" in reply.headers:
            reply.body = await r.readexactly(int(reply.headers["content-length"]))
        while "transfer-encoding" in reply.headers:
            n = int(await r.readuntil(b"\r\n"), 16)
            reply.body += (await r.readexactly(n + 2))[:-2]
            if not n:
                break
            if pause_s:
                await asyncio.sleep(pause_s)
        reply.status = int(lines[0].split()[1])              # at the end: a reply that was cut has none

    def close(self):
        for _, w in self.free:
            w.transport.abort()
        self.free.clear()


def question(name, stream=False, **more):
    return {"model": "m", "temperature": 0, "max_tokens": 32, "stream": stream,
            "messages": [{"role": "system", "content": "You are the support bot of a shop."}, {"role": "user", "content": f"What about id={name}?"}], **more}


def door_question(door, name, stream=False, **more):
    """The same through another door: one entry and one call with question(name)."""
    system, user = (m["content"] for m in question(name)["messages"])
    if door == "responses":
        return {"model": "m", "temperature": 0, "max_output_tokens": 32, "stream": stream, "instructions": system, "input": user, **more}
    if door == "messages":
        return {"model": "m", "temperature": 0, "max_tokens": 32, "stream": stream, "system": system, "messages": [{"role": "user", "content": user}], **more}
    return question(name, stream, **more)


# --- programs
class Programs:
    """Started in one folder, ended by pid."""

    def __init__(self):
        self.folder, self.children = tempfile.mkdtemp(prefix="deja-load-"), {}
        self.socket = os.path.join(self.folder, "redis.sock")

    def start(self, name, argv):
        with open(os.path.join(self.folder, name + ".log"), "ab") as log:
            self.children[name] = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        return self.children[name]

    def redis(self, memory="256mb"):
        return self.start("redis", ["redis-server", "--port", "0", "--unixsocket", self.socket, "--dir", self.folder, "--appendonly", "yes",
                                    "--appendfsync", "everysec", "--save", "", "--maxmemory", memory, "--maxmemory-policy", "noeviction"])

    def gateway(self, name, port, *more):
        return self.start(name, [BIN, "gateway", "--port", str(port), "--access-log", "no", *more])

    def log_tail(self, name, n=1500):
        with open(os.path.join(self.folder, name + ".log"), "rb") as f:
            return f.read()[-n:].decode("utf8", "replace")

    def stop(self, name, sig=signal.SIGTERM):
        p = self.children.pop(name)
        with contextlib.suppress(ProcessLookupError):
            p.send_signal(signal.SIGCONT)
            p.send_signal(sig)
        try:
            return p.wait(20)
        except subprocess.TimeoutExpired:
            p.kill()
            return p.wait()

    def close(self):
        ends = {name: self.stop(name) for name in reversed(list(self.children))}
        shutil.rmtree(self.folder, ignore_errors=True)
        return ends


async def get(port, path, timeout_s=5):
    """(status, body); (0, b"") when nobody answers."""
    try:
        async with asyncio.timeout(timeout_s):
            r, w = await asyncio.open_connection("127.0.0.1", port)
            w.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            text = await r.read(-1)
            w.close()
        return int(text.split()[1]), text.partition(b"\r\n\r\n")[2]
    except (OSError, TimeoutError, IndexError, ValueError):
        return 0, b""


async def until_ready(port, what, seconds=30):
    end = time.monotonic() + seconds
    while (await get(port, "/ready"))[0] != 200:
        if time.monotonic() > end:
            raise SystemExit(f"bench: {what} did not start")
        await asyncio.sleep(0.05)


class Rows:
    """Prints what must hold beside what was seen."""

    def __init__(self, as_json):
        self.as_json, self.all_met = as_json, True

    def row(self, name, seen, unit="", must=None):
        met = None
        if must:
            sign, bound = must.split()
            met = seen <= float(bound) if sign == "<=" else seen >= float(bound) if sign == ">=" else seen == float(bound)
            self.all_met = self.all_met and met
        if self.as_json:
            print(json.dumps({"name": name, "value": round(seen, 4), "unit": unit, "must": must, "met": met,
                              "machine": os.environ.get("DEJA_MACHINE", "unknown machine")}), flush=True)
        else:
            print(f"{name:66} {seen:10.3f} {unit:5} {('must ' + must) if must else '':16} {'' if met is None else 'met' if met else 'NOT MET'}", flush=True)

    def verdict(self):
        """Tells it to people; the exit status."""
        print("verdict:", "all musts met" if self.all_met else "NOT all musts met", file=sys.stderr)
        return 0 if self.all_met else 1


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))] if values else 0.0


def bench_main(measure, **options):
    """Runs measure(o, rows) with the options of the command line (their names and defaults are given here) and --json; the exit status."""
    p = argparse.ArgumentParser()
    for name, preset in options.items():
        p.add_argument("--" + name.replace("_", "-"), type=type(preset), default=preset)
    p.add_argument("--json", action="store_true")
    o = p.parse_args()
    rows = Rows(o.json)
    asyncio.run(measure(o, rows))
    return rows.verdict()
