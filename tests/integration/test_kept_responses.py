"""Goal: an answer of /v1/responses can be gone on from, read and deleted by who asked, at any gateway of one Redis, within bounds; such a
request is the whole conversation for cache and upstream; whoever else asks, or asks too late, is told there is none. Method: the real
binary with two gateways against a scripted upstream; the public Python client where it is installed."""
import json
import os
import signal
import subprocess
import threading
import time
import unittest

from tests.integration.fake_upstream import FakeUpstream
from tests.integration.live_rig import until
from tests.integration.rig import Rig, call, free_port, metric, unique
from tests.integration.test_doors import VENV, events, has, said

CLIENT = r"""
import sys, openai
c = openai.OpenAI(base_url=sys.argv[1], api_key="key-a", max_retries=0)
first = c.responses.create(model="m", input="client one " + sys.argv[2])
assert first.store is True and first.previous_response_id is None, first
second = c.responses.create(model="m", input="client two", previous_response_id=first.id)
assert second.previous_response_id == first.id, second
got = c.responses.retrieve(second.id)
assert (got.id, got.output_text, got.model_dump()) == (second.id, second.output_text, second.model_dump()), got
with c.responses.stream(model="m", input="client three", previous_response_id=second.id) as s:
    for e in s:
        pass
    third = s.get_final_response()
assert c.responses.retrieve(third.id).output_text == third.output_text != ""
c.responses.delete(first.id)
for call in (lambda: c.responses.retrieve(first.id), lambda: c.responses.delete(first.id)):
    try:
        call()
        raise AssertionError("it is still there")
    except openai.NotFoundError as e:
        assert e.code == "response_not_found", e
try:
    c.responses.create(model="m", input="x", previous_response_id=third.id)
    raise AssertionError("a conversation with a hole")
except openai.BadRequestError as e:
    assert (e.code, e.param) == ("previous_response_not_found", "previous_response_id") and first.id in e.message, e
print("well")
"""


