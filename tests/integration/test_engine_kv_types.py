"""Goal: KV in every form (f16, int8, k8v4) says the same whatever the engine does beside it: prefix reuse, preemption by swap and by
recompute, the host and the disk tier, several choices of one prompt, guesses ahead, adapters. Method: the real binary; each form's answers
from a roomy engine with all of it off, one request at a time, against those of engines that are squeezed, many requests at a time."""
import json
import os
import threading
import unittest

from tests.integration.rig import DATA, Rig, call
from tests.integration.test_engine_server import TEXT, metrics

LLAMA = os.path.join(DATA, "tiny-llama-f32.gguf")
ADAPTERS = [x for name in "ab" for x in ("--lora", f"{name}={os.path.join(DATA, f'tiny-lora-{name}.gguf')}:4")]
PLAIN = ("--enable-prefix-caching", "no", "--swap-space", "0", "--speculative-config", "off", "--kv-bytes", "64M", "--max-num-seqs", "1")
GUESS = '{"method":"ngram","num_speculative_tokens":6,"always":true,"branches":%d}'
SQUEEZED = {  # name: options, series that must have moved
    "swapped": (("--kv-bytes", "POOL", "--swap-space", "0.02"), "vllm:num_preemptions_total"),
    "recomputed": (("--kv-bytes", "POOL", "--swap-space", "0"), "vllm:num_preemptions_total"),
    "disk": (("--kv-bytes", "POOL", "--swap-space", "0.001", "--kv-disk", "FOLDER", "--kv-disk-bytes", "64M"), "deja_engine_kv_spilled_blocks_total"),
    "guessed": (("--speculative-config", GUESS % 1), "vllm:spec_decode_num_draft_tokens_total"),
    "trees": (("--speculative-config", GUESS % 3, "--kv-bytes", "POOL"), "vllm:spec_decode_num_draft_tokens_total"),
}


def requests():
    """Shared beginnings, several choices, adapters, drawn and greedy, in one fixed list."""
    begin = "one two three one two three one two three, said the first of them to the second; " * 2
    out = []
    for i in range(14):
        out.append({"model": ("t", "t", "a", "b")[i % 4], "prompt": begin[:60 + 37 * (i % 5)] + f"{i % 7} one two", "n": (1, 3, 1, 2)[i // 2 % 4],
                    "max_tokens": 60 + 20 * (i % 4), "ignore_eos": True, "temperature": (0, 0.9)[i % 2], "seed": i, "logprobs": 2})
    return out


def answer(port, body):
    status, _, raw = call(port, "POST", TEXT, body, timeout=120)
    assert status == 200, raw
    return [(c["text"], c["finish_reason"], c["logprobs"]["token_logprobs"]) for c in json.loads(raw)["choices"]]


def at_once(port, bodies):
    got = [None] * len(bodies)

    def run(i):
        got[i] = answer(port, bodies[i])
    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(bodies))]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    return got


class KvTypes(unittest.TestCase):
    def check(self, dtype, pool):
        bodies = requests()
        with Rig() as rig:
            def engine(*extra):
                return rig.engine(LLAMA, extra=("--served-model-name", "t", "--max-model-len", "320", "--kv-cache-dtype", dtype, *ADAPTERS, *extra))
            p = engine(*PLAIN)
            want = [answer(rig.engine_port, b) for b in bodies]
            p.stop()
            for name, (options, moved) in SQUEEZED.items():
                options = [{"POOL": str(pool), "FOLDER": os.path.join(rig.folder, "kv")}.get(o, o) for o in options]
                p = engine("--max-num-seqs", "12", *options)
                for turn in range(2):
                    got = at_once(rig.engine_port, bodies)
                    for i, (w, g) in enumerate(zip(want, got)):
                        self.assertEqual(g, w, (dtype, name, turn, bodies[i]))
                self.assertGreater(metrics(rig.engine_port)[moved], 0, (dtype, name))
                self.assertEqual(p.stop(), 0)
                if name == "disk":  # what was kept is read by the next one
                    p = engine("--max-num-seqs", "12", *options)
                    self.assertEqual(at_once(rig.engine_port, bodies), want, (dtype, "restarted"))
                    self.assertGreater(metrics(rig.engine_port)["deja_engine_disk_fetched_blocks_total"], 0)
                    p.stop()

    def test_f16(self):
        self.check("f16", 130000)

    def test_int8(self):
        self.check("int8", 80000)

    def test_k8v4(self):
        self.check("k8v4", 60000)


if __name__ == "__main__":
    unittest.main()
