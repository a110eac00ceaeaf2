"""Goal: what clients get when the model they asked for cannot answer: the step is named in a header and counted, nothing is taken for what
it is not, and nothing of it stays when the model is back. Method: the real binary, scripted upstreams, a private Redis."""
import concurrent.futures
import json
import os
import socket
import time
import unittest
import uuid

from tests.integration.fake_upstream import FakeUpstream
from tests.integration.rig import Rig, call, metric, unique


def content(body):
    return json.loads(body)["choices"][0]["message"]["content"]


def streamed(body):
    blocks = [b[6:] for b in body.decode().split("\n\n") if b.startswith("data: ")]
    return "".join((c.get("delta") or {}).get("content") or "" for b in blocks if b != "[DONE]" for c in json.loads(b).get("choices", []))


class Ladder(unittest.TestCase):
    """a serves big, b serves small; small stands in for big."""
    options = ("--fallback", "big=nowhere,small", "--stale-if-error-s", "0")
    redis = False

    @classmethod
    def setUpClass(cls):
        cls.rig, cls.a, cls.b = Rig(), FakeUpstream(), FakeUpstream()
        more = []
        if cls.redis:
            cls.rig.redis()
            more = ["--redis", cls.rig.redis_url]
        cls.rig.gateway("--upstream", f"{cls.a.url} models=big", "--upstream", f"{cls.b.url} models=small", "--breaker-error-percent", "0",
                        "--upstream-backoff-ms", "5", "--breaker-failures", "1000", *more, *cls.options)
        cls.port = cls.rig.port

    @classmethod
    def tearDownClass(cls):
        cls.a.close()
        cls.b.close()
        cls.rig.close()

    def setUp(self):
        for u in (self.a, self.b):
            u.fail, u.hold, u.after = None, 0, "7"

    def ask(self, text, headers=None, model="big", **fields):
        body = {"model": model, "messages": [{"role": "user", "content": text}], "temperature": 0, **fields}
        return call(self.port, "POST", "/v1/chat/completions", body, headers, 30)

    def metric(self, name, part=""):
        return metric(self.port, name, part)


