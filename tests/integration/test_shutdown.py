"""Goal: whoever is served or waits when engine or gateway get SIGTERM has an answer, or is told in the API's form that there is none, within the
time to drain; nothing is cut without a word, and the program ends with 0. Method: real servers with more requests than they serve at
once, streamed and whole, and raw clients that see how their connection ended."""
import json
import os
import signal
import socket
import threading
import time
import unittest

from tests.integration.fake_upstream import FakeUpstream
from tests.integration.live_rig import until
from tests.integration.rig import DATA, Rig, call, metric, unique

CHAT = "/v1/chat/completions"


class Client(threading.Thread):
    """One request on a connection of its own, read to its end."""

    def __init__(self, port, path=CHAT, **fields):
        super().__init__(daemon=True)
        self.port, self.path, self.fields = port, path, dict({"model": "m", "messages": [{"role": "user", "content": unique("hello")}]}, **fields)
        self.status, self.headers, self.raw, self.broken = None, {}, b"", None
        self.start()

    def run(self):
        try:
            self.status, self.headers, self.raw = call(self.port, "POST", self.path, self.fields, timeout=60)
        except Exception as e:                       # a cut reply, a reset: what must not be
            self.broken = repr(e)

    def ending(self):
        """whole, refused (an error in the API's form), told (an error event ends the stream), or what is wrong with it."""
        self.join(60)
        if self.broken or self.is_alive():
            return self.broken or "no end"
        if self.status != 200:
            good = self.status == 503 and "message" in json.loads(self.raw)["error"] and int(self.headers.get("retry-after", 0)) >= 1
            return "refused" if good else f"{self.status} {self.headers} {self.raw!r}"
        if not self.fields.get("stream"):
            return "whole" if json.loads(self.raw)["choices"][0]["finish_reason"] else repr(self.raw)
        frames = [x for x in self.raw.decode().split("\n\n") if x.startswith("data: ")]
        if frames and frames[-1] == "data: [DONE]":
            return "whole"
        return "told" if frames and "message" in json.loads(frames[-1][6:]).get("error", {}) else f"cut: {self.raw[-200:]!r}"


def endings(clients):
    out = {}
    for c in clients:
        e = c.ending()
        out[e] = out.get(e, 0) + 1
    return out


class EngineEnds(unittest.TestCase):
    def start(self, rig, drain_ms):
        p = rig.engine(os.path.join(DATA, "tiny-llama-mixed.gguf"),
                       extra=("--served-model-name", "m", "--max-num-seqs", "2", "--queue-max", "16", "--drain-ms", str(drain_ms)))
        more = {"max_tokens": 400, "ignore_eos": True}
        clients = [Client(rig.engine_port, stream=i % 2 == 0, **more) for i in range(10)]
        until(lambda: metric(rig.engine_port, "vllm:num_requests_waiting") >= 6, 30, "a queue")
        return p, clients

    def test_all_that_run_and_wait_are_answered_when_there_is_time(self):
        with Rig() as rig:
            p, clients = self.start(rig, 60000)
            p.kill(signal.SIGTERM)
            self.assertEqual(endings(clients), {"whole": 10})
            self.assertEqual(p.popen.wait(10), 0)

    def test_who_is_left_when_the_time_is_over_is_told_so(self):
        for second in (False, True):                 # a second signal: the time is over now
            with self.subTest(second=second), Rig() as rig:
                p, clients = self.start(rig, 60000 if second else 1)
                p.kill(signal.SIGTERM)
                if second:
                    until(lambda: "draining" in p.tail(), 10, "the first signal")
                    p.kill(signal.SIGTERM)
                self.assertEqual(p.popen.wait(10), 0)
                got = endings(clients)
                self.assertLessEqual(set(got), {"whole", "told", "refused"})
                self.assertGreaterEqual(got.get("told", 0) + got.get("refused", 0), 6, got)     # who waited, at least
                self.assertGreaterEqual(min(got.get("told", 0), got.get("refused", 0)), 2, got)

    def test_a_client_that_reads_nothing_holds_the_end_up_only_so_long(self):
        with Rig() as rig:
            p = rig.engine(os.path.join(DATA, "tiny-llama-mixed.gguf"), extra=("--served-model-name", "m", "--drain-ms", "300"))
            body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True, "max_tokens": 400, "ignore_eos": True,
                               "logprobs": True, "top_logprobs": 20}).encode()
            s = socket.socket()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.connect(("127.0.0.1", rig.engine_port))
            s.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (CHAT.encode(), len(body)) + body)
            until(lambda: metric(rig.engine_port, "vllm:num_requests_running") == 1, 10, "its answer")
            began = time.monotonic()
            p.kill(signal.SIGTERM)
            self.assertEqual(p.popen.wait(20), 0)
            self.assertLess(time.monotonic() - began, 15)        # 1.3 s; the rest is room for a busy machine under a sanitizer
            s.close()


class GatewayEnds(unittest.TestCase):
    def setUp(self):
        self.up, self.rig = FakeUpstream(), Rig()
        self.addCleanup(self.up.close)
        self.addCleanup(self.rig.close)

    def load(self):
        """Two streams and two whole answers at work, two of each that wait for a slot, one that is only passed on."""
        at_work = [Client(self.rig.port, stream=stream, messages=[{"role": "user", "content": unique("[[drip:100]][[chunks:300]][[slow:1]]" if stream
                                                                                                     else "[[slow:20000]]")}])
                   for stream in (True, False, True, False)]
        until(lambda: metric(self.rig.port, "deja_queue_working") == 4, 20, "four at work")
        waiting = [Client(self.rig.port, stream=i % 2 == 0) for i in range(4)]
        until(lambda: metric(self.rig.port, "deja_queue_waiting") == 4, 20, "four that wait")
        until(lambda: self.up.count() >= 4, 20, "four calls")
        return at_work, waiting

    def test_who_is_left_when_the_time_is_over_is_told_so(self):
        p = self.rig.gateway("--upstream", self.up.url + " max_concurrency=4", "--drain-ms", "300")
        at_work, waiting = self.load()
        time.sleep(0.3)                              # the streams have begun
        began = time.monotonic()
        p.kill(signal.SIGTERM)
        self.assertEqual(p.popen.wait(20), 0)
        self.assertLess(time.monotonic() - began, 15)
        self.assertEqual(endings(at_work), {"told": 2, "refused": 2})
        self.assertEqual(endings(waiting), {"refused": 4})
        self.assertEqual(self.up.count(), 4)         # who waited was never asked for
        self.assertTrue(all(json.loads(c.raw)["error"]["code"] == "shutting_down" for c in waiting))

    def test_a_second_signal_ends_the_time_to_drain(self):
        p = self.rig.gateway("--upstream", self.up.url + " max_concurrency=4", "--drain-ms", "60000")
        at_work, waiting = self.load()
        time.sleep(0.3)
        p.kill(signal.SIGTERM)
        until(lambda: "draining" in p.tail(), 10, "the first signal")
        p.kill(signal.SIGTERM)
        self.assertEqual(p.popen.wait(20), 0)
        self.assertEqual(endings(at_work + waiting), {"told": 2, "refused": 6})


if __name__ == "__main__":
    unittest.main()
