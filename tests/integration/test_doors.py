"""Goal: the Responses and Messages APIs in front of the same pipeline and cache as chat: what their own clients read, whole and streamed,
what is shared between doors and what is not, what goes upstream, and what an error looks like at each. Method: the real binary
against a scripted upstream; the public Python clients where they are installed (scripts/test_requirements.txt)."""
import base64
import http.client
import json
import os
import re
import struct
import subprocess
import sys
import time
import unittest
import uuid

from tests.integration.fake_upstream import FakeUpstream
from tests.integration.live_rig import fcall, until
from tests.integration.rig import Rig, SMOLLM2, call, model, unique

VENV = os.path.join(os.environ.get("DEJA_VENV", os.path.join(os.path.expanduser("~"), ".cache", "deja", "venv")), "bin", "python")


def has(package):
    return os.path.exists(VENV) and subprocess.run([VENV, "-c", f"import {package}"], capture_output=True, check=False).returncode == 0


def events(data):
    """[(event name, parsed data)]"""
    out = []
    for block in data.decode("utf8").split("\n\n"):
        lines = block.split("\n")
        names = [x[6:].strip() for x in lines if x.startswith("event:")]
        payload = "\n".join(x[5:].strip() for x in lines if x.startswith("data:"))
        if payload:
            out.append((names[0] if names else "", json.loads(payload)))
    return out


class DoorCase(unittest.TestCase):
    options = ()

    @classmethod
    def setUpClass(cls):
        cls.rig, cls.up = Rig(), FakeUpstream()
        try:
            cls.rig.redis()
            cls.gateway = cls.rig.gateway("--upstream", cls.up.url, "--redis", cls.rig.redis_url, "--probe-ms", "300", *cls.options)
        except BaseException:
            cls.rig.close()
            raise
        cls.port = cls.rig.port

    @classmethod
    def tearDownClass(cls):
        cls.up.close()
        cls.rig.close()

    def chat(self, q, headers=None, **fields):
        body = {"model": "m", "messages": [{"role": "user", "content": q}], "temperature": 0, "max_tokens": 64}
        body.update(fields)
        return call(self.port, "POST", "/v1/chat/completions", body, headers, 30)

    def responses(self, q, headers=None, **fields):
        body = {"model": "m", "input": q, "temperature": 0, "max_output_tokens": 64}
        body.update(fields)
        return call(self.port, "POST", "/v1/responses", body, headers, 30)

    def messages(self, q, headers=None, **fields):
        body = {"model": "m", "messages": [{"role": "user", "content": q}], "temperature": 0, "max_tokens": 64}
        body.update(fields)
        return call(self.port, "POST", "/v1/messages", body, headers, 30)


def said(door, body):
    doc = json.loads(body)
    if door == "chat":
        return doc["choices"][0]["message"]["content"]
    if door == "responses":
        return "".join(p["text"] for item in doc["output"] if item["type"] == "message" for p in item["content"])
    return "".join(b["text"] for b in doc["content"] if b["type"] == "text")


def streamed(door, body):
    if door == "chat":
        chunks = [json.loads(x[6:]) for x in body.decode().split("\n\n") if x.startswith("data: {")]
        return "".join((c["delta"].get("content") or "") for e in chunks for c in e["choices"])
    kind = "response.output_text.delta" if door == "responses" else "content_block_delta"
    return "".join(e["delta"] if door == "responses" else e["delta"].get("text", "") for n, e in events(body) if n == kind)


