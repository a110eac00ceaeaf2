"""Goal: several upstreams behind one gateway: which of them is asked, what is tried again and where, and what is left alone. Method: the
real binary and scripted upstreams; conditions are waited for, no timing is asserted but lower bounds the gateway promises."""
import concurrent.futures
import json
import os
import time
import unittest
import uuid

from tests.integration.fake_upstream import FakeUpstream
from tests.integration.rig import BIN, Rig, call, free_port, metric, unique


class Several(unittest.TestCase):
    """One rig; each test starts the gateway it needs."""

    def setUp(self):
        self.rig, self.ups = Rig(), []
        self.addCleanup(self.close)

    def close(self):
        for u in self.ups:
            u.close()
        self.rig.close()

    def fake(self):
        self.ups.append(FakeUpstream())
        return self.ups[-1]

    def start(self, *options, **kw):
        self.rig.gateway("--upstream-backoff-ms", "10", "--log-level", "info", *options, **kw)

    def ask(self, text, headers=None, model="m", **fields):
        body = {"model": model, "messages": [{"role": "user", "content": text}], "temperature": 0, **fields}
        return call(self.rig.port, "POST", "/v1/chat/completions", body, headers, 30)

    def metric(self, name, part=""):
        return metric(self.rig.port, name, part)

    def test_calls_spread_by_weight_and_keys_stay_with_their_upstream(self):
        a, b = self.fake(), self.fake()
        key = os.path.join(self.rig.folder, "key")
        with open(key, "w") as f:
            f.write("secret-of-a\n")
        listed = os.path.join(self.rig.folder, "upstreams")
        with open(listed, "w") as f:
            f.write(f"# two of them\n{a.url} weight=3 key_file={key}\n{b.url} weight=1\n")
        self.start("--upstreams-file", listed)
        for _ in range(24):
            self.assertEqual(self.ask(unique(), {"Authorization": "Bearer mine"})[0], 200)
        self.assertEqual((a.count(), b.count()), (18, 6))
        self.assertEqual({c["headers"]["authorization"] for c in a.calls if c["method"] == "POST"}, {"Bearer secret-of-a"})
        self.assertEqual({c["headers"]["authorization"] for c in b.calls if c["method"] == "POST"}, {"Bearer mine"})
        self.assertNotIn("secret-of-a", self.rig.processes[-1].tail(100000) + call(self.rig.port, "GET", "/ready")[2].decode())
        self.assertEqual(self.metric("deja_upstream_requests_total", str(a.port)), 18)

    def test_models_go_to_who_serves_them_under_the_name_they_have_there(self):
        a, b = self.fake(), self.fake()
        self.start("--upstream", f"{a.url} models=big,fast=theirs", "--upstream", f"{b.url} models=other")
        for model, up, name in (("big", a, "big"), ("fast", a, "theirs"), ("other", b, "other")):
            q = unique()
            self.assertEqual(self.ask(q, model=model)[0], 200)
            self.assertEqual((up.count(q), up.last()["json"]["model"]), (1, name))
        self.assertIn(b'"temperature": 0', a.last()["raw"])                       # every other byte is the client's own
        q = unique()
        s, h, body = self.ask(q, model="nobody")
        self.assertEqual((s, json.loads(body)["error"]["code"]), (404, "model_not_found"))
        self.assertNotIn("retry-after", h)                                        # waiting brings no model
        self.assertEqual(call(self.rig.port, "POST", "/v1/embeddings", {"model": "other", "input": "x"})[0], 200)
        self.assertEqual(b.last()["path"], "/v1/embeddings")

    def test_a_model_that_nobody_serves_is_named_with_those_there_are(self):
        a, b = self.fake(), self.fake()
        self.start("--upstream", f"{a.url} models=big", "--upstream", f"{b.url} models=small", "--route", "chat -> gone")
        there = "; there are: chat, big, small"
        for path, body in (("/v1/chat/completions", {"messages": [{"role": "user", "content": unique()}]}),
                           ("/v1/completions", {"prompt": unique()}), ("/v1/embeddings", {"input": unique()}),
                           ("/v1/messages", {"max_tokens": 9, "messages": [{"role": "user", "content": unique()}]}),
                           ("/v1/moderations", {"input": unique()})):
            s, h, raw = call(self.rig.port, "POST", path, {"model": "nope", **body})
            e = json.loads(raw)["error"]
            self.assertEqual((s, e["message"], h.get("retry-after")), (404, f'model "nope" is not served here{there}', None), path)
            if path != "/v1/messages":                                            # whose errors have neither
                self.assertEqual((e["param"], e["code"]), ("model", "model_not_found"), path)
        e = json.loads(self.ask(unique(), model="chat")[2])["error"]
        self.assertEqual(e["message"], 'model "chat" leads to "gone", which is not served here; there are: big, small')
        e = json.loads(self.ask(unique(), model="é" * 100)[2])["error"]
        self.assertEqual(e["message"], 'model "' + "é" * 32 + f'" is not served here{there}')

    def test_the_list_of_models_in_a_refusal_is_bounded(self):
        a, b = self.fake(), self.fake()
        self.start("--upstream", f"{a.url} models=" + ",".join(f"m{i}-{'x' * 30}" for i in range(50)), "--upstream", f"{b.url} models=small")
        e = json.loads(self.ask(unique(), model="nope")[2])["error"]
        self.assertRegex(e["message"], r"; there are: m0-x+, m1-x+, m2-x+, small and 47 more$|; there are: m0-x+(, m\d-x+)* and \d+ more$")

    def test_models_of_all_are_listed_once(self):
        a, b = self.fake(), self.fake()                                            # both say they serve m
        self.start("--upstream", f"{a.url} models=big,fast=theirs,*", "--upstream", f"{b.url} models=other,big", "--model-alias", "nick=big",
                   "--route", "chat -> big", "--route", "* when load>99 -> other")
        end = time.time() + 10
        while time.time() < end:
            names = [m["id"] for m in json.loads(call(self.rig.port, "GET", "/v1/models")[2])["data"]]
            if "m" in names:                                                        # once it has been probed
                break
            time.sleep(0.05)
        self.assertEqual(sorted(names), ["big", "chat", "fast", "m", "nick", "other"])

    def test_what_fails_is_tried_elsewhere_before_the_first_byte_only(self):
        a, b = self.fake(), self.fake()
        self.start("--upstream", a.url, "--upstream", b.url, "--retry-budget-percent", "100", "--breaker-error-percent", "0")
        for status in (500, 502, 503, 504, 429, 408):
            a.fail = str(status)
            for _ in range(2):
                s, h, _ = self.ask(unique(), stream=status == 500)
                self.assertEqual(s, 200, status)
        a.fail = "400"
        self.assertEqual({self.ask(unique())[0] for _ in range(4)}, {200, 400})      # the request's own fault goes back as it came
        a.fail = None
        before = a.count() + b.count()
        self.assertEqual(self.ask(unique("[[cut]]"))[0], 502)                     # it had begun to answer
        self.assertEqual(a.count() + b.count(), before + 1)
        self.assertGreater(self.metric("deja_upstream_retries_total"), 4)

    def test_retries_are_a_small_share_of_the_traffic(self):
        a = self.fake()
        a.fail, a.after = "503", ""
        self.start("--upstream", a.url, "--breaker-error-percent", "0", "--upstream-retries", "5")
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            statuses = list(pool.map(lambda _: self.ask(unique())[0], range(100)))
        self.assertEqual(set(statuses), {503})
        seconds = self.metric("deja_uptime_seconds")
        self.assertLessEqual(a.count(), 100 + 20 + 10 + seconds + 1)               # a share, a reserve, one a second
        self.assertGreater(self.metric("deja_retry_budget_spent_total"), 0)

    def test_429_pauses_a_target_of_ours_until_the_time_it_named(self):
        a, b = self.fake(), self.fake()
        a.fail, a.after = "429", "30"
        self.start("--upstream", a.url, "--upstream", b.url, "--upstream-key", "k")
        for _ in range(10):
            self.assertEqual(self.ask(unique())[0], 200)
        self.assertEqual(a.count(), 1)
        self.assertEqual(self.metric("deja_upstream_paused", str(a.port)), 1)
        b.fail, b.after = "429", "40"
        self.ask(unique())
        s, h, body = self.ask(unique())
        self.assertEqual((s, json.loads(body)["error"]["code"]), (429, "upstream_rate_limited"))
        self.assertTrue(25 <= int(h["retry-after"]) <= 30, h["retry-after"])
        self.assertEqual(a.count(), 1)

    def test_429_on_a_clients_own_key_stops_nobody_else(self):
        a = self.fake()
        self.start("--upstream", a.url)
        s, h, _ = self.ask(unique("[[status:429]][[after:30]]"), {"Authorization": "Bearer theirs"})
        self.assertEqual((s, h["retry-after"]), (429, "30"))
        self.assertEqual(self.ask(unique(), {"Authorization": "Bearer mine"})[0], 200)

    def test_short_retry_after_is_waited_for(self):
        a = self.fake()
        self.start("--upstream", a.url, "--upstream-key", "k")
        began = time.monotonic()
        s, _, _ = self.ask(unique("[[once:status]][[after:1]]"))
        self.assertEqual(s, 200)
        self.assertGreaterEqual(time.monotonic() - began, 0.99)

    def test_errors_of_its_own_open_the_breaker_of_the_only_target_too(self):
        a = self.fake()
        self.start("--upstream", a.url, "--breaker-open-ms", "300", "--probe", "off", ready=False)
        a.fail = "500"
        statuses = [self.ask(unique())[0] for _ in range(40)]
        self.assertIn(503, statuses)
        self.assertLess(a.count(), 40)
        self.assertEqual(self.metric("deja_upstream_breaker_open"), 1)
        a.fail = None
        end = time.time() + 10
        while self.ask(unique())[0] != 200:
            self.assertLess(time.time(), end)
            time.sleep(0.05)
        self.assertEqual(self.metric("deja_upstream_breaker_open"), 0)

    def test_odd_requests_of_one_client_shut_nobody_else_out(self):
        """What fails by itself: the same request again and again, many of one tenant beside one that is served, one model of several."""
        up = self.fake()
        keys = os.path.join(self.rig.folder, "keys")
        with open(keys, "w", encoding="utf8") as f:
            f.write("sk-odd odd\nsk-good good\n")
        self.start("--upstream", up.url, "--api-keys", keys, "--breaker-open-ms", "60000", "--probe", "off")
        odd, good = {"Authorization": "Bearer sk-odd"}, {"Authorization": "Bearer sk-good"}
        for word in ("status:500", "garbage"):
            same = unique(f"[[{word}]]")
            for _ in range(14):
                self.assertIn(self.ask(same, odd)[0], (500, 502), word)
        self.assertEqual(self.metric("deja_upstream_opened_total"), 0)
        for i in range(24):
            self.assertEqual(self.ask(unique("[[status:500]]"), odd)[0], 500)
            if i % 4 == 0:
                self.assertEqual(self.ask(unique(), good)[0], 200)
        for _ in range(24):
            self.assertEqual(self.ask(unique("[[status:500]]"), odd, model="broken")[0], 500)
        self.assertEqual((self.ask(unique(), good)[0], self.metric("deja_upstream_opened_total")), (200, 0))
        for _ in range(16):                                                         # now for everybody
            self.ask(unique("[[status:500]]"), good)
            self.ask(unique("[[status:500]]"), odd)
        self.assertEqual((self.ask(unique(), good)[0], self.metric("deja_upstream_opened_total")), (503, 1))

    def test_full_target_is_passed_over_and_who_cannot_wait_is_told(self):
        a = self.fake()
        self.start("--upstream", f"{a.url} max_concurrency=2", "--queue-wait-ms", "1")
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(lambda _: self.ask(unique("[[slow:700]]")), range(6)))
        statuses = sorted(x[0] for x in answers)
        self.assertEqual(statuses, [200, 200, 503, 503, 503, 503])
        self.assertTrue(all(int(x[1]["retry-after"]) >= 1 for x in answers if x[0] == 503))
        self.assertEqual(self.ask(unique())[0], 200)                              # slots come back

    def test_slow_target_is_hedged_and_the_faster_answer_taken(self):
        a, b = self.fake(), self.fake()
        a.hold = 5
        self.start("--upstream", a.url, "--upstream", f"{b.url} weight=0.001", "--upstream-hedge-ms", "100")
        for stream in (False, True):
            began = time.monotonic()
            q = unique()
            self.assertEqual(self.ask(q, stream=stream)[0], 200)
            self.assertLess(time.monotonic() - began, 4)
        self.assertGreaterEqual(self.metric("deja_upstream_hedges_won_total"), 1)
        self.assertEqual(self.metric("deja_upstream_inflight"), 0)

    def test_a_call_that_waited_for_its_turn_is_hedged_from_then_on(self):
        a, b = self.fake(), self.fake()
        self.start("--upstream", f"{a.url} max_concurrency=1", "--upstream", f"{b.url} max_concurrency=1 weight=0.001", "--upstream-hedge-ms", "400")
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            first = [pool.submit(self.ask, unique(f"[[slow:{ms}]]")) for ms in (1000, 1100) if not time.sleep(0.05)]
            time.sleep(0.2)
            a.hold = 8
            began = time.monotonic()
            waited = self.ask(unique("waited"))
            self.assertLess(time.monotonic() - began, 6)
            self.assertEqual([waited[0], *(f.result()[0] for f in first)], [200] * 3)
        self.assertEqual((a.count("waited"), b.count("waited"), self.metric("deja_upstream_hedges_won_total")), (1, 1, 1))

    def test_total_time_is_a_bound_for_a_stream_that_drips_for_ever(self):
        a = self.fake()
        self.start("--upstream", f"{a.url} total_ms=400", "--upstream-retries", "0")
        _, _, body = self.ask(unique("[[drip:100]][[chunks:100]]"), stream=True)
        self.assertIn(b"upstream_timeout", body)
        self.assertNotIn(b"[DONE]", body)
        self.assertEqual(self.ask(unique("[[slow:3000]]"))[0], 504)

    def test_bad_lines_are_refused_at_the_start(self):
        for line, word in (("http://h weight=0", "weight"), ("http://h wieght=1", "wieght"), (f"http://h key_file={self.rig.folder}/none", "key_file")):
            p = self.rig.add("refused" + uuid.uuid4().hex[:4], [BIN, "gateway", "--port", str(free_port()), "--upstream", line])
            self.assertNotEqual(p.popen.wait(20), 0)
            self.assertIn(word, p.tail())


if __name__ == "__main__":
    unittest.main()
