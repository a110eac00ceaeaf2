"""Goal: what servers publish of their KV in vLLM's form steers prompts to them: both encodings, removals, a lost batch that a replay fills,
a restart that voids everything. Method: fake upstreams beside a publisher on real ZeroMQ sockets (kv_publisher.py); x-deja-route tells
what was known. Each prompt is asked once, since asking makes the gateway expect it there."""
import json
import os
import subprocess
import sys
import unittest

from tests.integration.fake_upstream import FakeUpstream
from tests.integration.live_rig import until
from tests.integration.rig import DATA, ROOT, Rig, call
from tests.integration.test_routing import field, metric


def python_with_zmq():
    for python in (sys.executable, "/usr/bin/python3"):
        if os.path.exists(python) and not subprocess.run([python, "-c", "import zmq, msgpack"], stderr=subprocess.DEVNULL, check=False).returncode:
            return python
    return None


PYTHON = python_with_zmq()


class Publisher:
    def __init__(self):
        self.p = subprocess.Popen([PYTHON, os.path.join(ROOT, "tests", "integration", "kv_publisher.py")], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        self.events, self.replay = self.p.stdout.readline().split()[1:]
        self.number = 0

    def send(self, *events, number=None, silent=False):
        self.number = self.number if number is None else number
        self.p.stdin.write(json.dumps({"number": self.number, "events": events, "silent": silent}) + "\n")
        self.p.stdin.flush()
        assert self.p.stdout.readline() == "done\n"
        self.number += 1

    def close(self):
        self.p.stdin.close()
        self.p.wait(10)
        self.p.stdout.close()


def prompt(n):
    """64 token ids, four blocks"""
    return [3 + (n * 37 + i * i) % 300 for i in range(64)]


def stored(n, blocks=4, first=0, parent=None):
    ids = prompt(n)[16 * first:16 * (first + blocks)]
    return ["BlockStored", [n * 100 + first + i for i in range(blocks)], parent, ids, 16, None, "GPU"]


@unittest.skipUnless(PYTHON, "no python here has zmq and msgpack")
class VllmEvents(unittest.TestCase):
    def held(self, port, n):
        status, h, _ = call(port, "POST", "/v1/completions", {"model": "m", "prompt": prompt(n), "max_tokens": 1}, {"Cache-Control": "no-store, no-cache"})
        self.assertEqual(status, 200)
        return int(field(h, "target")), int(field(h, "held")), field(h, "by")

    def test_published_blocks_steer_prompts(self):
        with Rig() as rig:
            ups, pubs = [FakeUpstream(), FakeUpstream()], [Publisher(), Publisher()]
            rig.gateway("--tokenizer", os.path.join(DATA, "tiny-llama-mixed.gguf"),
                        *[x for u, p in zip(ups, pubs) for x in
                          ("--upstream", f"{u.url} kv_events=tcp://127.0.0.1:{p.events} kv_replay=tcp://127.0.0.1:{p.replay}")])
            told = lambda n: until(lambda: metric(rig.port, "deja_route_events") == n, 20, f"{n} batches")
            until(lambda: metric(rig.port, "deja_route_engines") == 2, 20, "both publishers")
            a, b = pubs
            a.send(["BlockStored", [1], None, prompt(99)[:16], 16, None, "GPU"])
            b.send(stored(1), stored(2), stored(3), stored(4))
            # the subscription may come after the first batch: the second one then makes the gateway ask for a replay
            a.send({"type": "BlockStored", "block_hashes": [{"hex": "aa" * 32}, {"hex": "bb" * 32}], "parent_block_hash": None,
                    "token_ids": prompt(5)[:32], "block_size": 16, "lora_id": None, "medium": "GPU"},
                   {"type": "BlockStored", "block_hashes": [{"hex": "cc" * 32}], "parent_block_hash": {"hex": "bb" * 32},
                    "token_ids": prompt(5)[32:48], "block_size": 16, "lora_id": None, "medium": "CPU"})
            b.send(["BlockRemoved", [203, 202], "GPU"])
            told(4)
            self.assertEqual(self.held(rig.port, 1), (1, 64, "events"))
            self.assertEqual(self.held(rig.port, 5), (0, 48, "events"))
            self.assertEqual(self.held(rig.port, 2), (1, 32, "events"))
            b.send(stored(6), silent=True)                    # lost on the way
            b.send(["BlockRemoved", [303], "GPU"])
            told(6)
            self.assertEqual(self.held(rig.port, 6), (1, 64, "events"))
            self.assertEqual(self.held(rig.port, 3), (1, 48, "events"))
            b.send(stored(7), number=0)                       # the server was started anew
            told(7)
            self.assertEqual(self.held(rig.port, 4)[1], 0)
            self.assertEqual(self.held(rig.port, 7), (1, 64, "events"))
            a.send(["AllBlocksCleared"], stored(8))
            told(8)
            self.assertEqual(self.held(rig.port, 8), (0, 64, "events"))
            a.close()
            until(lambda: metric(rig.port, "deja_route_engines") == 1, 20, "the publisher's end")
            for x in (b, *ups):
                x.close()


if __name__ == "__main__":
    unittest.main()
