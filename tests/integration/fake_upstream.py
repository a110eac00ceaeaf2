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
  wordform:N   status 422 with error form N of 0..4  errorname   an event named error that holds no JSON, then [DONE]
Every request is recorded: `calls` (dicts with path, method, headers, raw, json, text, gone)."""
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FakeUpstream:
    def __init__(self, port=0):
        self.calls, self.lock, self.seen = [], threading.Lock(), set()
        self.finish = self.say = None                  # finish_reason and content of all answers, unless the text says otherwise
        self.fail, self.hold = None, 0                 # status of all answers; seconds before each
        owner = self

        class Handler(_Handler):
            fake = owner

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256
            allow_reuse_address = True

            def handle_error(self, request, client_address):
                pass

        self.server = Server(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()

    def count(self, text=None):
        with self.lock:
            return sum(1 for c in self.calls if c["method"] == "POST" and (text is None or text in (c["text"] or "")))

    def last(self):
        with self.lock:
            return self.calls[-1]

    def close(self):
        self.server.shutdown()
        self.server.server_close()


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
        do = dict((m.group(1), m.group(2) or "") for m in re.finditer(r"\[\[([a-z]+)(?::([^\]]*))?\]\]", call["text"] or ""))
        if "once" in do:
            first = call["text"] not in self.fake.seen
            self.fake.seen.add(call["text"])
            do = {**do, do["once"]: "503"} if first else do
        if "/embeddings" in self.path:
            return self._send(200, b'{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5,-0.25]}],"model":"m"}')
        time.sleep(self.fake.hold)
        if "slow" in do:
            time.sleep(int(do["slow"]) / 1000)
        if self.fake.fail:
            do["status"] = self.fake.fail
        if "status" in do:
            body = json.dumps({"error": {"message": "as asked", "type": "test_error", "code": None}}).encode()
            return self._send(int(do["status"]), body, extra=[("Retry-After", "7"), ("X-Upstream", "fake")])
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

    def _message(self, do, content):
        if "tools" in do:
            return {"role": "assistant", "content": None,
                    "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}}]}
        return {"role": "assistant", "content": content}

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
        body = json.dumps(doc, ensure_ascii=False).encode()
        if "malformed" in do:
            body = body[:-5]
        if "cut" in do:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
            return
        self._send(200, body, extra=[("X-Upstream", "fake")])

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
            deltas = [{"role": "assistant", "content": ""}] + [{"content": p} for p in self._pieces(do, content)]
        for i, delta in enumerate(deltas):
            self._chunk(call, delta)
            if "drip" in do:
                time.sleep(int(do["drip"]) / 1000)
            if i == 1 and "cut" in do:
                self.wfile.flush()
                self.close_connection = True
                return
            if i == 1 and "errorframe" in do:
                self._event('{"error":{"message":"ran out of luck","type":"server_error","code":null}}')
            if i == 1 and "errorname" in do:
                data = b"event: error\ndata: ran out of luck\n\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
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