class Sharing(DoorCase):
    def test_one_question_has_one_entry_whichever_door_it_comes_through(self):
        doors = ("chat", "responses", "messages")
        for first in doors:
            for stream in (False, True):
                q, extra = unique("one"), {"stream": True} if stream else {}
                s, h, b = getattr(self, first)(q, **extra)
                self.assertEqual((s, h["x-deja-cache"], h["cache-status"]), (200, "miss", "deja; fwd=miss" if stream else "deja; fwd=miss; stored"), b)
                text = (streamed if stream else said)(first, b)
                self.assertIn("reply", text)
                for door in doors:
                    for again in (False, True):
                        s, h, b = getattr(self, door)(q, **({"stream": True} if again else {}))
                        self.assertEqual((s, h["x-deja-cache"], h["cache-status"]), (200, "exact", "deja; hit; detail=exact"), (first, door, b))
                        self.assertIn("age", h)
                        self.assertEqual((streamed if again else said)(door, b), text)
                        self.assertEqual("text/event-stream" in h["content-type"], again)
                self.assertEqual(self.up.count(q), 1)

    def test_system_prompts_of_all_doors_are_one_thing(self):
        q = unique("system")
        self.chat("", messages=[{"role": "system", "content": "be brief"}, {"role": "user", "content": q}])
        for door, field in (("responses", {"instructions": "be brief"}), ("messages", {"system": "be brief"}),
                            ("messages", {"system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}]})):
            s, h, b = getattr(self, door)(q, **field)
            self.assertEqual((s, h["x-deja-cache"]), (200, "exact"), b)
        for door, field in (("responses", {"instructions": "be long"}), ("messages", {"system": "be long indeed"}), ("messages", {})):
            self.assertEqual(getattr(self, door)(q, **field)[1]["x-deja-cache"], "miss", field)

    def test_whatever_changes_the_answer_keeps_entries_apart(self):
        q = unique("apart")
        self.messages(q)
        for field in ({"temperature": 0.5}, {"top_k": 7}, {"max_tokens": 65}, {"stop_sequences": ["x"]}, {"model": "n"},
                      {"thinking": {"type": "enabled", "budget_tokens": 2000}}):
            self.assertEqual(self.messages(q, **field)[1]["x-deja-cache"], "miss", field)
        self.assertEqual(self.messages(q, metadata={"user_id": "u"}, service_tier="auto", thinking={"type": "disabled"})[1]["x-deja-cache"], "exact")
        for field in ({"top_p": 0.5}, {"max_output_tokens": 66}, {"reasoning": {"effort": "low"}}, {"text": {"format": {"type": "json_object"}}}):
            self.assertEqual(self.responses(q, **field)[1]["x-deja-cache"], "miss", field)
        more = {"store": False, "truncation": "auto", "metadata": {"a": "b"}, "include": [], "background": False}
        self.assertEqual(self.responses(q, **more)[1]["x-deja-cache"], "exact")

    def test_cache_controls_work_at_every_door(self):
        for door in ("responses", "messages"):
            ask, q = getattr(self, door), unique("controls")
            s, h, b = ask(q, {"Cache-Control": "only-if-cached"})
            self.assertEqual(s, 504, b)
            self.assertIn("error", json.loads(b))
            ask(q, {"Cache-Control": "no-store"})
            self.assertEqual(ask(q)[1]["x-deja-cache"], "miss")
            self.assertEqual(ask(q)[1]["x-deja-cache"], "exact")
            self.assertEqual(ask(q, {"Cache-Control": "no-cache"})[1]["x-deja-cache"], "bypass")
            self.assertEqual(ask(q, cache={"no-cache": True})[1]["x-deja-cache"], "bypass")
            self.assertEqual(ask(q, {"x-deja-namespace": "other"})[1]["x-deja-cache"], "miss")
            self.assertNotIn("cache", self.up.last()["json"])

    def test_equal_questions_at_two_doors_share_one_call_in_flight(self):
        import concurrent.futures
        q = unique("together [[slow:700]] [[drip:50]]")
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            jobs = [pool.submit(getattr(self, door), q, **extra) for door in ("chat", "responses", "messages")
                    for extra in ({"stream": True}, {})]
            replies = [j.result() for j in jobs]
        self.assertEqual(self.up.count(q), 1)
        texts = {(streamed if "event-stream" in h["content-type"] else said)(door, b)
                 for (s, h, b), door in zip(replies, [d for d in ("chat", "responses", "messages") for _ in range(2)])}
        self.assertEqual(len(texts), 1)


class Upstream(DoorCase):
    def test_what_goes_upstream_is_a_chat_request(self):
        q = unique("tools")
        tool = {"type": "object", "properties": {"city": {"type": "string"}}}
        self.messages("", {"x-api-key": "k", "anthropic-version": "2023-06-01", "anthropic-beta": "b"}, system="s", tools=[
            {"name": "weather", "description": "d", "input_schema": tool}], tool_choice={"type": "any", "disable_parallel_tool_use": True},
            stop_sequences=["END"], metadata={"user_id": "u1"}, messages=[
            {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QQ=="}}]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": "wait"},
                                              {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Oslo"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "rain"}]}, {"type": "text", "text": q}]}])
        sent = self.up.last()
        self.assertEqual(sent["path"], "/v1/chat/completions")
        self.assertEqual(sent["headers"].get("authorization"), "Bearer k")
        for name in ("x-api-key", "anthropic-version", "anthropic-beta"):
            self.assertNotIn(name, sent["headers"])
        self.assertEqual(sent["json"]["messages"], [
            {"role": "system", "content": "s"},
            {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}}]},
            {"role": "assistant", "content": "wait", "reasoning_content": "hm",
             "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}}]},
            {"role": "tool", "tool_call_id": "t1", "content": "rain"},
            {"role": "user", "content": q}])
        chat_tool = {"type": "function", "function": {"name": "weather", "description": "d", "parameters": tool}}
        for name, want in (("tools", [chat_tool]), ("tool_choice", "required"), ("parallel_tool_calls", False), ("stop", ["END"]), ("user", "u1"), ("max_tokens", 64)):
            self.assertEqual(sent["json"].get(name), want, name)
        self.responses([{"role": "user", "content": [{"type": "input_text", "text": "look"}, {"type": "input_image", "image_url": "http://x/y.png", "detail": "low"}]},
                        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
                        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "wait", "annotations": []}]},
                        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
                        {"type": "function_call", "call_id": "c2", "name": "weather", "arguments": "{}"},
                        {"type": "function_call_output", "call_id": "c1", "output": "rain"},
                        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "sun"}]}],
                       instructions="s", tools=[{"type": "function", "name": "weather", "parameters": tool, "strict": True}],
                       tool_choice={"type": "function", "name": "weather"}, reasoning={"effort": "low"},
                       text={"format": {"type": "json_schema", "name": "n", "schema": tool, "strict": True}})
        sent = self.up.last()["json"]
        calls = [{"id": c, "type": "function", "function": {"name": "weather", "arguments": "{}"}} for c in ("c1", "c2")]
        self.assertEqual(sent["messages"], [
            {"role": "system", "content": "s"},
            {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "http://x/y.png", "detail": "low"}}]},
            {"role": "assistant", "content": "wait", "reasoning_content": "hm", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "c1", "content": "rain"}, {"role": "tool", "tool_call_id": "c2", "content": "sun"}])
        self.assertEqual(sent["response_format"], {"type": "json_schema", "json_schema": {"name": "n", "schema": tool, "strict": True}})
        self.assertEqual(sent["tool_choice"], {"type": "function", "function": {"name": "weather"}})
        self.assertEqual((sent["reasoning_effort"], sent["max_completion_tokens"]), ("low", 64))

    def test_a_client_that_leaves_in_the_middle_takes_nobody_with_it_and_the_answer_is_kept(self):
        for door, path in (("responses", "/v1/responses"), ("messages", "/v1/messages")):
            q = unique("leaves [[drip:60]] [[chunks:12]]")
            body = {"model": "m", "temperature": 0, "stream": True, **({"input": q, "max_output_tokens": 64} if door == "responses" else
                    {"messages": [{"role": "user", "content": q}], "max_tokens": 64})}
            c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
            c.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            c.getresponse().read(300)
            c.close()
            end = time.time() + 20
            while time.time() < end:
                s, h, _ = getattr(self, door)(q, {"Cache-Control": "only-if-cached"})
                if s == 200:
                    break
                time.sleep(0.1)
            self.assertEqual((s, h["x-deja-cache"]), (200, "exact"))
            self.assertEqual(self.up.count(q), 1)


