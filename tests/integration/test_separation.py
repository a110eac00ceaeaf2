"""Goal: whatever can change the right answer keeps entries apart, exactly and by meaning, and whatever cannot does not. Method: one table of pairs
of requests through a real gateway with an encoder and Redis, a scripted upstream that counts.

Faults of other caches that were reported in public, and the test that holds each off here:
  every question gets the first stored answer              test_unlike_questions_get_answers_of_their_own
  a threshold read as a distance                           test_unlike_questions_get_answers_of_their_own (0.9 for both)
  one number with two meanings on two paths                test_live.Gateways, unit test_knobs
  antonyms and negations hit                               test_real, unit test_guard_pairs
  near numbers hit, score not visible                      test_gateway.Rewordings, test_unlike_questions_get_answers_of_their_own
  no way to remove one wrong hit                           test_live.Gateways, test_operations
  system prompt, tools, response_format not in the match   test_what_separates_entries
  no identity of the caller in the key                     test_what_separates_entries, test_gateway.Keys
  a stream gets stored JSON, or is never stored            test_streamed_and_plain_share_an_entry, test_gateway.Caching
  content given as parts                                   test_what_does_not_separate_entries
  models share, no-cache ignored                           test_what_separates_entries, test_gateway.Caching
  max_tokens, logit_bias, seed not in the key              test_what_separates_entries
  order of JSON keys in the key                            test_what_does_not_separate_entries
  the request as Redis key                                 test_keys_in_redis_are_short_whatever_the_prompt
  signs in model names break filters                       test_a_model_name_with_signs_is_cached_like_any_other
  a frozen Redis hangs everything                          test_gateway.BrokenRedis"""
import json
import os
import subprocess
import time
import unittest

from tests.integration.fake_upstream import FakeUpstream
from tests.integration.rig import DATA, Rig, call