class Fallback(Ladder):
    def test_every_way_to_fail_before_the_first_byte_leads_to_the_fallback_and_says_so(self):
        for stream in (False, True):
            for how in ("500", "502", "503", "429"):
                self.a.fail = how
                q = unique()
                s, h, body = self.ask(q, stream=stream)
                self.assertEqual((s, h["x-deja-degraded"], h["x-deja-served-by"]), (200, "fallback", "fallback; model=small"), how)
                self.assertEqual((self.b.count(q), self.b.last()["json"]["model"], self.b.last()["json"]["temperature"]), (1, "small", 0))
                self.assertEqual(json.loads(body)["model"] if not stream else streamed(body) != "", "small" if not stream else True)
        self.a.fail = None
        for how in ("empty", "html", "malformed"):
            q = unique()
            self.a.calls.clear()
            s, h, body = self.ask(q + f"[[{how}]]")       # both see it: b fails too, so the first error is told
            self.assertEqual((s, h["x-deja-degraded"]), (502, "refused"), how)
            self.assertGreaterEqual(int(h["retry-after"]), 1)

    def test_a_fallback_that_no_upstream_takes_is_told_at_the_start(self):
        self.assertIn("fallback: no upstream of this gateway takes nowhere: passed over", self.rig.processes[0].tail(1 << 20))

    def test_error_that_is_the_requests_own_stays_the_primarys(self):
        self.a.fail = "400"
        s, h, _ = self.ask(unique())
        self.assertEqual(s, 400)
        self.assertNotIn("x-deja-degraded", h)

    def test_answer_of_a_fallback_is_stored_for_the_fallback_only(self):
        q = unique()
        self.a.fail = "500"
        s, h, first = self.ask(q)
        self.assertEqual((s, h["x-deja-cache"]), (200, "miss"))
        self.a.fail = None
        s, h, second = self.ask(q)                                     # the model is back: asked, not served from its stand-in's answer
        self.assertEqual((s, h["x-deja-cache"], self.a.count(q) >= 2), (200, "miss", True))
        self.assertNotIn("x-deja-degraded", h)
        self.assertNotEqual(content(first), content(second))
        s, h, third = self.ask(q, model="small")
        self.assertEqual((h["x-deja-cache"], content(third)), ("exact", content(first)))

    def test_what_is_stored_of_a_fallback_is_served_before_it_is_asked(self):
        for stream in (False, True):
            q = unique()
            self.a.fail = "500"
            s, h, first = self.ask(q, stream=stream)
            self.assertEqual((s, h["x-deja-cache"], self.b.count(q)), (200, "miss", 1))
            asked = self.metric("deja_fallback_total", 'model="small"')
            for again in (False, True):
                s, h, body = self.ask(q, stream=again)
                self.assertEqual((s, h["x-deja-cache"], h["x-deja-degraded"], h["x-deja-served-by"]), (200, "exact", "fallback", "fallback; model=small"))
                self.assertEqual(streamed(body) if again else content(body), streamed(first) if stream else content(first))
            self.assertEqual((self.b.count(q), self.metric("deja_fallback_total", 'model="small"')), (1, asked))
            self.assertEqual(self.ask(q, {"Cache-Control": "no-cache"})[1]["x-deja-cache"], "bypass")
            self.assertEqual(self.b.count(q), 2)                                                  # who wants a fresh answer gets one
            self.a.fail = None
            self.assertEqual(self.ask(q)[1].get("x-deja-degraded"), None)

    def test_everybody_who_waited_gets_what_is_stored_or_what_he_wished(self):
        q = unique()
        s, h, body = self.ask(q, model="small")
        self.a.fail, self.a.hold = "503", 0.5
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(lambda i: self.ask(q, {"Cache-Control": "max-age=0"} if i == 3 else None, stream=i % 2 == 0), range(6)))
        self.assertEqual({(s, h["x-deja-degraded"]) for s, h, _ in answers}, {(200, "fallback")})
        self.assertEqual([h["x-deja-cache"] == "exact" for _, h, _ in answers], [i != 3 for i in range(6)])
        self.assertIn(streamed(answers[0][2]), (content(body), content(answers[3][2])))         # the one asked for anew is stored too
        self.assertEqual(self.b.count(q), 2)

    def test_later_requests_do_not_join_a_fallback_under_way(self):
        q = unique()
        self.a.fail = "500"
        self.b.hold = 1.0
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            first = pool.submit(self.ask, q)
            end = time.time() + 10
            while not self.b.count(q) and time.time() < end:
                time.sleep(0.02)
            self.a.fail, self.b.hold = None, 0
            s, h, body = self.ask(q)
            self.assertEqual((s, h["x-deja-cache"]), (200, "miss"))
            self.assertNotIn("x-deja-served-by", h)
            self.assertEqual(first.result()[1]["x-deja-served-by"], "fallback; model=small")

    def test_everybody_who_waited_gets_the_fallback(self):
        q = unique()
        self.a.fail, self.a.hold = "503", 0.5
        with concurrent.futures.ThreadPoolExecutor(10) as pool:
            answers = list(pool.map(lambda i: self.ask(q, stream=i % 2 == 0), range(10)))
        self.assertEqual({(s, h["x-deja-degraded"]) for s, h, _ in answers}, {(200, "fallback")})
        self.assertEqual(self.b.count(q), 1)
        self.assertEqual(len({streamed(b) if i % 2 == 0 else content(b) for i, (_, _, b) in enumerate(answers)}), 1)

    def test_steps_are_counted(self):
        before = self.metric("deja_degraded_total", 'step="fallback"')
        self.a.fail = "500"
        self.ask(unique())
        self.assertEqual(self.metric("deja_degraded_total", 'step="fallback"'), before + 1)
        self.assertGreater(self.metric("deja_fallback_total", 'model="small"'), 0)
        self.b.fail = "500"
        s, h, body = self.ask(unique())
        self.assertEqual((s, h["x-deja-degraded"]), (500, "refused"))
        self.assertEqual(json.loads(body)["error"]["message"], "as asked")           # of the first, in its own words
        self.assertGreater(self.metric("deja_degraded_total", 'step="refused"'), 0)

    def test_client_that_leaves_a_fallback_leaks_nothing(self):
        self.a.fail, self.b.hold = "500", 0.4
        for _ in range(5):
            body = json.dumps({"model": "big", "messages": [{"role": "user", "content": unique()}]}).encode()
            s = socket.create_connection(("127.0.0.1", self.port))
            s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            time.sleep(0.1)
            s.close()
        end = time.time() + 15
        while self.metric("deja_inflight") > 1 or self.metric("deja_upstream_inflight") > 0:
            self.assertLess(time.time(), end)
            time.sleep(0.1)


