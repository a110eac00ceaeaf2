"""A scripted OpenAI-compatible server for tests of the gateway (standard library only, one thread a connection, loopback only).

What it does with a request stands in the last user text as [[name]] or [[name:argument]], several may be given:
  slow:MS      wait before the first byte            drip:MS     wait between the chunks of a stream
  cut          end in the middle                     empty       200 without a body
  malformed    200 with broken JSON / a broken frame html        200 with a page
  status:N     that status with an OpenAI error      finish:R    finish_reason R
  tools        a tool call                           chunks:N    N chunks of content (default 3)
  pad:N        N bytes of content                    nodone      no [DONE]
  errorframe   an error event after the first chunk  once:NAME   only the first time this very text is asked, then well
  say:TEXT     content                               nofinish    no finish_reason
  hang         no answer, ever                       hangmid     silence after the first chunk (or half the body)
  reset        a reset after the first chunk (or half the body)   garbage     bytes that are not HTTP
  code:C       code and param of an error
  after:S      Retry-After of an error ("" = none)
  think:TEXT   reasoning_content before the content
  big          a whole answer with a number over 64 bits
  odd          what is valid and rare: frames with a number over 64 bits and with an empty list inside, a usage beyond all reason
  cookies      two Set-Cookie beside the answer
  wordform:N   status 422 with error form N of 0..4  errorname   an event named error that holds no JSON, then [DONE]
Every request is recorded: `calls` (dicts with path, method, headers, raw, json, text, gone)."""
import base64
import json
import re
import socket
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


PROBES = ("/ready", "/metrics", "/models")


