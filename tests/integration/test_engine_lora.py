"""Goal: LoRA adapters as clients see them: listed, picked by name, several at once, apart in the prefix cache; and wrong ones end the start
with a sentence. Method: the real binary, the tiny llama and its tiny adapters."""
import json
import os
import re
import subprocess
import threading
import unittest

from tests.integration.rig import BIN, DATA, Rig, call

BASE = os.path.join(DATA, "tiny-llama-f32.gguf")
A, B = (os.path.join(DATA, f"tiny-lora-{x}.gguf") for x in "ab")


def text(port, model, prompt="hello there, how are you", n=16):
    status, _, raw = call(port, "POST", "/v1/completions", {"model": model, "prompt": prompt, "max_tokens": n, "temperature": 0})
    assert status == 200, raw
    answer = json.loads(raw)
    return answer["model"], answer["choices"][0]["text"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


class Lora(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig = Rig()
        cls.rig.engine(BASE, extra=("--served-model-name", "tiny", "--lora", f"one={A}:4", "--lora", f"two={B}:-6"))
        cls.port = cls.rig.engine_port

    @classmethod
    def tearDownClass(cls):
        cls.rig.close()

    def test_adapters_are_listed_with_what_they_adapt(self):
        listed = json.loads(call(self.port, "GET", "/v1/models")[2])["data"]
        self.assertEqual([(m["id"], m.get("parent")) for m in listed], [("tiny", None), ("one", "tiny"), ("two", "tiny")])
        self.assertEqual(json.loads(call(self.port, "GET", "/v1/models/two")[2])["parent"], "tiny")
        for path, status in (("/v1/models/%74w%6F", 200), ("/v1/models/two%", 404), ("/v1/models/tw%6", 404), ("/v1/models/two%00", 404)):
            self.assertEqual(call(self.port, "GET", path)[0], status, path)
        status, _, raw = call(self.port, "POST", "/v1/completions", {"model": "three", "prompt": "x"})
        self.assertEqual((status, json.loads(raw)["error"]["code"]), (404, "model_not_found"))

    def test_a_request_picks_one_by_name_and_the_answer_says_which(self):
        names = ["tiny", "one", "two"]
        alone = {name: text(self.port, name) for name in names}
        self.assertEqual({name: alone[name][0] for name in names}, {name: name for name in names})
        self.assertEqual(len({alone[name][1] for name in names}), 3, alone)
        together = {}

        def one(i):
            together[i] = text(self.port, names[i % 3])[:2]
        threads = [threading.Thread(target=one, args=(i,)) for i in range(12)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
        self.assertEqual(together, {i: alone[names[i % 3]][:2] for i in range(12)})

    def test_a_computed_prompt_is_not_shared_with_another_adapter(self):
        prompt = "the same long beginning of a question for everybody, " * 3
        for name in ("tiny", "one", "two"):
            self.assertEqual(text(self.port, name, prompt)[2], 0, name)
        for name in ("tiny", "one", "two"):
            self.assertGreater(text(self.port, name, prompt)[2], 0, name)


class Start(unittest.TestCase):
    def test_wrong_adapters_end_the_start_with_a_sentence(self):
        cases = [
            (["--lora", A], "expected NAME=FILE.gguf"),
            (["--lora", f"x={A}", "--lora", f"x={B}"], "two adapters are called x"),
            (["--lora", f"a\tb={A}"], "a name holds a control character"),
            (["--lora", f"x={A}:1e9"], r"scale 1e\+09 is not from -1000 to 1000"),
            (["--lora", f"tiny={A}"], "an adapter is called like a model"),
            (["--lora", f"x={BASE}"], "adapter x: .*this is no LoRA adapter"),
            (["--lora", f"x={os.path.join(DATA, 'tiny-lora-gemma3.gguf')}"], "the adapter is for \"gemma3\", the model is llama"),
            (["--lora", "x=/no/such.gguf"], "adapter x: /no/such.gguf"),
        ]
        for options, want in cases:
            r = subprocess.run([BIN, "engine", "--model", BASE, "--served-model-name", "tiny", "--port", "0", *options],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=60)
            self.assertIn(r.returncode, (1, 2), r.stdout)
            self.assertTrue(re.search(want, r.stdout), (want, r.stdout))


if __name__ == "__main__":
    unittest.main()