class Stale(Ladder):
    options = ("--cache-ttl-s", "1", "--stale-if-error-s", "600", "--fallback", "big=small")
    redis = True

    def expire(self, q, **kw):
        s, h, body = self.ask(q, **kw)
        self.assertEqual((s, h["x-deja-cache"]), (200, "miss"))
        end = time.time() + 10
        while "exact" == self.ask(q, {"Cache-Control": "only-if-cached"}, **kw)[1].get("x-deja-cache"):
            self.assertLess(time.time(), end)
            time.sleep(0.2)
        return body

    def break_both(self):
        self.a.fail = self.b.fail = "500"

    def test_expired_answer_is_never_served_while_the_model_answers(self):
        q = unique()
        self.expire(q)
        self.assertEqual(self.ask(q)[1]["x-deja-cache"], "miss")
        self.assertEqual(self.a.count(q), 2)

    def test_expired_answer_is_served_when_nothing_answers_with_its_age(self):
        for stream in (False, True):
            q = unique()
            body = self.expire(q)
            self.break_both()
            s, h, stale = self.ask(q, stream=stream)
            self.assertEqual((s, h["x-deja-cache"], h["x-deja-degraded"]), (200, "stale", "stale"))
            self.assertTrue(h["x-deja-reason"].startswith("stale:"))
            self.assertGreaterEqual(int(h["age"]), 1)
            self.assertRegex(h["cache-status"], r"^deja; hit; ttl=-\d+; detail=stale$")
            self.assertEqual(streamed(stale) if stream else content(stale), content(body))
            self.setUp()

    def test_fallback_comes_before_stale(self):
        q = unique()
        self.expire(q)
        self.a.fail = "500"
        self.assertEqual(self.ask(q)[1]["x-deja-degraded"], "fallback")

    def test_client_decides_how_stale_may_be(self):
        q = unique()
        self.expire(q)
        time.sleep(1.1)
        self.break_both()
        for control, status in (("stale-if-error=0", 500), ("no-cache", 500), ("max-age=1", 500), ("no-cache, stale-if-error=60", 200),
                                ("max-age=1, stale-if-error=60", 200), ("stale-if-error=60", 200)):
            s, h, _ = self.ask(q, {"Cache-Control": control})
            self.assertEqual((s, h["x-deja-degraded"]), (status, "stale" if status == 200 else "refused"), control)

    def test_stale_answer_that_was_removed_is_not_served(self):
        q = unique()
        self.expire(q)
        import subprocess
        subprocess.run(["redis-cli", "-s", self.rig.redis_socket, "FCALL", "deja_forget", "1", "{deja}", "prompt", q], check=True, stdout=subprocess.DEVNULL)
        self.break_both()
        end = time.time() + 10
        while self.ask(q)[0] != 500:
            self.assertLess(time.time(), end)
            time.sleep(0.1)

    def test_stale_answer_of_another_gateways_is_served_too(self):
        from tests.integration.rig import BIN, free_port
        q = unique()
        body = self.expire(q)
        port = free_port()
        p = self.rig.add("second" + uuid.uuid4().hex[:4], [BIN, "gateway", "--port", str(port), "--upstream", f"{self.a.url} models=big", "--redis",
                                                          self.rig.redis_url, "--cache-ttl-s", "1", "--upstream-retries", "0", "--coalesce-wait-ms", "0"])
        p.wait_for(lambda: call(port, "GET", "/ready")[0] == 200, 20)
        self.break_both()
        end = time.time() + 10                                                      # until it has read what was removed, it uses nothing of Redis
        s = 0
        while s != 200 and time.time() < end:
            s, h, stale = call(port, "POST", "/v1/chat/completions", {"model": "big", "messages": [{"role": "user", "content": q}], "temperature": 0})
        self.assertEqual((s, h.get("x-deja-degraded"), content(stale)), (200, "stale", content(body)))
        p.stop()

    def test_everybody_who_waited_is_told_by_his_own_wish(self):
        q = unique()
        self.expire(q)
        self.break_both()
        self.a.hold = 0.5
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(lambda i: self.ask(q, {"Cache-Control": "stale-if-error=0"} if i % 2 else None), range(6)))
        self.assertEqual([a[0] for a in answers], [200, 500] * 3)