QUESTION = "what are your opening hours please"
TOOL = [{"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}]
IMAGE = [{"type": "text", "text": QUESTION}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}]


def messages(text=QUESTION, system=None, before=()):
    return ([{"role": "system", "content": system}] if system else []) + list(before) + [{"role": "user", "content": text}]


EARLIER = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi, how can I help?"}]
OTHER = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "we are closed this week"}]
CALLED = [{"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}]}]


def result(text):
    return [{"role": "user", "content": "hm"}] + CALLED + [{"role": "tool", "tool_call_id": "c1", "content": text}]


# title, first, second: fields of the body, or (fields, headers)
APART = [
    ("model", {}, {"model": "m2"}),
    ("tenant", ({}, {"Authorization": "Bearer a"}), ({}, {"Authorization": "Bearer b"})),
    ("namespace", ({}, {"x-deja-namespace": "a"}), ({}, {"x-deja-namespace": "b"})),
    ("system prompt", {"messages": messages(system="Be brief.")}, {"messages": messages(system="Be thorough.")}),
    ("system prompt or none", {}, {"messages": messages(system="Be brief.")}),
    ("earlier turn", {"messages": messages(before=EARLIER)}, {"messages": messages(before=OTHER)}),
    ("earlier turn or none", {}, {"messages": messages(before=EARLIER)}),
    ("tool result", {"messages": messages(before=result("9:00"))}, {"messages": messages(before=result("17:00"))}),
    ("tools", {}, {"tools": TOOL}),
    ("tool choice", {"tools": TOOL}, {"tools": TOOL, "tool_choice": "none"}),
    ("response_format", {}, {"response_format": {"type": "json_object"}}),
    ("image", {}, {"messages": [{"role": "user", "content": IMAGE}]}),
    ("temperature", {"temperature": 0}, {"temperature": 0.9}),
    ("temperature or none", {}, {"temperature": 0.2}),
    ("n", {}, {"n": 2}),
    ("seed", {"seed": 1}, {"seed": 2}),
    ("max_tokens", {"max_tokens": 10}, {"max_tokens": 20}),
    ("logit_bias", {}, {"logit_bias": {"5": 1}}),
    ("stop", {}, {"stop": "x"}),
    ("top_p", {}, {"top_p": 0.5}),
    ("unknown field", {}, {"thinking_budget": 7}),
    ("value of an unknown field", {"thinking_budget": 7}, {"thinking_budget": 8}),
    ("name of the speaker", {}, {"messages": [{"role": "user", "content": QUESTION, "name": "bob"}]}),
]
TOGETHER = [
    ("stream", {}, {"stream": True}),
    ("user", {}, {"user": "u1"}),
    ("metadata", {}, {"metadata": {"a": "b"}}),
    ("parts", {}, {"messages": [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}]}),
    ("high temperature", {"temperature": 1.7}, {"temperature": 1.7}),
    ("stop in a list", {"stop": "x"}, {"stop": ["x"]}),
    ("1 and 1.0", {"temperature": 1}, {"temperature": 1.0}),
]


class Separation(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig, cls.fake = Rig(), FakeUpstream()
        cls.addClassCleanup(cls.rig.close)
        cls.addClassCleanup(cls.fake.close)
        cls.rig.redis()
        cls.rig.gateway("--upstream", cls.fake.url, "--redis", cls.rig.redis_url, "--embed-model", os.path.join(DATA, "tiny-bert.gguf"),
                        "--cache-redis-deadline-ms", "2000", "--cache-embed-deadline-ms", "5000")

    def setUp(self):
        subprocess.run(["redis-cli", "-s", self.rig.redis_socket, "FCALL", "deja_forget", "1", "{deja}", "all"], check=True, stdout=subprocess.DEVNULL)

    def send(self, side, ns):
        fields, headers = side if isinstance(side, tuple) else (side, {})
        body = dict({"model": "m", "messages": messages()}, **fields)
        status, got, text = call(self.rig.port, "POST", "/v1/chat/completions", body, dict({"x-deja-namespace": ns}, **headers))
        self.assertEqual(status, 200, text)
        return got

    def pair(self, title, first, second):
        """What the second of two requests got, once an equal first one is stored and its question is found by other wordings too."""
        ns = "".join(c if c.isalnum() else "-" for c in title)
        end = time.time() + 15
        self.send(first, ns)
        while self.send(first, ns)["x-deja-cache"] != "exact":
            self.assertLess(time.time(), end, title)
            time.sleep(0.02)
        time.sleep(0.05)
        return self.send(second, ns)

    def test_what_separates_entries(self):
        for title, first, second in APART:
            for a, b in ((first, second), (second, first))[:1 if title == "namespace" else 2]:
                with self.subTest(title):
                    got = self.pair(title + (" back" if a is second else ""), a, b)
                    self.assertEqual(got["x-deja-cache"], "miss", (title, got.get("x-deja-reason")))

    def test_what_does_not_separate_entries(self):
        for title, first, second in TOGETHER:
            with self.subTest(title):
                self.assertEqual(self.pair(title, first, second)["x-deja-cache"], "exact")
        raw = '{ "messages" : [ {"content": "in what order?", "role": "user"} ],\n "temperature": 0.50, "model": "m" }'
        plain = {"model": "m", "temperature": 0.5, "messages": [{"role": "user", "content": "in what order?"}]}
        call(self.rig.port, "POST", "/v1/chat/completions", plain)
        self.assertEqual(call(self.rig.port, "POST", "/v1/chat/completions", raw.encode())[1]["x-deja-cache"], "exact")

    def test_streamed_and_plain_share_an_entry(self):
        self.assertEqual(self.pair("a", {"stream": True}, {})["x-deja-cache"], "exact")
        n = self.fake.count()
        self.assertEqual(self.pair("b", {"stream": True}, {"stream": True})["x-deja-cache"], "exact")
        self.assertEqual(self.fake.count(), n + 1)

    def test_unlike_questions_get_answers_of_their_own(self):
        for headers in ({}, {"x-deja-threshold": "0.9"}):
            n, seen = self.fake.count(), set()
            for text in ("Hello world", "What is 1+1?", "What is 1+2?", "How is the weather?", "Tell me one joke"):
                r = call(self.rig.port, "POST", "/v1/chat/completions", {"model": "m", "messages": messages(text)},
                         dict({"x-deja-namespace": "unlike" + str(len(headers))}, **headers))
                self.assertEqual(r[1]["x-deja-cache"], "miss", text)
                seen.add(json.loads(r[2])["choices"][0]["message"]["content"])
                time.sleep(0.05)
            self.assertEqual((self.fake.count() - n, len(seen)), (5, 5))

    def test_keys_in_redis_are_short_whatever_the_prompt(self):
        self.pair("long", {"messages": messages("x" * 200000)}, {})
        keys = subprocess.run(["redis-cli", "-s", self.rig.redis_socket, "KEYS", "*"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
        self.assertLess(max(map(len, keys)), 128)

    def test_a_model_name_with_signs_is_cached_like_any_other(self):
        self.assertEqual(self.pair("signs", {"model": "a:b/c-d {x} @y|z"}, {"model": "a:b/c-d {x} @y|z"})["x-deja-cache"], "exact")


if __name__ == "__main__":
    unittest.main()
