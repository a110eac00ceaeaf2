"""Goal: the whole system answers real questions with real weights: SmolLM2 chat, MiniLM embeddings, real Redis, the `openai` client.
Method: the sanitizer build with short answers; what a semantic hit, a refusal and a stream look like from outside. Skipped, with the
reason, where the weights or the client are not there."""
import json
import os
import subprocess
import sys
import time
import unittest

from tests.integration.rig import BIN, MINILM, ROOT, SMOLLM2, Rig, ask, model

VENV = os.path.join(os.environ.get("DEJA_VENV", "/nonexistent"), "bin", "python")
CLIENT = r'''
import sys, openai
c = openai.OpenAI(base_url=sys.argv[1], api_key="k", max_retries=0, timeout=120)
m = c.models.list().data[0].id
ask = dict(model=m, messages=[{"role": "user", "content": "Reply with the single word: yes"}], max_tokens=6, temperature=0)
a = c.chat.completions.create(**ask)
assert a.choices[0].message.content and a.usage.prompt_tokens > 5, a
s = c.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True})
text, usage = "", None
for x in s:
    text += (x.choices[0].delta.content or "") if x.choices else ""
    usage = x.usage or usage
assert text == a.choices[0].message.content, (text, a)
assert usage.completion_tokens == a.usage.completion_tokens, (usage, a.usage)
try:
    c.chat.completions.create(model="no-such-model", messages=ask["messages"])
    raise SystemExit("an unknown model was accepted")
except openai.NotFoundError as e:
    assert e.code == "model_not_found", e
e = c.embeddings.create(model=c.models.list().data[-1].id, input=["How do I reset my password?"])
assert len(e.data[0].embedding) == 384
print("client ok")
'''


@unittest.skipUnless(model(SMOLLM2) and model(MINILM), "SmolLM2 and MiniLM are not in the model cache (no network?)")
class Real(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig = Rig()
        try:
            cls.rig.redis()
            cls.rig.engine(model(SMOLLM2), model(MINILM), seconds=240)
            cls.rig.gateway("--engine-url", f"http://127.0.0.1:{cls.rig.engine_port}", "--redis", cls.rig.redis_url, "--embed-model",
                            model(MINILM), "--cache-embed-deadline-ms", "10000")   # the sanitizer build embeds slowly
        except BaseException:
            cls.rig.close()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.rig.close()

    def ask(self, text, **fields):
        # a stop string ends the answer early, so that it is complete and may be kept
        status, headers, body = ask(self.rig.port, text, max_tokens=40, stop=[" ", ",", "."], **fields)
        self.assertEqual(status, 200, body)
        return headers, json.loads(body)["choices"][0]["message"]["content"]

    def semantic(self, port, text):
        """Asks, storing nothing, until the stored question's vector is there; the last headers and answer."""
        end = time.time() + 60
        while True:
            status, headers, body = ask(port, text, {"cache-control": "no-store"}, max_tokens=40, stop=[" ", ",", "."])
            self.assertEqual(status, 200, body)
            if headers["x-deja-cache"] != "miss" or time.time() > end:
                self.assertEqual(headers["x-deja-cache"], "semantic", (text, headers["x-deja-reason"]))
                return headers, json.loads(body)["choices"][0]["message"]["content"]
            time.sleep(0.2)

    def test_miss_then_exact_then_semantic_and_a_near_question_is_refused(self):
        headers, first = self.ask("How do I reset my password?")
        self.assertEqual(headers["x-deja-cache"], "miss")
        headers, again = self.ask("How do I reset my password?")
        self.assertEqual((headers["x-deja-cache"], again), ("exact", first))
        headers, reworded = self.semantic(self.rig.port, "How can I reset my password?")
        self.assertEqual(reworded, first, headers)
        for near in ("How do I reset my username?", "How do I not reset my password?", "How do I reset my 2 passwords?"):
            headers, _ = self.ask(near)
            self.assertEqual(headers["x-deja-cache"], "miss", near)
            self.assertTrue(headers["x-deja-reason"].startswith("guard:"), (near, headers["x-deja-reason"]))

    @unittest.skipUnless(os.path.exists(VENV), "the openai client is not installed (no network?)")
    def test_the_openai_client_works_unchanged(self):
        r = subprocess.run([VENV, "-c", CLIENT, f"http://127.0.0.1:{self.rig.port}/v1"], stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, timeout=400, text=True, check=False)
        self.assertIn("client ok", r.stdout)

    def test_embeddings_may_come_from_another_server(self):
        # the engine serves MiniLM on /v1/embeddings; a second gateway takes its vectors from there
        with Rig() as other:
            url = f"http://127.0.0.1:{self.rig.engine_port}/v1#all-minilm-l6-v2"
            other.gateway("--engine-url", f"http://127.0.0.1:{self.rig.engine_port}", "--embed-model", url, "--cache-embed-deadline-ms",
                          "10000", "--cache-threshold", "0.8")
            for text in ("How do I reset my password?", "How do I reset my username?"):
                status, headers, body = ask(other.port, text, max_tokens=40, stop=[" ", ",", "."])
                self.assertEqual((status, headers["x-deja-cache"]), (200, "miss"), (text, headers["x-deja-reason"], body))
                self.semantic(other.port, text.replace("do", "can"))

    def test_an_embedding_server_that_is_not_there_is_said_at_the_start(self):
        r = subprocess.run([BIN, "gateway", "--port", "0", "--engine-url", "http://127.0.0.1:9", "--embed-model", "http://127.0.0.1:9/v1#m"],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, text=True, check=False)
        self.assertNotEqual(r.returncode, 0)
        self.assertIn("127.0.0.1", r.stdout)

    def example(self, *argv):
        r = subprocess.run([*argv, f"http://127.0.0.1:{self.rig.port}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300,
                           text=True, check=False)
        self.assertEqual(r.returncode, 0, r.stdout)
        return r.stdout

    def test_the_examples_show_what_they_say(self):
        text = self.example("bash", os.path.join(ROOT, "docs", "examples", "chat.sh")).lower()
        self.assertIn("x-deja-cache: exact", text)
        if os.path.exists(VENV):
            text = self.example(VENV, os.path.join(ROOT, "docs", "examples", "openai_client.py"))
            first, second, stream = text.splitlines()
            self.assertTrue(second.startswith("exact | "), text)
            self.assertEqual(first.split(" | ")[1], second.split(" | ")[1])
            self.assertEqual(stream.split(" | ")[1], second.split(" | ")[1])


if __name__ == "__main__":
    sys.exit(unittest.main())