class SlowReaders(Ladder):
    """Answers of megabytes to clients that read little by little: what one of them is being sent is no matter of the next step's."""
    options = ("--cache-ttl-s", "600", "--stale-if-error-s", "600", "--fallback", "big=small", "--cache-entry-bytes-max", "8000000")

    def open_stream(self, q, model="big", ttl=None, control=None):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.settimeout(20)
        s.connect(("127.0.0.1", self.port))
        self.addCleanup(s.close)
        body = json.dumps({"model": model, "messages": [{"role": "user", "content": q}], "temperature": 0, "stream": True}).encode()
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
                  b"Content-Length: %d\r\n\r\n" % len(body) + body)
        return s

    def rest(self, s):
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        out = b""
        while chunk := s.recv(1 << 20):
            out += chunk
        head, _, body = out.partition(b"\r\n\r\n")
        self.assertTrue(body.endswith(b"0\r\n\r\n"), body[-200:])
        self.assertEqual(body.count(b"HTTP/1.1"), 0)
        return head.decode().lower(), body.count(b"data: [DONE]")

    def test_a_client_that_reads_a_stored_stream_slowly_gets_all_of_it_whatever_becomes_of_the_others(self):
        for how in ("500", "503"):
            q = unique() + " [[pad:1000000]]"
            self.assertEqual(self.ask(q, model="small")[0], 200)
            time.sleep(2.1)                                                                       # too old for the other one
            self.a.fail = how
            self.a.hold = 0.7
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                slow = self.open_stream(q)
                time.sleep(0.2)
                self.b.fail = how
                other = pool.submit(self.ask, q, {"Cache-Control": "max-age=1, stale-if-error=0"})
                self.assertEqual((other.result()[0], other.result()[1]["x-deja-degraded"]), (int(how), "refused"))
                self.assertEqual(self.b.count(q), 2)
            head, done = self.rest(slow)
            self.assertIn("x-deja-degraded: fallback", head)
            self.assertEqual(done, 1)
            self.setUp()

    def test_a_client_that_reads_a_stale_stream_slowly_gets_all_of_it(self):
        q = unique() + " [[pad:1000000]]"
        self.assertEqual(self.ask(q, cache={"ttl": 1})[0], 200)
        time.sleep(2.1)
        self.a.fail = self.b.fail = "500"
        slow = self.open_stream(q)
        time.sleep(0.7)
        self.assertEqual(self.ask(unique())[0], 500)
        head, done = self.rest(slow)
        self.assertIn("x-deja-degraded: stale", head)
        self.assertEqual(done, 1)


