"""Goal: what a tenant may use holds for all gateways together and for each client in the form OpenAI's SDKs read: nothing passes over a
reservation, what was not used comes back whoever leaves or dies, hits cost a request, shadow refuses nothing, without Redis a gateway goes
by its share. Method: two gateways, a scripted upstream and a private Redis; a tenant of its own for each test."""
import http.client
import json
import math
import os
import re
import signal
import socket
import threading
import time
import unittest

from tests.integration.fake_upstream import FakeUpstream
from tests.integration.live_rig import Resp, cli, fcall, until
from tests.integration.rig import BIN, DATA, Rig, ask, call, is_ready

TENANTS = 24


class Limits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig, cls.up = Rig(), FakeUpstream()
        cls.addClassCleanup(cls.up.close)
        cls.addClassCleanup(cls.rig.close)
        cls.redis = cls.rig.redis()
        cls.keys = os.path.join(cls.rig.folder, "keys")
        with open(cls.keys, "w", encoding="utf8") as f:
            f.writelines(f"key-{i} t{i}\n" for i in range(TENANTS))
        cls.ports, cls.gateways = [], []
        for name in ("one", "two"):
            cls.gateways.append(cls.start(name))
            cls.ports.append(cls.rig.port)
        cls.version, cls.tenant = 0, -1

    @classmethod
    def start(cls, name):
        return cls.rig.gateway("--upstream", cls.up.url, "--redis", cls.rig.redis_url, "--api-keys", cls.keys, "--limit-lease-ms", "3000",
                               "--keep-after-gone-ms", "0", "--cache-redis-deadline-ms", "1000", "--probe-ms", "300", name=name)

    def setUp(self):
        Limits.tenant += 1
        self.me, self.key = f"t{self.tenant}", f"key-{self.tenant}"
        self.scope = "tenant:" + self.me

    def set(self, name, value, scope=None, wait=True):
        said = fcall(self.rig, "deja_config_set", name, str(value), "IN", scope or self.scope)
        self.assertRegex(said, r"^version \d+: ", said)
        Limits.version = int(re.match(r"version (\d+)", said)[1])
        if wait:
            self.in_force(self.gateways)

    def in_force(self, gateways):
        return until(lambda: all(f"settings in force version={self.version} " in g.tail(1 << 20) for g in gateways), 10, "the setting")

    def ask(self, text, port=0, headers=None, **fields):
        body = {"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": 8, **fields}
        return call(self.ports[port], "POST", "/v1/chat/completions", body, {"Authorization": "Bearer " + self.key, **(headers or {})}, 60)

    def status(self, scope=None):
        found = json.loads(fcall(self.rig, "deja_limit_status", scope or self.scope, "JSON"))[0]
        return {**found, **{x["kind"]: x["used"] for x in found["limits"]}}

    def refusal(self, reply, kind):
        status, h, body = reply
        self.assertEqual(status, 429, body)
        error = json.loads(body)["error"]
        self.assertEqual(set(error), {"message", "type", "param", "code"})
        self.assertIn(kind, error["message"])
        return h, error

    def metric(self, name, port=0):
        text = call(self.ports[port], "GET", "/metrics")[2].decode()
        return sum(float(x.rsplit(" ", 1)[1]) for x in text.splitlines() if x.startswith(name))

    def stream(self, text, port=0):
        """An open stream: (connection, response after its first bytes)."""
        c = http.client.HTTPConnection("127.0.0.1", self.ports[port], timeout=60)
        body = {"model": "m", "stream": True, "max_tokens": 500, "messages": [{"role": "user", "content": text}]}
        c.request("POST", "/v1/chat/completions", json.dumps(body), {"Authorization": "Bearer " + self.key, "Content-Type": "application/json"})
        r = c.getresponse()
        self.assertEqual(r.status, 200)
        r.readline()
        return c, r

    def test_without_limits_nothing_is_asked_of_redis_and_nothing_is_told(self):
        self.set("ttl_s", 86399, "global", wait=False)      # else there may be nothing to undo
        said = fcall(self.rig, "deja_config_rollback", "TO", "0")
        Limits.version = int(re.match(r"version (\d+)", said)[1])
        self.in_force(self.gateways)
        monitor = Resp(self.rig.redis_socket)
        monitor("MONITOR")
        for i in range(5):
            time.sleep(0.5)                                 # a few beats
            status, h, _ = self.ask(f"no limits {i}")
            self.assertEqual(status, 200)
            self.assertFalse([x for x in h if x.startswith("x-ratelimit")])
        cli(self.rig, "ECHO", "the end")
        seen = ""
        while "the end" not in seen:
            seen += monitor.f.readline().decode()
        monitor.close()
        self.assertTrue("deja_put" in seen and "deja_limit" not in seen)

    def test_a_limit_is_told_on_every_reply_and_its_refusal_says_when_to_come_again(self):
        self.set("limit_requests_per_min", 3)
        self.set("limit_tokens_per_min", 1000)
        for i in range(3):
            status, h, body = self.ask(f"told {i}", stream=i == 1)
            self.assertEqual(status, 200, body)
            self.assertEqual((h["x-ratelimit-limit-requests"], h["x-ratelimit-remaining-requests"]), ("3", str(2 - i)))
            self.assertEqual(h["x-ratelimit-limit-tokens"], "1000")
            self.assertTrue(900 < int(h["x-ratelimit-remaining-tokens"]) < 1000)
            self.assertRegex(h["x-ratelimit-reset-requests"], r"^\d+(\.\d+)?(ms|s|m\d+s)$")
        h, error = self.refusal(self.ask("told 4", port=1), "requests per min: limit 3, used 3, requested 1")
        self.assertEqual((error["type"], error["code"], h["x-ratelimit-remaining-requests"]), ("requests", "rate_limit_exceeded", "0"))
        self.assertTrue(0 < int(h["retry-after-ms"]) <= 20001 and int(h["retry-after"]) == math.ceil(int(h["retry-after-ms"]) / 1000))
        self.assertEqual(self.up.count("told 4"), 0)
        self.assertRegex(self.gateways[1].tail(), rf"status=429 cache=- reason=limit_requests_per_min .*tenant={self.me} ")

    def test_a_request_larger_than_the_limit_is_told_not_to_come_again(self):
        self.set("limit_tokens_per_min", 100)
        h, error = self.refusal(self.ask("large", max_tokens=5000), "tokens per min")
        self.assertEqual((error["type"], h["x-should-retry"], h.get("retry-after")), ("tokens", "false", None))
        self.assertEqual(self.ask("no max_tokens fits", max_tokens=None)[0], 200)

    def test_what_a_request_may_come_to_counts_every_answer_it_asks_for(self):
        self.set("limit_tokens_per_min", 1000)
        asked = {"model": "m", "max_tokens": 100, "prompt": "a"}
        for path, body in (("/v1/completions", {**asked, "prompt": ["a"] * 50}), ("/v1/completions", {**asked, "best_of": 20}),
                           ("/v1/chat/completions", {"model": "m", "max_tokens": 1, "max_completion_tokens": 5000,
                                                     "messages": [{"role": "user", "content": "two names"}]})):
            reply = call(self.ports[0], "POST", path, body, {"Authorization": "Bearer " + self.key})
            self.assertEqual(self.refusal(reply, "tokens per min")[0]["x-should-retry"], "false")

    def test_64_at_once_over_two_gateways_pass_not_a_token_over_the_limit(self):
        self.set("limit_tokens_per_min", 1000000)
        h = self.ask("0000 of 64")[1]
        each = 1000000 - int(h["x-ratelimit-remaining-tokens"])
        limit = 20 * each + each // 2
        self.set("limit_tokens_per_min", limit)
        fcall(self.rig, "deja_limit_reset", self.scope)
        replies, begin = [], time.time()
        self.up.gate = threading.Event()                    # nothing comes back before all are decided

        def one(i):
            replies.append(self.ask(f"{i + 1:04d} of 64", port=i % 2)[0])
        threads = [threading.Thread(target=one, args=(i,)) for i in range(64)]
        for t in threads:
            t.start()
        try:
            until(lambda: len(replies) + self.up.count("of 64") - 1 >= 64, 50, "64 decisions")
        finally:
            self.up.gate.set()
            self.up.gate = None
        for t in threads:
            t.join()
        passed = replies.count(200)
        self.assertEqual(passed + replies.count(429), 64, replies)
        flowed = (time.time() - begin) * limit / 60
        self.assertLessEqual(passed * each, limit + flowed)
        self.assertGreaterEqual(passed, 20)
        until(lambda: self.status()["tokens"] == 8 * (passed + 1), 10, "settling by real usage")   # the upstream says 5 + 3

    def test_a_gateway_killed_in_the_middle_gives_back_what_it_held_and_a_living_one_does_not(self):
        self.set("limit_concurrency", 1)
        kept = self.stream("kept [[chunks:600]] [[drip:100]]", port=1)
        time.sleep(4)                                       # longer than the lease: it was renewed
        self.refusal(self.ask("busy"), "concurrent requests: limit 1, used 1")
        kept[1].close()
        kept[0].close()
        until(lambda: self.ask(f"free {time.time()}")[0] == 200, 5, "the place of an ended stream")
        self.gateways.append(self.start("three"))
        self.ports.append(self.rig.port)
        try:
            self.in_force(self.gateways)
            held = self.stream("held [[chunks:600]] [[drip:200]]", port=2)
            self.refusal(self.ask("busy too"), "concurrent requests")
            self.gateways[2].kill()
            took = until(lambda: self.ask(f"back {time.time()}")[0] == 200, 15, "the dead gateway's place")
            self.assertGreater(took, 0.5)
            held[0].close()
        finally:
            self.gateways.pop()
            self.ports.pop()

    def test_a_client_that_leaves_in_the_middle_pays_for_what_came(self):
        self.set("limit_tokens_per_min", 10000)
        self.set("limit_concurrency", 1)
        c, r = self.stream("leaves [[chunks:200]] [[drip:50]]")
        for _ in range(10):
            r.readline()
        self.assertGreater(self.status()["tokens/min"], 250)
        r.close()
        c.close()
        until(lambda: self.status()["concurrency"] == 0, 10, "the end of the abandoned stream")
        s = self.status()
        self.assertTrue(10 < s["tokens"] < 400, s)          # of more than 500 reserved
        self.assertLess(s["tokens/min"], 400)

    def test_a_stream_without_usage_is_counted_by_what_came_and_with_usage_by_that(self):
        self.set("limit_tokens_per_min", 100000)
        self.set("limit_stream_usage", "no")
        self.ask("uncounted [[say:" + "abcd" * 100 + "]]", stream=True)
        first = until(lambda: self.status()["tokens"], 5) and self.status()["tokens"]
        self.assertTrue(200 < first < 300, first)           # prompt about 110, answer 100
        self.ask("counted [[say:" + "abcd" * 100 + "]]", stream=True, stream_options={"include_usage": True})
        until(lambda: self.status()["tokens"] == first + 8, 5, "the upstream's own count")
        self.set("limit_stream_usage", "yes")
        body = self.ask("asked for [[say:" + "abcd" * 100 + "]]", stream=True, stream_options={"include_obfuscation": False})[2]
        self.assertNotIn(b"prompt_tokens", body)            # the client did not ask
        self.assertEqual(self.up.last()["json"]["stream_options"], {"include_obfuscation": False, "include_usage": True})
        until(lambda: self.status()["tokens"] == first + 16, 5, "the usage the gateway asked for")
        self.ask("asked for [[say:" + "abcd" * 100 + "]]", stream=True, stream_options={"include_usage": True})[2].index(b"prompt_tokens")
        self.ask("fails [[status:500]]", max_tokens=3000)
        until(lambda: self.status()["tokens/min"] <= first + 30, 5, "a failed call's refund")
        self.assertEqual(self.status()["tokens"], first + 16)

    def test_a_hit_costs_a_request_and_no_tokens_unless_the_knob_says_so(self):
        self.set("limit_requests_per_min", 100)
        self.set("limit_tokens_per_min", 10000)
        self.ask("hit me")
        until(lambda: self.status()["tokens"] == 8, 5)
        for _ in range(3):
            h = self.ask("hit me")[1]
            self.assertEqual(h["x-deja-cache"], "exact")
            self.assertGreaterEqual(int(h["x-ratelimit-remaining-tokens"]), 10000 - 8)           # what was reserved is told as left again
            self.assertRegex(h["x-ratelimit-reset-tokens"], r"^\d+ms$")
        until(lambda: self.status()["tokens/min"] <= 8, 5, "the hits' refunds")
        self.assertEqual((self.status()["tokens"], self.status()["requests"]), (8, 4))
        self.set("limit_hit_tokens", "yes")
        self.assertLess(int(self.ask("hit me")[1]["x-ratelimit-remaining-tokens"]), 10000)
        until(lambda: self.status()["tokens"] == 16, 5, "a hit that costs")

    def test_equal_requests_in_flight_pay_once(self):
        self.set("limit_tokens_per_min", 100000)
        threads = [threading.Thread(target=self.ask, args=("together [[slow:800]]",)) for _ in range(5)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        until(lambda: self.status()["tokens/min"] <= 10, 5)
        self.assertEqual((self.status()["tokens"], self.up.count("together")), (8, 1))

    def test_shadow_counts_and_refuses_nothing(self):
        self.set("limit_requests_per_min", 1)
        self.set("limit_shadow", "yes")
        before = self.metric("deja_limit_shadow_refused_total")
        for i in range(4):
            status, h, _ = self.ask(f"shadow {i}")
            self.assertEqual((status, h.get("x-ratelimit-limit-requests")), (200, None))
        self.assertEqual(self.status()["shadow"], 3)
        self.assertEqual(self.metric("deja_limit_shadow_refused_total") - before, 3)
        self.assertIn(f"limit shadow: requests per min of tenant:{self.me}", self.gateways[0].tail(1 << 20))
        self.set("limit_shadow", "no")
        h, _ = self.refusal(self.ask("shadow off"), "requests per min: limit 1, used 1")
        self.assertLessEqual(int(h["retry-after"]), 60)     # what it would have refused was not charged

    def test_a_budget_is_reserved_put_right_and_then_refuses(self):
        self.set("price_prompt", 500000, "model:priced", wait=False)        # 0.5 a token
        self.set("price_completion", 1000000, "model:priced", wait=False)
        self.set("limit_budget_day", 100)
        self.assertEqual(self.ask("cheap", model="priced", max_tokens=10)[0], 200)
        until(lambda: self.status()["spent"] == 5.5, 5, "5 * 0.5 + 3 * 1")
        self.assertEqual(self.ask("cheap", model="priced", max_tokens=10)[1]["x-deja-cache"], "exact")
        until(lambda: self.status()["saved"] == 5.5 and self.status()["spent"] == 5.5, 5, "what the hit saved")
        h, error = self.refusal(self.ask("dear", model="priced", max_tokens=92), "budget per day: limit 100, used 5.5, requested ")
        self.assertEqual((error["type"], error["code"]), ("insufficient_quota", "insufficient_quota"))
        self.assertTrue(0 < int(h["retry-after"]) <= 86400)
        self.assertEqual(h["x-should-retry"], "false")
        self.assertEqual(self.ask("other model", max_tokens=92)[0], 200)    # costs nothing

    def test_a_change_is_in_force_on_both_gateways_within_a_second(self):
        for limit in (5, 7, 9):
            self.set("limit_requests_per_min", limit, wait=False)
            begin = time.time()
            seen = set()
            while len(seen) < 2 and time.time() - begin < 10:
                for port in (0, 1):
                    if self.ask(f"live {limit}", port=port)[1].get("x-ratelimit-limit-requests") == str(limit):
                        seen.add(port)
            self.assertEqual(len(seen), 2)
            self.assertLess(time.time() - begin, 10)        # a second on a machine that is not busy
            fcall(self.rig, "deja_limit_reset", self.scope)
        self.set("limit_requests_per_min", "unset")
        self.assertNotIn("x-ratelimit-limit-requests", self.ask("live end")[1])

    def test_scopes_hold_together_and_the_refusal_names_the_one(self):
        self.set("limit_requests_per_min", 100, wait=False)
        self.set("limit_requests_per_min", 2, "all/model:shared", wait=False)
        self.set("limit_requests_per_min", 1, f"{self.scope}/model:own")
        try:
            self.assertEqual(self.ask("a", model="own")[0], 200)
            self.refusal(self.ask("b", model="own"), f"for {self.scope}/model:own: requests per min: limit 1")
            self.assertEqual([self.ask(f"c{i}", model="shared", port=i % 2)[0] for i in range(3)], [200, 200, 429])
            self.assertEqual(self.status()["requests"], 3)  # refused ones took nothing of the tenant's
            self.set("limit_requests_per_min", 1)           # over all models: the refusal names no model
            self.ask("d", model="other")
            self.refusal(self.ask("e", model="other"), f"for {self.scope}: requests per min: limit 1, used ")
        finally:
            self.set("limit_requests_per_min", "unset", "all/model:shared")

    def test_what_is_passed_through_counts_as_requests(self):
        self.set("limit_requests_per_min", 2)
        auth = {"Authorization": "Bearer " + self.key}
        self.assertEqual(call(self.ports[0], "GET", "/v1/models", None, auth)[0], 200)
        seen = [call(self.ports[i % 2], "POST", "/v1/moderations", {"model": "m", "input": "x" * 400}, auth) for i in range(3)]
        self.assertEqual([x[0] for x in seen], [200, 200, 429])
        self.assertEqual(seen[0][1]["x-ratelimit-limit-requests"], "2")
        until(lambda: self.status()["tokens"] > 200, 5)

    def test_a_fallback_is_paid_once_and_a_request_nobody_answers_costs_no_tokens(self):
        self.set("limit_tokens_per_min", 100000)
        self.set("limit_concurrency", 1)
        second = FakeUpstream()
        self.addCleanup(second.close)
        p = self.rig.gateway("--upstream", self.up.url + " models=first", "--upstream", second.url + " models=second", "--fallback", "first=second",
                             "--redis", self.rig.redis_url, "--api-keys", self.keys, "--limit-lease-ms", "3000", "--upstream-backoff-ms", "1",
                             "--cache-redis-deadline-ms", "1000", "--breaker-error-percent", "0", "--breaker-failures", "1000", name="five")
        self.ports.append(self.rig.port)
        try:
            self.in_force([p])
            self.up.fail = "500"
            for n, stream in ((1, False), (2, True)):
                status, h, body = self.ask(f"falls back {n}", port=2, model="first", stream=stream, stream_options={"include_usage": True} if stream else None)
                self.assertEqual((status, second.count(f"falls back {n}")), (200, 1), body)
                until(lambda n=n: self.status()["tokens"] == 8 * n and self.status()["concurrency"] == 0, 5, "the fallback's tokens")
            for n, stream in ((1, True), (2, False)):
                status, h, body = self.ask(f"falls back {n}", port=2, model="first", stream=stream)     # what is stored of the fallback costs as a hit
                self.assertEqual((status, h["x-deja-cache"], second.count(f"falls back {n}")), (200, "exact", 1), body)
                self.assertGreaterEqual(int(h["x-ratelimit-remaining-tokens"]), 100000 - 16)
            until(lambda: self.status()["concurrency"] == 0, 5)
            self.assertEqual(self.status()["tokens"], 16)
            second.fail = "500"
            self.assertGreaterEqual(self.ask("nobody", port=2, model="first")[0], 500)
            until(lambda: self.status()["concurrency"] == 0, 5)
            self.assertEqual(self.status()["tokens"], 16)
            self.set("limit_hit_tokens", "yes", wait=False)
            self.in_force([p])
            self.assertEqual(self.ask("falls back 1", port=2, model="first")[1]["x-deja-cache"], "exact")
            until(lambda: self.status()["tokens"] == 24, 5, "a hit that costs")
        finally:
            self.up.fail = None
            self.ports.pop()
            self.assertEqual(p.stop(), 0)

    def test_a_client_that_leaves_what_is_passed_through_or_an_embedding_pays_for_what_was_asked(self):
        self.set("limit_tokens_per_min", 100000)
        self.up.hold = 1.5
        self.addCleanup(setattr, self.up, "hold", 0)
        used = 0
        for path, body in (("/v1/rerank", {"model": "m", "prompt": "left while it was ranked " * 10}), ("/v1/embeddings", {"model": "m", "input": "left while it was embedded " * 10})):
            calls, data = len(self.up.calls), json.dumps(body).encode()
            with socket.create_connection(("127.0.0.1", self.ports[0])) as s:
                s.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                          % (path.encode(), self.key.encode(), len(data), data))
                until(lambda calls=calls: len(self.up.calls) > calls, 10, "the call")
            until(lambda used=used: self.status()["tokens"] > used + 20, 10, "its tokens")
            used = self.status()["tokens"]

    def with_fallbacks(self, *names):
        """Gateways of their own whose first models fail, each as self.ports[2 + i]; the upstream of the second models."""
        second = FakeUpstream()
        self.addCleanup(second.close)
        self.up.fail = "500"
        for name in names:
            p = self.rig.gateway("--upstream", self.up.url + " models=first", "--upstream", second.url + " models=second", "--fallback",
                                 "first=second", "--redis", self.rig.redis_url, "--api-keys", self.keys, "--limit-lease-ms", "3000",
                                 "--upstream-retries", "0", "--cache-redis-deadline-ms", "1000", "--breaker-error-percent", "0",
                                 "--breaker-failures", "1000", name=name)
            self.ports.append(self.rig.port)
            self.addCleanup(lambda p=p: self.assertEqual(p.stop(), 0))
            self.in_force([p])
        self.addCleanup(lambda: (self.ports.__delitem__(slice(2, None)), setattr(self.up, "fail", None), setattr(self.up, "hold", 0)))
        return second

    def test_each_gateway_that_asks_a_fallback_after_a_call_they_shared_pays_for_it(self):
        self.set("limit_tokens_per_min", 100000)
        second = self.with_fallbacks("six", "seven")
        until(lambda: all(self.metric("deja_flight_gateways", p) >= 3 for p in (2, 3)), 20, "the other gateways")
        for n, stream in ((1, False), (2, True)):
            self.up.hold, second.hold = 1, 0.5  # both are asked before either answer of the fallback is stored
            got, text, calls = [], f"shared and sick {n}", self.up.count()
            threads = [threading.Thread(target=lambda p=p: got.append(self.ask(text, port=p, model="first", stream=stream))) for p in (2, 3)]
            for t in threads:
                t.start()
                time.sleep(0.3)
            for t in threads:
                t.join()
            self.assertEqual([(s, h["x-deja-degraded"], h["x-deja-cache"]) for s, h, _ in got], [(200, "fallback", "miss")] * 2)
            self.assertEqual((self.up.count() - calls, second.count(text)), (1, 2))
            if not stream:
                self.assertTrue(all("stored" in h["cache-status"] for _, h, _ in got))
            until(lambda n=n: self.status()["tokens"] == 16 * n, 5, "the tokens of both")

    def test_what_is_stored_of_a_fallback_costs_what_a_hit_costs(self):
        self.set("limit_tokens_per_min", 100000)
        second = self.with_fallbacks("eight")
        self.assertEqual(self.ask("stored then", port=2, model="first")[1]["x-deja-cache"], "miss")
        until(lambda: self.status()["tokens"] == 8, 5, "the fallback's tokens")
        s, h, _ = self.ask("stored then", port=2, model="first")
        self.assertEqual((s, h["x-deja-cache"], h["x-deja-degraded"]), (200, "exact", "fallback"))
        self.assertGreaterEqual(int(h["x-ratelimit-remaining-tokens"]), 99992)          # told as left: nothing was asked
        self.set("limit_hit_tokens", "yes", "global")
        self.addCleanup(lambda: fcall(self.rig, "deja_config_unset", "limit_hit_tokens"))
        time.sleep(1)
        self.assertEqual(self.ask("stored then", port=2, model="first")[1]["x-deja-cache"], "exact")
        until(lambda: self.status()["tokens"] == 16, 5, "the hit's tokens")
        self.assertEqual(second.count("stored then"), 1)

    def test_a_fallback_costs_what_is_set_for_it_and_saves_as_much(self):
        self.set("price_prompt", 500000, "model:first", wait=False)             # 0.5 a token
        self.set("price_completion", 250000, "model:first", wait=False)
        self.set("price_completion", 1000000, "model:second", wait=False)       # 1, and nothing for the prompt
        self.set("limit_budget_day", 10000)
        self.with_fallbacks("nine")
        for n, stream in ((1, False), (2, True)):
            s, h, _ = self.ask(f"dear stand-in {n}", port=2, model="first", stream=stream, stream_options={"include_usage": True} if stream else None)
            self.assertEqual((s, h["x-deja-degraded"], h["x-deja-cache"]), (200, "fallback", "miss"))
            until(lambda n=n: self.status()["spent"] == 3 * n, 5, "3 tokens at 1")
            self.assertEqual(self.metric('deja_money_total{model="second",from="upstream"}', 2), 3 * n)
        self.assertEqual(self.ask("dear stand-in 1", port=2, model="first")[1]["x-deja-cache"], "exact")
        until(lambda: (self.status()["saved"], self.status()["spent"]) == (3, 6), 5, "what the stored answer saved")

    def test_each_api_tells_limits_in_its_own_names(self):
        self.set("limit_requests_per_min", 3)
        auth = {"Authorization": "Bearer " + self.key}
        body = {"model": "m", "max_tokens": 8, "messages": [{"role": "user", "content": "through the door"}]}
        for status in (200, 200):
            got, h, data = call(self.ports[0], "POST", "/v1/messages", body, {"x-api-key": self.key, "anthropic-version": "2023-06-01"})
            self.assertEqual(got, status, data)
            self.assertEqual(h["anthropic-ratelimit-requests-limit"], "3")
            self.assertRegex(h["anthropic-ratelimit-requests-reset"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
            self.assertNotIn("x-ratelimit-limit-requests", h)
        got, h, _ = call(self.ports[0], "POST", "/v1/responses", {"model": "m", "input": "through the door"}, auth)
        self.assertEqual((got, h["x-ratelimit-remaining-requests"]), (200, "0"))
        got, h, data = call(self.ports[0], "POST", "/v1/messages", body, {"x-api-key": self.key, "anthropic-version": "2023-06-01"})
        self.assertEqual((got, json.loads(data)["error"]["type"]), (429, "rate_limit_error"))
        self.assertTrue(0 < int(h["retry-after"]) <= 20)

    def test_a_frozen_redis_costs_nobody_an_error(self):
        self.set("limit_requests_per_min", 1000)
        self.redis.popen.send_signal(signal.SIGSTOP)
        try:
            for i in range(6):
                begin = time.time()
                status, h, body = self.ask(f"frozen {i}", port=i % 2)
                self.assertEqual(status, 200, body)
                self.assertIn(h["x-ratelimit-limit-requests"], ("500", "333", "1000"))
                self.assertLess(time.time() - begin, 8)
        finally:
            self.redis.popen.send_signal(signal.SIGCONT)
        until(lambda: self.ask(f"thawed {time.time()}")[1].get("x-ratelimit-limit-requests") == "1000", 20)
        until(lambda: self.status()["requests"] >= 1 and self.metric("deja_limit_unsettled") == 0, 10)
        until(lambda: is_ready(self.ports[1]), 10)

    def test_without_redis_a_gateway_goes_by_its_share_and_tells_redis_afterwards(self):
        self.set("limit_requests_per_min", 10)
        self.set("limit_tokens_per_min", 100000)
        until(lambda: all(self.metric("deja_limit_gateways", port) == 2 for port in (0, 1)), 20, "each knows of both")
        before = self.status()["tokens"]
        told = self.gateways[0].tail(1 << 20)
        self.redis.kill()
        self.redis.popen.wait()
        os.unlink(self.rig.redis_socket)
        for port in (0, 1):
            seen = [self.ask(f"away {port} {i}", port=port)[0] for i in range(8)]
            self.assertEqual((seen.count(200), seen.count(429)), (5, 3), (port, seen))
        self.assertEqual(self.metric("deja_limit_local "), 1)
        self.assertEqual(self.gateways[0].tail(1 << 20)[len(told):].count("limits: Redis does not answer"), 1)
        self.redis.start()
        until(lambda: cli(self.rig, "PING") == "PONG", 10)
        until(lambda: self.ask(f"again {time.time()}")[1].get("x-ratelimit-limit-requests") == "10", 20, "limits of all gateways again")
        until(lambda: self.status()["tokens"] >= before + 80, 10, "what was used meanwhile")
        self.assertEqual(self.metric("deja_limit_local "), 0)
        self.assertEqual(self.gateways[0].tail(1 << 20)[len(told):].count("limits: Redis answers again"), 1)
        until(lambda: is_ready(self.ports[1]), 10)

    def test_a_drained_gateway_settles_before_it_ends(self):
        self.set("limit_concurrency", 1)
        p = self.start("four")
        port = self.rig.port
        self.in_force([p])
        t = threading.Thread(target=lambda: call(port, "POST", "/v1/chat/completions", {"model": "m", "messages": [
            {"role": "user", "content": "drains [[slow:700]]"}]}, {"Authorization": "Bearer " + self.key}))
        t.start()
        until(lambda: self.status()["concurrency"] == 1, 5)
        self.assertEqual(p.stop(), 0)
        t.join()
        self.assertEqual(self.status()["concurrency"], 0)
        self.assertEqual(self.status()["tokens"], 8)


class Counted(unittest.TestCase):
    """The gateway knows the tokenizer: from the engine, or from the option."""

    def test_what_came_of_a_stream_without_usage_is_counted_with_the_tokenizer(self):
        rig, up = Rig(), FakeUpstream()
        self.addCleanup(up.close)
        self.addCleanup(rig.close)
        rig.redis()
        rig.gateway("--upstream", up.url, "--tokenizer", os.path.join(DATA, "tiny-llama-f32.gguf"), "--redis", rig.redis_url,
                    "--cache-redis-deadline-ms", "1000")
        fcall(rig, "deja_config_set", "limit_stream_usage", "no")
        fcall(rig, "deja_config_set", "limit_tokens_per_min", "100000000")
        until(lambda: "x-ratelimit-limit-tokens" in ask(rig.port, "is it in force")[1], 10)
        text = "The quick brown fox, and 3 others: 你好 jump. " * 4

        def used():
            return json.loads(fcall(rig, "deja_limit_status", "tenant:public", "JSON"))[0]["tokens"]

        def reserved(h):
            return 100000000 - int(h["x-ratelimit-remaining-tokens"])
        until(lambda: used() == 8, 10)
        fcall(rig, "deja_limit_reset", "tenant:public")
        h = call(rig.port, "POST", "/v1/completions", {"model": "m", "prompt": text, "max_tokens": 8})[1]
        n = reserved(h) - 8
        self.assertGreater(n, 50)
        until(lambda: used() == 16, 10)
        fcall(rig, "deja_limit_reset", "tenant:public")
        h = ask(rig.port, f"[[say:{text}]]", stream=True)[1]
        prompt = reserved(h) - 8
        until(lambda: used() > 16, 10)
        self.assertLessEqual(abs(used() - 16 - prompt - n), 1)   # a prompt may have a first token of its own

    def test_prompts_are_counted_to_the_token_at_the_door(self):
        rig = Rig()
        self.addCleanup(rig.close)
        rig.redis()
        rig.engine(os.path.join(DATA, "tiny-llama-f32.gguf"))
        rig.gateway("--engine-url", f"http://127.0.0.1:{rig.engine_port}", "--redis", rig.redis_url, "--cache-redis-deadline-ms", "1000")
        fcall(rig, "deja_config_set", "limit_tokens_per_min", "100000000")
        until(lambda: "x-ratelimit-limit-tokens" in ask(rig.port, "is it in force")[1], 10)
        until(lambda: call(rig.port, "GET", "/ready")[0] == 200, 10)

        def is_exact(text):
            fcall(rig, "deja_limit_reset", "tenant:public")
            status, h, body = ask(rig.port, text)
            self.assertEqual(status, 200, body)
            return 100000000 - int(h["x-ratelimit-remaining-tokens"]) == json.loads(body)["usage"]["prompt_tokens"] + 8
        until(lambda: is_exact(f"Hello there at {time.time()}"), 20, "the engine's tokenizer is known")
        for text in ("What does it cost, 3.50 or 4?", "你好，怎么重置密码？", "word " * 80):
            self.assertTrue(is_exact(text), text)
        h = ask(rig.port, "x " * 20000)[1]                  # read on a worker; more than the engine takes, but not more than the limit
        self.assertGreater(100000000 - int(h["x-ratelimit-remaining-tokens"]), 10000)


if __name__ == "__main__":
    assert os.path.exists(BIN)
    unittest.main()
