"""Goal: an engine whose step thread hangs says so: /ready turns red with the reason while /health stays green, the age of the step is a metric, and
everything goes on once the thread does. Method: the step thread alone is stopped from outside (ptrace), in the middle of a stream."""
import ctypes
import http.client
import json
import os
import time
import unittest

from tests.integration.rig import DATA, Rig, call
from tests.integration.test_engine_server import CHAT, metrics, user

SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
WALL = 0x40000000
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def step_thread(pid):
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/comm", encoding="utf8") as f:
            if f.read().strip() == "deja-step":
                return int(tid)
    raise AssertionError("no thread is called deja-step")


class Stopped:
    """One thread of another process, stopped inside `with`."""

    def __init__(self, tid):
        self.tid = tid

    def __enter__(self):
        if libc.ptrace(SEIZE, self.tid, None, None):
            raise unittest.SkipTest(f"ptrace is not allowed here: {os.strerror(ctypes.get_errno())}")
        libc.ptrace(INTERRUPT, self.tid, None, None)
        os.waitpid(self.tid, WALL)

    def __exit__(self, *exc):
        libc.ptrace(DETACH, self.tid, None, None)


class Watchdog(unittest.TestCase):
    def ready(self):
        status, _, raw = call(self.port, "GET", "/ready")
        return status, json.loads(raw)["reason"] or ""

    def answers(self):
        try:
            return call(self.port, "GET", "/metrics", None, None, 2)[0] == 200
        except OSError:
            return False

    def wait_ready(self, want, seconds):
        end = time.time() + seconds
        while time.time() < end:
            status, reason = self.ready()
            if status == want:
                return reason
            time.sleep(0.2)
        raise AssertionError(f"/ready is not {want} after {seconds} s: {status} {reason}")

    def test_a_step_that_hangs_turns_ready_red_and_a_stream_goes_on_when_it_does(self):
        with Rig() as rig:
            p = rig.engine(os.path.join(DATA, "tiny-llama-mixed.gguf"), extra=("--served-model-name", "t", "--max-model-len", "512"))
            self.port = rig.engine_port
            body = {"model": "t", "messages": user("count"), "max_tokens": 400, "temperature": 0, "ignore_eos": True}
            whole = json.loads(call(self.port, "POST", CHAT, body)[2])["choices"][0]["message"]["content"]
            c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            c.request("POST", CHAT, json.dumps(dict(body, stream=True)), {"Content-Type": "application/json"})
            answer = c.getresponse()
            read = answer.read(300)
            for attempt in range(10):
                with Stopped(step_thread(p.popen.pid)):
                    # a step hangs while it computes; stopped while it hands over, it would hold a lock that the server needs
                    if attempt < 9 and not self.answers():
                        continue
                    reason = self.wait_ready(503, 20)
                    self.assertIn("stuck", reason)
                    self.assertEqual(call(self.port, "GET", "/health")[0], 200)
                    self.assertGreater(metrics(self.port)["deja_engine_step_age_seconds"], 3)
                    break
            self.wait_ready(200, 20)
            read += answer.read()
            frames = [f[6:] for f in read.decode().split("\n\n") if f.startswith("data: ") and "[DONE]" not in f]
            self.assertEqual("".join(json.loads(f)["choices"][0]["delta"].get("content") or "" for f in frames), whole)
            c.close()


if __name__ == "__main__":
    unittest.main()