class Canned(Ladder):
    folder = None
    options = ("--stale-if-error-s", "0", "--upstream-retries", "0")

    @classmethod
    def setUpClass(cls):
        import tempfile
        cls.text = tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf8")
        cls.text.write("We are having trouble, 请稍后再试.\n")
        cls.text.flush()
        cls.options = (*Canned.options, "--canned-answer-file", cls.text.name)
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.text.close()

    def test_canned_answer_is_the_last_step_and_leaves_no_trace(self):
        for stream in (False, True):
            q = unique()
            self.a.fail = "503"
            s, h, body = self.ask(q, stream=stream)
            self.assertEqual((s, h["x-deja-degraded"], h["x-deja-reason"]), (200, "canned", "canned"))
            self.assertEqual(streamed(body) if stream else content(body), "We are having trouble, 请稍后再试.")
            if not stream:
                self.assertEqual((json.loads(body)["choices"][0]["finish_reason"], json.loads(body)["usage"]["total_tokens"]), ("stop", 0))
            self.a.fail = None
            self.assertEqual(self.ask(q)[1]["x-deja-cache"], "miss")
            self.assertEqual(self.a.count(q), 2)

    def test_request_for_a_form_gets_an_error_instead_of_a_sentence(self):
        self.a.fail = "503"
        s, h, _ = self.ask(unique(), response_format={"type": "json_object"})
        self.assertEqual((s, h["x-deja-degraded"]), (503, "refused"))

    def test_completions_have_it_in_their_own_form(self):
        self.a.fail = "500"
        s, h, body = call(self.port, "POST", "/v1/completions", {"model": "big", "prompt": unique()})
        self.assertEqual((s, h["x-deja-degraded"], json.loads(body)["choices"][0]["text"]), (200, "canned", "We are having trouble, 请稍后再试."))


class Rules(Ladder):
    options = ("--route", "chat when prompt_tokens > 500 -> big", "--route", "chat when tenant=nobody -> nowhere", "--route", "chat -> small",
               "--model-alias", "assistant=chat", "--fallback", "big=small", "--stale-if-error-s", "0")

    def test_rule_decides_which_model_answers_and_what_the_key_holds(self):
        q = unique()
        for model in ("chat", "assistant"):
            s, h, _ = self.ask(q, model=model)
            self.assertEqual((s, h["x-deja-model"], self.b.last()["json"]["model"]), (200, "small", "small"))
        self.assertEqual(self.b.count(q), 1)                                     # one key for all three names
        s, h, _ = self.ask(q, model="small")
        self.assertEqual(h["x-deja-cache"], "exact")
        self.assertNotIn("x-deja-model", h)
        long = unique("word " * 500)
        s, h, _ = self.ask(long, model="chat", stream=True)
        self.assertEqual((s, h["x-deja-model"], self.a.count(long)), (200, "big", 1))

    def test_fallback_is_that_of_the_model_the_rule_led_to(self):
        self.a.fail = "500"
        s, h, _ = self.ask(unique("词" * 600), model="chat")
        self.assertEqual((s, h["x-deja-model"], h["x-deja-served-by"]), (200, "big", "fallback; model=small"))

    def test_rule_that_cannot_be_read_is_refused_at_the_start(self):
        from tests.integration.rig import BIN, free_port
        p = self.rig.add("refused", [BIN, "gateway", "--port", str(free_port()), "--upstream", self.a.url, "--route", "chat when mood=good -> small"])
        self.assertNotEqual(p.popen.wait(20), 0)
        self.assertIn("mood", p.tail())


class Elsewhere(unittest.TestCase):
    def test_same_model_at_another_upstream_is_named_too(self):
        rig, a, b = Rig(), FakeUpstream(), FakeUpstream()
        try:
            rig.gateway("--upstream", f"{a.url} weight=1000", "--upstream", f"{b.url} weight=0.001", "--breaker-error-percent", "0")
            a.fail = "500"
            s, h, _ = call(rig.port, "POST", "/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": unique()}]})
            self.assertEqual((s, h["x-deja-degraded"]), (200, "elsewhere"))
            self.assertEqual((a.count(), b.count()), (1, 1))
        finally:
            a.close()
            b.close()
            rig.close()


if __name__ == "__main__":
    unittest.main()