class Kept(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig, cls.up = Rig(), FakeUpstream()
        cls.rig.redis()
        keys = os.path.join(cls.rig.folder, "keys")
        with open(keys, "w", encoding="utf8") as f:
            f.write("key-a a\nkey-b b\n")
        cls.ports = []
        for name in ("one", "two"):
            cls.rig.gateway("--upstream", cls.up.url, "--redis", cls.rig.redis_url, "--api-keys", keys, "--responses-bytes-max", "40000", name=name)
            cls.ports.append(cls.rig.port)

    @classmethod
    def tearDownClass(cls):
        cls.up.close()
        cls.rig.close()

    def ask(self, text, at=0, key="key-a", **fields):
        body = {"model": "m", "input": text, "temperature": 0, "max_output_tokens": 64, **fields}
        return call(self.ports[at], "POST", "/v1/responses", body, {"Authorization": "Bearer " + key}, 30)

    def doc(self, *args, **more):
        s, _, b = self.ask(*args, **more)
        self.assertEqual(s, 200, b)
        return json.loads(b)

    def at(self, method, response, key="key-a", at=0):
        s, h, b = call(self.ports[at], method, "/v1/responses/" + response, headers={"Authorization": "Bearer " + key})
        return s, json.loads(b) if b else h

    def test_a_conversation_is_what_a_client_that_sends_all_of_it_would_ask(self):
        q = unique("one")
        first = self.doc(q, instructions="be brief")
        self.assertTrue(first["store"])
        s, h, b = self.ask("and two", at=1, previous_response_id=first["id"], instructions="be kind")
        second = json.loads(b)
        self.assertEqual((s, h["x-deja-cache"], second["previous_response_id"]), (200, "miss", first["id"]), b)
        text = said("responses", json.dumps(first))
        told = [{"role": "system", "content": "be kind"}, {"role": "user", "content": q}, {"role": "assistant", "content": text},
                {"role": "user", "content": "and two"}]
        self.assertEqual(self.up.last()["json"]["messages"], told)           # the instructions are those of the last request
        s, h, b = call(self.ports[0], "POST", "/v1/chat/completions", {"model": "m", "messages": told, "temperature": 0, "max_tokens": 64},
                       {"Authorization": "Bearer key-a"})
        self.assertEqual(s, 200, b)
        self.assertIn(h["x-deja-cache"], ("exact", "coalesced"))        # the answer is told before Redis says it is stored
        third = self.doc([{"role": "user", "content": "three"}], previous_response_id=second["id"])
        self.assertEqual([m["role"] for m in self.up.last()["json"]["messages"]], ["user", "assistant", "user", "assistant", "user"])
        again = self.ask("three", previous_response_id=second["id"])
        self.assertEqual(again[1]["x-deja-cache"], "exact")
        self.assertNotEqual(json.loads(again[2])["id"], third["id"])           # one answer, two responses

    def test_streams_and_calls_of_tools_are_gone_on_from(self):
        evs = events(self.ask(unique("stream"), stream=True)[2])
        final = evs[-1][1]["response"]
        self.assertEqual((evs[0][1]["response"]["id"], final["store"]), (final["id"], True))
        self.assertEqual(self.at("GET", final["id"], at=1), (200, final))
        self.doc("more", previous_response_id=final["id"])
        self.assertEqual(len(self.up.last()["json"]["messages"]), 3)
        tools = [{"type": "function", "name": "weather", "parameters": {}}]
        asked = self.doc(unique("[[tools]]"), tools=tools)
        call_id = next(i["call_id"] for i in asked["output"] if i["type"] == "function_call")
        self.doc([{"type": "function_call_output", "call_id": call_id, "output": "rain"}], tools=tools, previous_response_id=asked["id"])
        m = self.up.last()["json"]["messages"]
        self.assertEqual([x["role"] for x in m], ["user", "assistant", "tool"])
        self.assertEqual((m[1]["tool_calls"][0]["id"], m[2]["tool_call_id"]), (call_id, call_id))

    def test_only_who_asked_may_read_go_on_and_delete(self):
        mine = self.doc(unique("mine"))
        self.assertEqual(self.at("GET", mine["id"]), (200, mine))
        status, doc = self.at("GET", mine["id"] + "?stream=true")
        self.assertEqual((status, doc["error"]["param"]), (400, "stream"))
        self.assertEqual(self.at("GET", mine["id"] + "?stream=false"), (200, mine))
        for method in ("GET", "DELETE"):
            for status, doc in (self.at(method, mine["id"], "key-b"), self.at(method, "resp_" + "0" * 32), self.at(method, "nonsense")):
                self.assertEqual((status, doc["error"]["code"]), (404, "response_not_found"), doc)
        for id_, key in ((mine["id"], "key-b"), ("resp_" + "0" * 32, "key-a"), ("nonsense", "key-a")):
            s, _, b = self.ask("x", key=key, previous_response_id=id_)
            e = json.loads(b)["error"]
            self.assertEqual((s, e["code"], e["param"]), (400, "previous_response_not_found", "previous_response_id"), b)
        self.assertEqual(self.at("DELETE", mine["id"]), (200, {"id": mine["id"], "object": "response", "deleted": True}))
        self.assertEqual(self.at("GET", mine["id"], at=1)[0], 404)
        self.assertEqual(self.at("PUT", mine["id"])[0], 405)
        self.assertEqual(call(self.ports[0], "GET", "/v1/responses/" + mine["id"])[0], 401)

    def test_store_false_leaves_nothing(self):
        q = unique("not kept")
        doc = self.doc(q, store=False)
        self.assertEqual((doc["store"], self.at("GET", doc["id"])[0]), (False, 404))
        self.assertTrue(self.doc(q, store=True)["store"])

    def test_odd_values_are_named(self):
        for value, code in ((7, "invalid_type"), ({"a": 1}, "invalid_type")):
            s, _, b = self.ask("x", previous_response_id=value)
            self.assertEqual((s, json.loads(b)["error"]["param"], json.loads(b)["error"]["code"]), (400, "previous_response_id", code), b)
        self.assertEqual(self.ask("x", previous_response_id=None)[0], 200)
        for value in ("resp_" + "g" * 32, "", "a\"b", "é", "x" * 5000):
            s, _, b = self.ask("x", previous_response_id=value)
            self.assertEqual((s, json.loads(b)["error"]["param"]), (400, "previous_response_id"), b)

    def test_what_a_tenant_keeps_is_bounded_and_the_oldest_makes_room(self):
        lost = metric(self.ports[0], "deja_responses_kept_total", "no")
        ids = [self.doc(unique("fill") + " [[pad:8000]]", key="key-b")["id"] for _ in range(6)]
        self.assertEqual([self.at("GET", i, "key-b")[0] for i in ids], [404, 404, 200, 200, 200, 200][:len(ids)] if
                         self.at("GET", ids[2], "key-b")[0] == 200 else [404, 404, 404, 200, 200, 200])
        large = self.doc(unique("large") + " [[pad:50000]]", key="key-b")
        until(lambda: metric(self.ports[0], "deja_responses_kept_total", "no") == lost + 1, 5)
        self.assertEqual(self.at("GET", large["id"], "key-b")[0], 404)

    @unittest.skipUnless(has("openai"), "the openai client is not installed (no network?)")
    def test_the_public_client(self):
        r = subprocess.run([VENV, "-c", CLIENT, f"http://127.0.0.1:{self.ports[0]}/v1", unique()], capture_output=True, text=True, timeout=120)
        self.assertEqual((r.returncode, r.stdout.strip()), (0, "well"), r.stderr)


class Without(unittest.TestCase):
    def test_without_redis_it_is_said_and_with_pass_unmapped_it_is_the_upstreams(self):
        up = FakeUpstream()
        self.addCleanup(up.close)
        with Rig() as rig:
            rig.gateway("--upstream", up.url)
            s, _, b = call(rig.port, "POST", "/v1/responses", {"model": "m", "input": "x", "previous_response_id": "resp_" + "0" * 32})
            self.assertEqual((s, json.loads(b)["error"]["code"]), (400, "unsupported_parameter"), b)
            self.assertIn("--redis", json.loads(b)["error"]["message"])
            for method in ("GET", "DELETE"):
                s, _, b = call(rig.port, method, "/v1/responses/resp_" + "0" * 32)
                self.assertEqual((s, json.loads(b)["error"]["code"]), (503, "no_redis"), b)
            s, _, b = call(rig.port, "POST", "/v1/responses", {"model": "m", "input": "x"})
            self.assertEqual((s, json.loads(b)["store"]), (200, False))
        with Rig() as rig:
            rig.gateway("--upstream", up.url, "--pass-unmapped", "yes")
            body = {"model": "m", "input": "x", "previous_response_id": "resp_of_the_upstream"}
            call(rig.port, "POST", "/v1/responses", body)
            self.assertEqual((up.last()["path"], up.last()["json"]), ("/v1/responses", body))
            call(rig.port, "DELETE", "/v1/responses/resp_of_the_upstream")
            self.assertEqual((up.last()["method"], up.last()["path"]), ("DELETE", "/v1/responses/resp_of_the_upstream"))

    def test_while_redis_is_away_answers_come_and_say_they_are_not_kept(self):
        up = FakeUpstream()
        self.addCleanup(up.close)
        with Rig() as rig:
            redis = rig.redis()
            rig.gateway("--upstream", up.url, "--redis", rig.redis_url)
            kept = json.loads(call(rig.port, "POST", "/v1/responses", {"model": "m", "input": "before"})[2])
            self.assertTrue(kept["store"])
            redis.kill()
            redis.popen.wait()
            until(lambda: call(rig.port, "GET", "/v1/responses/" + kept["id"])[0] == 503, 10)
            until(lambda: not json.loads(call(rig.port, "POST", "/v1/responses", {"model": "m", "input": "during"})[2])["store"], 10)
            s, _, b = call(rig.port, "POST", "/v1/responses", {"model": "m", "input": "x", "previous_response_id": kept["id"]})
            self.assertEqual((s, json.loads(b)["error"]["code"]), (503, "redis_unavailable"), b)

    def test_a_redis_that_is_away_for_a_moment_is_waited_for(self):
        up = FakeUpstream()
        self.addCleanup(up.close)
        with Rig() as rig:
            redis = rig.redis()
            rig.gateway("--upstream", up.url, "--redis", rig.redis_url)
            kept = json.loads(call(rig.port, "POST", "/v1/responses", {"model": "m", "input": "before"})[2])
            until(lambda: call(rig.port, "GET", "/v1/responses/" + kept["id"])[0] == 200, 10)
            for body in (None, {"model": "m", "input": "x", "previous_response_id": kept["id"]}):
                redis.popen.send_signal(signal.SIGSTOP)
                threading.Timer(0.7, redis.popen.send_signal, [signal.SIGCONT]).start()
                began = time.time()
                s, _, b = call(rig.port, "POST", "/v1/responses", body) if body else call(rig.port, "GET", "/v1/responses/" + kept["id"])
                self.assertEqual(s, 200, b)
                self.assertGreater(time.time() - began, 0.5)

    def test_while_redis_takes_no_writes_answers_are_read_and_gone_on_from_and_new_ones_say_they_are_not_kept(self):
        up = FakeUpstream()
        self.addCleanup(up.close)
        with Rig() as rig:
            rig.redis()
            p = rig.gateway("--upstream", up.url, "--redis", rig.redis_url)

            def ask(text, **more):
                s, _, b = call(rig.port, "POST", "/v1/responses", {"model": "m", "input": text, **more})
                self.assertEqual(s, 200, b)
                return json.loads(b)

            def cli(*words):
                subprocess.run(["redis-cli", "-s", rig.redis_socket, *words], check=True, stdout=subprocess.PIPE)
            for fault, heal in ((("REPLICAOF", "127.0.0.1", str(free_port())), ("REPLICAOF", "NO", "ONE")),
                                (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0"))):
                kept = ask(unique("before"))
                until(lambda kept=kept: call(rig.port, "GET", "/v1/responses/" + kept["id"])[0] == 200, 10)
                cli(*fault)
                self.assertEqual(call(rig.port, "GET", "/v1/responses/" + kept["id"])[0], 200)
                q = unique("during")
                ask(q, previous_response_id=kept["id"])
                self.assertEqual([m["role"] for m in up.last()["json"]["messages"]], ["user", "assistant", "user"])
                until(lambda: not ask(unique("during"))["store"], 10)
                self.assertIn("a response was not kept: ", p.tail(1 << 20))
                s, _, b = call(rig.port, "DELETE", "/v1/responses/" + kept["id"])
                self.assertEqual((s, json.loads(b)["error"]["code"]), ((503, "redis_error") if "REPLICAOF" in fault else (507, "redis_full")), b)
                cli(*heal)
                until(lambda: ask(unique("after"))["store"], 10)


if __name__ == "__main__":
    unittest.main()