class FakeUpstream:
    def __init__(self, port=0):
        self.calls, self.lock, self.seen = [], threading.Lock(), set()
        self.open = set()
        self.finish = self.say = None                  # finish_reason and content of all answers, unless the text says otherwise
        self.fail, self.hold = None, 0                 # status of all answers; seconds before each
        self.after = "7"                               # Retry-After of errors
        self.fault = None                              # one of the words above, for every POST
        self.words = {}                                # text -> words as above, for who asks just that
        self.gate = None                               # an Event that all answers wait for
        owner = self

        class Handler(_Handler):
            fake = owner

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256
            allow_reuse_address = True

            def handle_error(self, request, client_address):
                pass

            def process_request(self, request, client_address):
                owner.open.add(request)
                super().process_request(request, client_address)

            def shutdown_request(self, request):
                owner.open.discard(request)
                super().shutdown_request(request)

        self.server = Server(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()

    def count(self, text=None):
        with self.lock:
            return sum(1 for c in self.calls if c["method"] == "POST" and (text is None or text in (c["text"] or "")))

    def last(self):
        """The last call that a client made: not one by which a gateway sees how its upstream is."""
        with self.lock:
            return next(c for c in reversed(self.calls) if c["method"] != "GET" or not c["path"].endswith(PROBES))

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        for s in list(self.open):                      # those kept alive end too
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def _text(req):
    try:
        content = req["messages"][-1]["content"] if "messages" in req else req.get("prompt")
        return content if isinstance(content, str) else json.dumps(content)
    except (KeyError, IndexError, TypeError):
        return ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    fake = None

    def log_message(self, *args):
        pass

    def _record(self, raw):
        try:
            doc = json.loads(raw) if raw else {}
        except ValueError:
            doc = {}
        call = {"method": self.command, "path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()}, "raw": raw,
                "json": doc, "text": _text(doc) if isinstance(doc, dict) else "", "gone": False}
        with self.fake.lock:
            self.fake.calls.append(call)
            call["n"] = len(self.fake.calls)
        return call

    def _send(self, status, body, content_type="application/json", extra=()):
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for k, v in extra:
            self.send_header(k, v)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        if not self.path.endswith("/models"):
            self._record(b"")
        self._send(200, json.dumps({"object": "list", "data": [{"id": "m", "object": "model"}]}).encode(), extra=[("X-Upstream", "fake")])

    do_HEAD = do_GET

    def do_DELETE(self):
        self._record(b"")
        self._send(200, b'{"deleted":true}')

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        call = self._record(raw)
        try:
            self._answer(call)
        except (BrokenPipeError, ConnectionResetError):
            call["gone"] = True
            self.close_connection = True

    def _answer(self, call):
        do = dict((m.group(1), m.group(2) or "") for m in re.finditer(r"\[\[([a-z]+)(?::([^\]]*))?\]\]", (call["text"] or "") + self.fake.words.get(call["text"], "")))
        if "once" in do:
            first = call["text"] not in self.fake.seen
            self.fake.seen.add(call["text"])
            do = {**do, do["once"]: "503", "after": do.get("after", "")} if first else do
        if self.fake.fault:
            do[self.fake.fault] = ""
        if "hang" in do:
            return self._wait_for_end()
        if "garbage" in do:
            self.wfile.write(b"\x00\x01SSH-2.0-nothing like it\r\n\r\n\xff")
            self.close_connection = True
            return
        if "/embeddings" in self.path:
            return self._embeddings(call["json"])
        time.sleep(self.fake.hold)
        if self.fake.gate:
            self.fake.gate.wait(60)
        if "slow" in do:
            time.sleep(int(do["slow"]) / 1000)
        if self.fake.fail:
            do["status"] = self.fake.fail
        if "status" in do:
            body = json.dumps({"error": {"message": "as asked", "type": "test_error", "code": do.get("code"), "param": do.get("code")}}).encode()
            after = do.get("after", self.fake.after)
            return self._send(int(do["status"]), body, extra=[("Retry-After", after)] * bool(after) + [("X-Upstream", "fake")])
        if "wordform" in do:
            forms = ({"detail": "as asked"}, {"detail": [{"loc": ["body"], "msg": "as asked"}]}, {"error": "as asked"},
                     {"object": "error", "message": "as asked", "code": 7}, {"detail": {"a": None}})
            return self._send(422, json.dumps(forms[int(do["wordform"])]).encode())
        if "empty" in do:
            return self._send(200, b"", "text/event-stream" if call["json"].get("stream") else "application/json")
        if "html" in do:
            return self._send(200, b"<html>please log in</html>", "text/html")
        content = do.get("say") or self.fake.say or ("x" * int(do["pad"]) if "pad" in do else f"reply {call['n']} 你好 🚚")
        if call["json"].get("stream"):
            return self._stream(call, do, content)
        return self._whole(call, do, content)

    def _wait_for_end(self):
        """Says nothing until the other side hangs up (or a minute is over)."""
        self.wfile.flush()
        self.connection.settimeout(60)
        try:
            self.connection.recv(1)
        except OSError:
            pass
        self.close_connection = True

    def _reset(self):
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        raise ConnectionResetError

    def _embeddings(self, req):
        """A vector a text: what its bytes sum up to, its length, a third. One token a word."""
        texts = req.get("input") if isinstance(req, dict) else None
        texts = texts if isinstance(texts, list) and not (texts and isinstance(texts[0], int)) else [texts]
        refused = re.search(r"\[\[status:(\d+)\]\]", str(texts))
        if refused:
            return self._send(int(refused[1]), b'{"error":{"message":"as asked","type":"test_error"}}', extra=[("Retry-After", "7")])
        time.sleep(self.fake.hold)
        rows = []
        for i, text in enumerate(texts):
            numbers = [sum(str(text).encode()) % 997 / 997 - 0.5, len(str(text)) / 8, 1 / 3, float(req.get("dimensions") or 0)]
            if req.get("encoding_format") == "base64":
                numbers = base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()
            rows.append({"object": "embedding", "index": i, "embedding": numbers})
        tokens = sum(len(str(t).split()) for t in texts)
        self._send(200, json.dumps({"object": "list", "data": rows[::-1], "model": "served-" + str(req.get("model")),
                                    "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}).encode())

    def _message(self, do, content):
        if "tools" in do:
            return {"role": "assistant", "content": None,
                    "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}}]}
        more = {"reasoning_content": do["think"]} if "think" in do else {}
        return {"role": "assistant", **more, "content": content}

    def _whole(self, call, do, content):
        finish = do.get("finish") or self.fake.finish or ("tool_calls" if "tools" in do else "stop")
        chat = "/chat/" in self.path
        choices = []
        for i in range(call["json"].get("n") or 1):
            choice = {"index": i, "finish_reason": None if "nofinish" in do else finish, "logprobs": None}
            choice.update({"message": self._message(do, content)} if chat else {"text": content})
            choices.append(choice)
        doc = {"id": f"chatcmpl-{call['n']}", "object": "chat.completion" if chat else "text_completion", "created": 1, "model": call["json"].get("model"),
               "choices": choices, "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}, "x_kept": {"a": [1]}}
        if "big" in do:
            doc["big"] = 2**64
        if "odd" in do:
            doc["usage"] = {"prompt_tokens": 2**63 - 1, "completion_tokens": 2**63 - 1}
        body = json.dumps(doc, ensure_ascii=False).encode()
        if "malformed" in do:
            body = body[:-5]
        if "cut" in do or "reset" in do or "hangmid" in do:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2])
            if "reset" in do:
                self._reset()
            if "hangmid" in do:
                self._wait_for_end()
            self.close_connection = True
            return
        cookies = [("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("X-One", "1")] if "cookies" in do else []
        self._send(200, body, extra=[("X-Upstream", "fake"), *cookies])

    def _chunk(self, call, delta, finish=None, usage=False):
        doc = {"id": f"chatcmpl-{call['n']}", "object": "chat.completion.chunk", "created": 1, "model": call["json"].get("model"),
               "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        if "/chat/" not in self.path:
            doc["object"] = "text_completion"
            doc["choices"][0] = {"index": 0, "text": delta.get("content") or "", "finish_reason": finish}
        if usage:
            doc["choices"], doc["usage"] = [], {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
        self._event(json.dumps(doc, ensure_ascii=False))

    def _event(self, text):
        data = f"data: {text}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _pieces(self, do, content):
        n = int(do.get("chunks") or 3)
        if "chunks" in do and "pad" not in do:
            return [f"piece {i} " for i in range(n)]
        step = max(1, (len(content) + n - 1) // n)
        return [content[i:i + step] for i in range(0, len(content), step)]

    def _stream(self, call, do, content):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("X-Upstream", "fake")
        self.end_headers()
        if "tools" in do:
            deltas = [{"role": "assistant", "content": None, "tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}]},
                      {"tool_calls": [{"index": 0, "function": {"arguments": '{"city":'}}]}, {"tool_calls": [{"index": 0, "function": {"arguments": '"Oslo"}'}}]}]
        else:
            thoughts = [{"reasoning_content": do["think"]}] if "think" in do else []
            deltas = [{"role": "assistant", "content": ""}] + thoughts + [{"content": p} for p in self._pieces(do, content)]
        for i, delta in enumerate(deltas):
            self._chunk(call, delta)
            if "drip" in do:
                time.sleep(int(do["drip"]) / 1000)
            if i == 1 and "reset" in do:
                self._reset()
            if i == 1 and "hangmid" in do:
                return self._wait_for_end()
            if i == 1 and "cut" in do:
                self.wfile.flush()
                self.close_connection = True
                return
            if i == 1 and "errorframe" in do:
                self._event(json.dumps({"error": {"message": "ran out of luck", "type": "server_error", "code": do.get("code"), "param": do.get("code")}}))
            if i == 1 and "errorname" in do:
                data = b"event: error\ndata: ran out of luck\n\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            if i == 1 and "odd" in do:
                self._event('{"big":18446744073709551616,"choices":[{"index":0,"delta":{"content":"big "},"finish_reason":null}]}')
                self._event('{"x":{"choices":[]},"usage":{"prompt_tokens":5},"choices":[{"index":0,"delta":{"content":"inner "},"finish_reason":null}]}')
            if i == 1 and "malformed" in do:
                self._event('{"broken')
        if "nofinish" not in do:
            self._chunk(call, {}, do.get("finish") or self.fake.finish or ("tool_calls" if "tools" in do else "stop"))
        if (call["json"].get("stream_options") or {}).get("include_usage"):
            self._chunk(call, {}, usage=True)
        if "nodone" not in do:
            self._event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")


if __name__ == "__main__":
    import sys
    up = FakeUpstream(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    print(up.url, flush=True)
    up.thread.join()
