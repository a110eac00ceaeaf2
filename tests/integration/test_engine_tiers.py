"""Goal: prefixes outlive the pool (swap space) and the process (kv_disk), with the same answers; a killed engine leaves files that the next one
uses, damaged ones are passed over. Method: the real binary with a tiny model; cached_tokens of the usage tell what was computed."""
import json
import os
import random
import signal
import unittest

from tests.integration.rig import DATA, Rig, call
from tests.integration.test_engine_server import CHAT, metrics, user

TINY = os.path.join(DATA, "tiny-llama-mixed.gguf")


class Tiers(unittest.TestCase):
    def engine(self, rig, *extra):
        return rig.engine(TINY, extra=("--served-model-name", "t", "--max-model-len", "384", *extra))

    def ask(self, rig, i):
        text = f"question {i}: " + " ".join(f"w{i}x{k}" for k in range(20))
        body = {"model": "t", "messages": user(text), "max_tokens": 8, "temperature": 0}
        status, _, raw = call(rig.engine_port, "POST", CHAT, body)
        self.assertEqual(status, 200, raw)
        answer = json.loads(raw)
        usage = answer["usage"]
        return answer["choices"], usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"]

    def test_what_the_pool_gives_up_comes_back_from_swap_space(self):
        with Rig() as rig:
            self.engine(rig, "--kv-bytes", "600000", "--swap-space", "0.01")
            first = [self.ask(rig, i) for i in range(12)]
            again = [self.ask(rig, i) for i in range(12)]
            m = metrics(rig.engine_port)
            for i, (a, b) in enumerate(zip(first, again)):
                self.assertEqual(a[0], b[0])
                if m["deja_engine_host_blocks"] > 1000:  # else it is a build with tiny limits
                    self.assertGreaterEqual(b[1], (b[2] - 1) // 16 * 16, i)
            self.assertGreater(m["deja_engine_kv_spilled_blocks_total"], 0)
            self.assertGreater(m["deja_engine_kv_loaded_blocks_total"], 0)
            self.assertGreater(m["vllm:external_prefix_cache_hits_total"], 0)

    def test_a_restarted_engine_finds_on_disk_what_it_had(self):
        with Rig() as rig:
            disk = ("--kv-disk", os.path.join(rig.folder, "kv"), "--kv-disk-bytes", "32M")
            p = self.engine(rig, *disk)
            cold = [self.ask(rig, i) for i in range(6)]
            warm = [self.ask(rig, i) for i in range(6)]
            self.assertEqual(p.stop(), 0)
            p = self.engine(rig, *disk)
            again = [self.ask(rig, i) for i in range(6)]
            m = metrics(rig.engine_port)
            self.assertEqual([a[0] for a in again], [c[0] for c in cold])
            self.assertGreater(m["deja_engine_disk_fetched_blocks_total"], 0)
            if m["deja_engine_kv_blocks"] * 16 >= 384 * 16 * 4:  # else it is a build with tiny limits, which is not warm either
                self.assertEqual([a[1] for a in again], [w[1] for w in warm])
            self.assertTrue(all(a[1] >= a[2] // 2 for a in again), again)
            self.assertEqual(p.stop(), 0)
            # blocks of another form of KV are not looked at, and do not get lost
            p = self.engine(rig, *disk, "--kv-cache-dtype", "int8")
            self.assertEqual(self.ask(rig, 0)[1], 0)
            self.assertEqual(p.stop(), 0)
            self.engine(rig, *disk)
            self.assertEqual(self.ask(rig, 0), again[0])

    def test_an_engine_killed_in_the_middle_leaves_files_the_next_one_uses(self):
        with Rig() as rig:
            folder = os.path.join(rig.folder, "kv")
            disk = ("--kv-disk", folder, "--kv-disk-bytes", "32M")
            first = {}
            for round in range(4):
                p = self.engine(rig, *disk)
                for i in range(3 * round + 3):
                    choices, cached, n = self.ask(rig, i)
                    self.assertEqual(choices, first.setdefault(i, choices))
                p.popen.send_signal(signal.SIGKILL)
                p.popen.wait()
            self.engine(rig, *disk)
            self.assertGreaterEqual(self.ask(rig, 0)[1], 16)
            self.assertEqual(metrics(rig.engine_port)["deja_engine_disk_damaged_blocks_total"], 0)

    def test_damaged_files_cost_time_and_not_the_answer(self):
        with Rig() as rig:
            folder = os.path.join(rig.folder, "kv")
            disk = ("--kv-disk", folder, "--kv-disk-bytes", "32M")
            p = self.engine(rig, *disk)
            good = [self.ask(rig, i)[0] for i in range(6)]
            self.assertEqual(p.stop(), 0)
            rng = random.Random(3)
            for name in os.listdir(folder):
                with open(os.path.join(folder, name), "r+b") as f:
                    self.assertEqual(os.stat(f.fileno()).st_mode & 0o777, 0o600)
                    for at in range(4096, min(os.path.getsize(f.name), 4 << 20), 3000):
                        f.seek(at)
                        f.write(rng.randbytes(8))
            self.engine(rig, *disk)
            self.assertEqual([self.ask(rig, i)[0] for i in range(6)], good)
            self.assertEqual(call(rig.engine_port, "GET", "/ready")[0], 200)


if __name__ == "__main__":
    unittest.main()