class Errors(DoorCase):
    options = ("--api-keys", os.devnull)

    @classmethod
    def setUpClass(cls):
        import tempfile
        with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False) as f:
            f.write("k1 acme\n")
        cls.keys, cls.options = f.name, ("--api-keys", f.name, "--upstream-retries", "0")
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        os.unlink(cls.keys)

    def both(self, q, **fields):
        for door, headers in (("responses", {"Authorization": "Bearer k1"}), ("messages", {"x-api-key": "k1"})):
            s, h, b = getattr(self, door)(q, headers, **fields)
            yield door, s, h, b

    def test_a_bad_key_is_refused_in_the_doors_form(self):
        s, h, b = self.messages("x", {"x-api-key": "bad"})
        doc = json.loads(b)
        self.assertEqual((s, doc["type"], doc["error"]["type"]), (401, "error", "authentication_error"))
        self.assertEqual((h["request-id"], doc["request_id"]), (h["x-request-id"], h["x-request-id"]))
        s, _, b = self.responses("x", {"Authorization": "Bearer bad"})
        self.assertEqual((s, json.loads(b)["error"]["code"]), (401, "invalid_api_key"))

    def test_what_cannot_be_mapped_is_named(self):
        rows = (("responses", {"previous_response_id": "resp_1"}, "previous_response_id"), ("responses", {"background": True}, "background"),
                ("responses", {"tools": [{"type": "web_search"}]}, "tools[0].type"), ("responses", {"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
                ("responses", {"max_output_tokens": "x"}, "max_output_tokens"), ("responses", {"nonsense": 1}, "nonsense"),
                ("messages", {"max_tokens": None}, "max_tokens"), ("messages", {"mcp_servers": []}, "mcp_servers"),
                ("messages", {"stop_sequences": [1]}, "stop_sequences"), ("messages", {"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type"),
                ("messages", {"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages[0].content[0].type"),
                ("messages", {"messages": [{"role": "assistant", "content": "So"}]}, "messages"), ("messages", {"temperature": 9}, "temperature"))
        for door, field, name in rows:
            s, _, b = getattr(self, door)("x", {"Authorization": "Bearer k1"}, **field)
            doc = json.loads(b)
            self.assertEqual(s, 400, (field, b))
            self.assertTrue(doc["error"]["message"].startswith(name + ":"), (name, b))
            self.assertEqual(doc["error"]["type"], "invalid_request_error")
            if door == "responses":
                self.assertEqual(doc["error"]["param"], name)

    def test_other_methods_and_media_are_refused(self):
        for path in ("/v1/responses", "/v1/messages"):
            s, h, b = call(self.port, "GET", path, headers={"Authorization": "Bearer k1"})
            self.assertEqual((s, h["allow"]), (405, "POST"), b)
            s, _, b = call(self.port, "POST", path, b"<x/>", {"Authorization": "Bearer k1", "Content-Type": "text/xml"})
            self.assertEqual(s, 415, b)
            s, _, b = call(self.port, "POST", path, b"{", {"Authorization": "Bearer k1"})
            self.assertEqual(s, 400, b)

    def test_upstream_refusals_keep_their_status_and_words(self):
        types = {429: "rate_limit_error", 400: "invalid_request_error", 404: "not_found_error", 500: "api_error", 503: "overloaded_error"}
        for status, kind in types.items():
            for stream in (False, True):
                for door, s, h, b in self.both(unique(f"[[status:{status}]][[code:too_odd]]"), stream=stream):
                    doc = json.loads(b)
                    self.assertEqual((s, doc["error"]["message"], h["retry-after"]), (status, "as asked", "7"), (door, b))
                    self.assertEqual(doc["error"]["type"], kind if door == "messages" else "test_error")
                    if door == "responses":
                        self.assertEqual(doc["error"]["code"], "too_odd")

    def test_an_answer_that_breaks_in_the_middle_ends_with_an_error_event(self):
        for word in ("cut", "errorframe"):
            for door, s, _, b in self.both(unique(f"[[{word}]][[code:rate_limit_exceeded]]"), stream=True):
                self.assertEqual(s, 200)
                name, last = events(b)[-1]
                self.assertEqual(name, "error" if door == "messages" else "response.failed", b)
                told = last["error"] if door == "messages" else last["response"]["error"]
                self.assertTrue(told["message"])
                if word == "errorframe":
                    self.assertEqual(told["message"], "ran out of luck")
                if door == "responses":
                    self.assertEqual(last["response"]["status"], "failed")
                    self.assertEqual(told["code"], "rate_limit_exceeded" if word == "errorframe" else "server_error")

    def test_broken_whole_answers_are_errors_and_never_stored(self):
        for word in ("empty", "malformed", "html", "cut"):
            q = unique(f"[[{word}]]")
            for door, s, _, b in self.both(q):
                self.assertEqual(s, 502, (word, b))
                self.assertEqual(json.loads(b)["error"]["type"], "api_error" if door == "messages" else "upstream_error")


class Unmapped(DoorCase):
    options = ("--pass-unmapped", "yes")

    def test_what_has_no_chat_form_goes_upstream_as_it_is_where_the_operator_says_so(self):
        body = json.dumps({"model": "m", "input": unique("search"), "tools": [{"type": "web_search"}]}).encode()
        s, h, b = call(self.port, "POST", "/v1/responses", body, {"Authorization": "Bearer k", "OpenAI-Beta": "x"})
        self.assertEqual(s, 200, b)
        self.assertNotIn("x-deja-cache", h)
        sent = self.up.last()
        self.assertEqual((sent["path"], sent["raw"], sent["headers"]["openai-beta"]), ("/v1/responses", body, "x"))
        long = json.dumps({"model": "m", "max_tokens": 5, "mcp_servers": [], "messages": [{"role": "user", "content": "long " * 30000}]}).encode()
        s, h, b = call(self.port, "POST", "/v1/messages", long, {"x-api-key": "k", "anthropic-version": "2023-06-01"})
        self.assertEqual(s, 200, b)
        sent = self.up.last()
        self.assertEqual((sent["path"], sent["raw"], sent["headers"]["x-api-key"]), ("/v1/messages", long, "k"))
        s, h, b = self.responses(unique("mapped"))
        self.assertEqual((s, h["x-deja-cache"], self.up.last()["path"]), (200, "miss", "/v1/chat/completions"), b)
        self.assertEqual(self.responses("x", max_output_tokens="many")[0], 400)            # a mistake stays one


class Embeddings(DoorCase):
    def embed(self, inputs, headers=None, **fields):
        s, h, b = call(self.port, "POST", "/v1/embeddings", {"model": "m", "input": inputs, **fields}, headers, 30)
        return s, h, json.loads(b)

    def asked(self):
        return self.up.last()["json"]["input"]

    def check(self, doc, texts):
        self.assertEqual([d["index"] for d in doc["data"]], list(range(len(texts))) if doc["data"][0]["index"] == 0 else [])
        for text, d in zip(texts, doc["data"]):
            want = [sum(text.encode()) % 997 / 997 - 0.5, len(text) / 8, 1 / 3]
            got = d["embedding"]
            if isinstance(got, str):
                got = struct.unpack(f"<{len(base64.b64decode(got)) // 4}f", base64.b64decode(got))
            for a, b in zip(got, want):
                self.assertAlmostEqual(a, b, 6)
        self.assertEqual(doc["model"], "served-m")

    def test_a_body_that_is_none_is_refused_here_and_an_unknown_input_is_the_upstreams_to_judge(self):
        before = self.up.count()
        for body in (b"null", b"[]", b"{", b"", b'{"model":"m","input":"a","dimensions":-1}', b'{"model":"m","input":"a","model":"n"}'):
            self.assertEqual(call(self.port, "POST", "/v1/embeddings", body)[0], 400, body)
        self.assertEqual(self.up.count(), before)
        call(self.port, "POST", "/v1/embeddings", {"model": "m", "input": [{"image": "x"}]})
        self.assertEqual(self.up.count(), before + 1)

    def test_only_what_is_missing_goes_upstream_and_the_order_is_the_clients(self):
        a, b, c = unique("a one"), unique("b"), unique("c three words")
        s, h, _ = self.embed([a])
        self.assertEqual((s, h["x-deja-cache"], h["x-deja-inputs"], h["cache-status"]), (200, "miss", "hits=0, total=1", "deja; fwd=miss; stored"))
        s, h, doc = self.embed([b, a, c, b])
        self.assertEqual((s, h["x-deja-cache"], h["x-deja-reason"], h["x-deja-inputs"]), (200, "miss", "partial", "hits=1, total=4"))
        self.assertEqual(self.asked(), [b, c])
        self.check(doc, [b, a, c, b])
        n = len(self.up.calls)
        for text, doc_of in (([c, a, b], None), (a, None)):
            s, h, doc = self.embed(text)
            self.assertEqual((s, h["x-deja-cache"], h["cache-status"]), (200, "exact", "deja; hit; detail=exact"))
            self.assertIn("age", h)
            self.check(doc, text if isinstance(text, list) else [text])
        self.assertEqual(doc["usage"], {"prompt_tokens": 3, "total_tokens": 3})
        s, h, doc = self.embed([a, b, c], encoding_format="base64")
        self.assertEqual(h["x-deja-cache"], "exact")
        self.assertIsInstance(doc["data"][0]["embedding"], str)
        self.check(doc, [a, b, c])
        self.assertEqual(doc["usage"]["prompt_tokens"], 3 + 2 + 4)
        self.assertEqual(len(self.up.calls), n)

    def test_what_changes_a_vector_keeps_it_apart_and_what_does_not_does_not(self):
        q = unique("apart")
        self.embed(q, encoding_format="base64")
        self.assertEqual(self.embed(q, user="u", encoding_format="float")[1]["x-deja-cache"], "exact")
        for fields, headers in (({"dimensions": 3}, None), ({"model": "n"}, None), ({"task": "query"}, None),
                                ({}, {"Authorization": "Bearer other"}), ({}, {"x-deja-namespace": "n"})):
            self.assertEqual(self.embed(q, headers, **fields)[1]["x-deja-cache"], "miss", (fields, headers))
        tokens = [3, 1, uuid.uuid4().int % 100000]
        self.assertEqual(self.embed(tokens)[1]["x-deja-cache"], "miss")
        self.assertEqual(self.embed([tokens, [7]])[1]["x-deja-inputs"], "hits=1, total=2")

    def test_controls_errors_and_odd_forms(self):
        q = unique("controls")
        self.assertEqual(self.embed(q, {"Cache-Control": "only-if-cached"})[0], 504)
        self.embed(q, {"Cache-Control": "no-store"})
        self.assertEqual(self.embed(q, {"Cache-Control": "no-cache"})[1]["x-deja-cache"], "bypass")
        self.assertEqual(self.embed(q)[1]["x-deja-cache"], "exact")
        self.assertEqual(self.embed(q, {"x-deja-cache": "bypass"})[1]["x-deja-cache"], "bypass")
        s, h, doc = self.embed([q, unique("[[status:429]]")])
        self.assertEqual((s, doc["error"]["message"], h["retry-after"]), (429, "as asked", "7"))
        self.assertEqual(self.embed([{"text": "for a model of pictures"}])[0], 200)       # not ours to judge
        self.assertEqual(self.up.last()["json"]["input"], [{"text": "for a model of pictures"}])
        s, h, _ = call(self.port, "GET", "/v1/embeddings")
        self.assertEqual((s, h["allow"]), (405, "POST"))

    def test_a_long_list_is_put_together_right(self):
        texts = [unique(f"text {i}") for i in range(700)]
        s, h, doc = self.embed(texts)
        self.assertEqual((s, h["x-deja-inputs"]), (200, "hits=0, total=700"))
        more = [unique(f"more {i}") for i in range(700)]
        mixed = [t for pair in zip(more, texts) for t in pair]
        s, h, doc = self.embed(mixed)
        self.assertEqual((s, h["x-deja-inputs"]), (200, "hits=700, total=1400"))
        self.assertEqual(self.asked(), more)
        self.check(doc, mixed)
        s, h, doc = self.embed(mixed)
        self.assertEqual((s, h["x-deja-cache"]), (200, "exact"))
        self.check(doc, mixed)

    def test_a_client_that_leaves_breaks_nothing(self):
        for i in range(5):
            c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
            c.request("POST", "/v1/embeddings", json.dumps({"model": "m", "input": [unique(str(n)) for n in range(1500)]}), {"Content-Type": "application/json"})
            time.sleep(i * 0.02)
            c.close()
        self.assertEqual(self.embed(unique("after"))[0], 200)


class Limits(DoorCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        said = fcall(cls.rig, "deja_config_set", "limit_tokens_per_min", "300")
        cls.version = int(re.match(r"version (\d+)", said)[1])
        until(lambda: f"settings in force version={cls.version} " in cls.gateway.tail(1 << 20), 10, "the setting")

    def test_a_limit_is_told_in_each_doors_names(self):
        s, h, b = self.messages(unique("limited"), {"x-api-key": "limits-a"})
        self.assertEqual((s, h["anthropic-ratelimit-tokens-limit"]), (200, "300"), b)
        self.assertIn("anthropic-ratelimit-tokens-remaining", h)
        self.assertRegex(h["anthropic-ratelimit-tokens-reset"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        s, h, b = self.messages(unique("too much"), {"x-api-key": "limits-a"}, max_tokens=290)
        self.assertEqual((s, json.loads(b)["error"]["type"]), (429, "rate_limit_error"), b)
        self.assertIn("anthropic-ratelimit-tokens-limit", h)
        s, h, b = self.responses(unique("too much"), {"Authorization": "Bearer limits-b"}, max_output_tokens=299)
        self.assertEqual((s, json.loads(b)["error"]["code"]), (429, "rate_limit_exceeded"), b)

    def test_embeddings_cost_what_was_asked_of_the_upstream(self):
        key, q = {"Authorization": "Bearer limits-c"}, unique("five words are in here")
        left = []
        for inputs in ([q], [q], [q, unique("two")]):
            s, h, b = call(self.port, "POST", "/v1/embeddings", {"model": "m", "input": inputs}, key, 30)
            self.assertEqual(s, 200, b)
            left.append(float(h["x-ratelimit-remaining-tokens"]))
        self.assertGreater(left[0], 200)             # no answer was reserved
        s, h, b = call(self.port, "POST", "/v1/embeddings", {"model": "m", "input": "word " * 2000}, key, 30)
        self.assertEqual(s, 429, b)


class CountTokens(DoorCase):
    def test_the_prompts_tokens_are_told_without_asking_anybody(self):
        n = len(self.up.calls)
        sizes = []
        for text in ("hi", "hi " * 500, "你好" * 500):
            s, h, b = call(self.port, "POST", "/v1/messages/count_tokens", {"model": "m", "system": "s", "messages": [{"role": "user", "content": text}]})
            self.assertEqual((s, h["x-deja-tokens"]), (200, "estimate"), b)
            sizes.append(json.loads(b)["input_tokens"])
        self.assertTrue(0 < sizes[0] < 40 < 300 < sizes[1] < 1200 and sizes[2] > 300, sizes)
        s, _, b = call(self.port, "POST", "/v1/messages/count_tokens", {"model": "m", "messages": []})
        self.assertEqual((s, json.loads(b)["type"]), (400, "error"))
        s, h, b = call(self.port, "GET", "/v1/messages/count_tokens")
        self.assertEqual((s, h["allow"], json.loads(b)["type"]), (405, "POST", "error"))
        self.assertEqual(len(self.up.calls), n)


OPENAI_CLIENT = r"""
import sys, openai, httpx
c = openai.OpenAI(base_url=sys.argv[1], api_key="k", max_retries=0)
r = c.responses.create(model="m", input="whole one", instructions="brief", temperature=0, max_output_tokens=64)
assert r.output_text.startswith("reply") and r.status == "completed" and r.usage.input_tokens == 5 and r.usage.output_tokens == 3, r
assert r.id.startswith("resp_") and r.output[0].id.startswith("msg_") and r.instructions == "brief"
kinds, text = [], ""
for ev in c.responses.create(model="m", input="streamed", stream=True, temperature=0):
    kinds.append(ev.type)
    assert ev.sequence_number == len(kinds) - 1
    text += ev.delta if ev.type == "response.output_text.delta" else ""
assert kinds[:4] == ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"], kinds
assert kinds[-4:] == ["response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed"], kinds
assert ev.response.output_text == text and ev.response.usage.total_tokens == 8
for again in range(2):
    with c.responses.stream(model="m", input="[[think:so it is]] helper", temperature=0) as s:
        for ev in s: pass
        final = s.get_final_response()
    assert [o.type for o in final.output] == ["reasoning", "message"] and final.output[0].content[0].text == "so it is", final
    tools = [{"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}, "strict": True}]
    with c.responses.stream(model="m", input="[[tools]] call", tools=tools, temperature=0) as s:
        args = "".join(ev.delta for ev in s if ev.type == "response.function_call_arguments.delta")
        final = s.get_final_response()
    call = final.output[0]
    assert (call.type, call.name, call.arguments, call.call_id) == ("function_call", "weather", args, "call_1") and args == '{"city":"Oslo"}', final
    whole = c.responses.create(model="m", input="[[tools]] call", tools=tools, temperature=0)
    assert whole.output[0].arguments == args
r = c.responses.create(model="m", input="[[finish:length]] long", temperature=0)
assert r.status == "incomplete" and r.incomplete_details.reason == "max_output_tokens" and r.output[0].status == "incomplete", r
last = [ev for ev in c.responses.create(model="m", input="[[finish:length]] long", stream=True, temperature=0)][-1]
assert last.type == "response.incomplete" and last.response.status == "incomplete"
try:
    c.responses.create(model="m", input="x", background=True)
    raise SystemExit("not refused")
except openai.BadRequestError as e:
    assert e.param == "background", e
for again in range(2):
    one = c.embeddings.create(model="m", input=["by the client", "and its helper"])
    two = c.embeddings.create(model="m", input="and its helper", encoding_format="float")
    assert len(one.data) == 2 and all(abs(a - b) < 1e-6 for a, b in zip(one.data[1 if one.data[1].index == 1 else 0].embedding, two.data[0].embedding))
    assert one.usage.prompt_tokens == 6 and two.usage.prompt_tokens == 3, (one.usage, two.usage)
raw = c.responses.with_raw_response.create(model="m", input="whole one", instructions="brief", temperature=0, max_output_tokens=64)
assert raw.headers["x-deja-cache"] == "exact"
print("client ok")
"""

ANTHROPIC_CLIENT = r"""
import sys, anthropic
c = anthropic.Anthropic(base_url=sys.argv[1].removesuffix("/v1"), api_key="k", max_retries=0)
user = lambda text: [{"role": "user", "content": text}]
m = c.messages.create(model="m", max_tokens=64, system="brief", messages=user("whole one"))
assert m.content[0].text.startswith("reply") and m.stop_reason == "end_turn" and m.id.startswith("msg_"), m
assert (m.usage.input_tokens, m.usage.output_tokens) == (5, 3)
tools = [{"name": "weather", "description": "d", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}]
for again in range(2):
    with c.messages.stream(model="m", max_tokens=64, messages=user("[[think:so it is]] streamed")) as s:
        text = "".join(s.text_stream)
        final = s.get_final_message()
    assert [b.type for b in final.content] == ["thinking", "text"] and final.content[1].text == text and final.content[0].thinking == "so it is", final
    assert final.usage.output_tokens == 3 and final.usage.input_tokens == 5 and final.stop_reason == "end_turn", final
    with c.messages.stream(model="m", max_tokens=64, tools=tools, messages=user("[[tools]] call")) as s:
        final = s.get_final_message()
    use = final.content[0]
    assert (use.type, use.name, use.input, use.id, final.stop_reason) == ("tool_use", "weather", {"city": "Oslo"}, "call_1", "tool_use"), final
    whole = c.messages.create(model="m", max_tokens=64, tools=tools, messages=user("[[tools]] call"))
    assert whole.content[0].input == use.input and whole.stop_reason == "tool_use"
assert c.messages.count_tokens(model="m", messages=user("how many?")).input_tokens > 2
m = c.messages.create(model="m", max_tokens=64, messages=user("[[finish:length]] long"))
assert m.stop_reason == "max_tokens"
raw = c.messages.with_raw_response.create(model="m", max_tokens=64, system="brief", messages=user("whole one"))
assert raw.headers["x-deja-cache"] == "exact" and raw.headers["request-id"]
for text, kind in (("[[status:429]]", anthropic.RateLimitError), ("[[status:400]]", anthropic.BadRequestError), ("[[status:500]]", anthropic.InternalServerError)):
    try:
        c.messages.create(model="m", max_tokens=64, messages=user(text))
        raise SystemExit("no error for " + text)
    except kind as e:
        assert "as asked" in str(e), e
try:
    with c.messages.stream(model="m", max_tokens=64, messages=user("[[errorframe]] x")) as s:
        s.get_final_message()
    raise SystemExit("no error in the stream")
except anthropic.APIError as e:
    assert "ran out of luck" in str(e), e
print("client ok")
"""


class Clients(DoorCase):
    def client(self, code):
        r = subprocess.run([VENV, "-c", code, f"http://127.0.0.1:{self.port}/v1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           timeout=120, text=True, check=False)
        self.assertIn("client ok", r.stdout)

    @unittest.skipUnless(has("openai"), "the openai client is not installed (no network?)")
    def test_the_responses_client_reads_everything(self):
        self.client(OPENAI_CLIENT)

    @unittest.skipUnless(has("anthropic"), "the anthropic client is not installed (no network?)")
    def test_the_messages_client_reads_everything(self):
        self.client(ANTHROPIC_CLIENT)


@unittest.skipUnless(model(SMOLLM2), "no model file")
class RealEngine(unittest.TestCase):
    def test_a_real_model_answers_through_every_door_from_one_entry(self):
        with Rig() as rig:
            rig.engine(model(SMOLLM2))
            rig.gateway("--engine-url", f"http://127.0.0.1:{rig.engine_port}")
            name = json.loads(call(rig.port, "GET", "/v1/models")[2])["data"][0]["id"]
            s, h, b = call(rig.port, "POST", "/v1/messages", {"model": name, "max_tokens": 8, "temperature": 0, "stream": True, "system": "Be brief.",
                                                              "messages": [{"role": "user", "content": "Name a colour."}]}, timeout=120)
            self.assertEqual((s, h["x-deja-cache"]), (200, "miss"), b)
            text = streamed("messages", b)
            self.assertTrue(text)
            last = dict(events(b))["message_delta"]
            self.assertGreater(last["usage"]["output_tokens"], 0)
            counted = None
            for _ in range(100):                        # the tokenizer comes from the engine
                s, h, b = call(rig.port, "POST", "/v1/messages/count_tokens", {"model": name, "system": "Be brief.", "messages": [
                    {"role": "user", "content": "Name a colour."}]})
                counted = json.loads(b)["input_tokens"]
                if h["x-deja-tokens"] == "exact":
                    break
                time.sleep(0.1)
            self.assertEqual((h["x-deja-tokens"], counted), ("exact", last["usage"]["input_tokens"] + last["usage"]["cache_read_input_tokens"]))
            # cut at eight tokens: such an answer is not stored, a whole one is
            ask = {"model": name, "max_output_tokens": 200, "temperature": 0, "instructions": "Be brief.", "input": "Say hello."}
            s, h, b = call(rig.port, "POST", "/v1/responses", ask, timeout=120)
            self.assertEqual((s, h["x-deja-cache"]), (200, "miss"), b)
            doc = json.loads(b)
            if doc["status"] != "completed":
                self.skipTest("the model did not come to an end")
            s, h, again = call(rig.port, "POST", "/v1/chat/completions", {"model": name, "max_tokens": 200, "temperature": 0, "messages": [
                {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say hello."}]}, timeout=120)
            self.assertEqual((s, h["x-deja-cache"]), (200, "exact"), again)
            self.assertEqual(said("chat", again), said("responses", b))


if __name__ == "__main__":
    sys.exit(unittest.main())
