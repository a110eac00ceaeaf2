"""Goal: `deja plan` tells beforehand what an engine then holds. Method: the terms of a real model; a memory that is too small, and each
of the offered ways out tried again. (`./dev bench plan` compares with what a running engine holds.)"""
import json
import os
import shlex
import subprocess
import unittest

from tests.integration.rig import BIN, DATA, SMOLLM2, model

TINY = os.path.join(DATA, "tiny-llama-mixed.gguf")


def plan(*args):
    return subprocess.run([BIN, "plan", "--no-self-test", *args], capture_output=True, text=True, timeout=60, check=False)


class Plan(unittest.TestCase):
    def test_the_terms_of_a_real_model(self):
        path = model(SMOLLM2)
        if not path:
            self.skipTest("needs SmolLM2 in the model cache")
        told = json.loads(plan("--model", path, "--json", "--max-model-len", "1024", "--kv-bytes", str(64 << 20), "--max-num-seqs", "4").stdout)
        self.assertTrue(told["fits"])
        self.assertEqual(told["kv_bytes_per_token"], 23040)            # 30 layers, 3 heads of 64, K and V in 2 bytes
        self.assertEqual(told["kv_tokens"], (64 << 20) // 23040 // 16 * 16)
        self.assertAlmostEqual(told["weights_bytes"] / os.path.getsize(path), 1, delta=0.03)
        parts = sum(v for k, v in told.items() if k.endswith("_bytes") and k not in ("total_bytes", "memory_bytes"))
        self.assertEqual(parts, told["total_bytes"])

    def ways_out(self, *options):
        """How many there are, each tried with the same options."""
        r = plan("--model", TINY, "--memory", "24000000", "--kv-bytes", "40000000", *options)
        self.assertEqual(r.returncode, 1, r.stdout + r.stderr)
        self.assertIn("does not fit", r.stdout)
        ways = [line.split("   (")[0].strip() for line in r.stdout.splitlines() if line.startswith("  --kv-bytes")]
        for way in ways:
            again = plan("--model", TINY, "--memory", "24000000", *options, *shlex.split(way))
            self.assertEqual(again.returncode, 0, way + "\n" + again.stdout + again.stderr)
        return len(ways)

    def test_every_way_out_it_offers_fits(self):
        self.assertEqual(self.ways_out(), 3)
        self.assertEqual(self.ways_out("--max-num-seqs", "4", "--max-num-batched-tokens", "16"), 3)   # where little is left to lower
        self.assertEqual(self.ways_out("--kv-cache-dtype", "int8", "--swap-space", "0"), 3)
        self.assertEqual(self.ways_out("--kv-cache-dtype", "k8v4", "--max-num-seqs", "1", "--max-num-batched-tokens", "16"), 1)

    def test_a_model_that_never_fits_is_told_so(self):
        r = plan("--model", TINY, "--memory", "1000000")
        self.assertEqual(r.returncode, 1)
        self.assertIn("Without any KV cache and swap space", r.stdout)

    def test_wrong_options_and_files_say_what_is_wrong(self):
        for args, status, words in (((), 2, "model"), (("--model", TINY, "--memory", "x"), 2, "number of bytes"),
                                    (("--model", "/nowhere.gguf"), 1, "/nowhere.gguf"), (("--model", TINY, "--max-model-len", "9999"), 1, "9999")):
            r = plan(*args)
            self.assertEqual(r.returncode, status, r.stderr)
            self.assertIn(words, r.stderr)

    def test_the_self_test_measures_something(self):
        r = subprocess.run([BIN, "plan", "--model", TINY, "--json"], capture_output=True, text=True, timeout=120, check=False)
        told = json.loads(r.stdout)
        self.assertGreater(told["read_bytes_per_s"], 1e6)
        self.assertGreater(told["macs_per_s"], 1e5)


if __name__ == "__main__":
    unittest.main()
