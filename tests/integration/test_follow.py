"""Goal: a question that the semantic policy would answer from one that is being asked waits for that answer (knob join_similar), and never
gets what a stored answer would not have given it: another tenant, prompt, set of options or guard keeps them apart, and a leader that
fails or says what the cache would not keep sends it on its own way. Method: a real encoder with its verifier, a scripted upstream with a gate."""
import http.client
import json
import os
import threading
import time
import unittest

from tests.integration.fake_upstream import FakeUpstream
from tests.integration.live_rig import fcall, until
from tests.integration.rig import E5, MINILM, Rig, call, metric, model
from tests.integration.test_flight import reply_text

ONE, OTHER = "How do I reset my password?", "How can I reset my password?"
UNLIKE = "How do I cancel my order?"
KEYS = "key-a a\nkey-b b\n"


@unittest.skipUnless(model(E5) or model(MINILM), "no encoder in the model cache")
class Follow(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig, cls.up = Rig(), FakeUpstream()
        cls.rig.redis()
        keys = os.path.join(cls.rig.folder, "keys")
        with open(keys, "w", encoding="utf8") as f:
            f.write(KEYS)
        cls.rig.gateway("--upstream", cls.up.url, "--embed-model", model(E5) or model(MINILM), "--redis", cls.rig.redis_url, "--api-keys", keys,
                        "--cache-embed-deadline-ms", "10000", "--coalesce-max", "8", seconds=240)
        cls.n = 0

    @classmethod
    def tearDownClass(cls):
        cls.up.close()
        cls.rig.close()

    def setUp(self):
        self.addCleanup(setattr, self.up, "gate", None)
        self.system = f"You answer in shop {self._testMethodName}."       # its own partition
        self.knob("whole")

    def knob(self, value, *where):
        fcall(self.rig, "deja_config_set", "join_similar", value, *where)
        until(lambda: f'"name":"join_similar","value":"{value}"' in fcall(self.rig, "deja_config_get", "JSON").replace(" ", ""), 5)
        time.sleep(1.2)                                # every gateway has it within a second

    def ask(self, text, stream=False, key="key-a", system=None, headers=None, **more):
        body = {"model": "m", "messages": [{"role": "system", "content": system or self.system}, {"role": "user", "content": text}],
                "temperature": 0, "stream": stream, **more}
        return call(self.rig.port, "POST", "/v1/chat/completions", body, {"Authorization": "Bearer " + key, **(headers or {})}, 60)

    def start(self, text, **more):
        box = {}
        t = threading.Thread(target=lambda: box.update(reply=self.ask(text, **more)), daemon=True)
        t.start()

        def reply():
            t.join(60)
            return box["reply"]
        return reply

    def shut(self):
        self.up.gate = threading.Event()
        self.addCleanup(self.up.gate.set)

    def lead(self, text, **more):
        """A question at the upstream, whose gate is closed."""
        before = self.up.count()
        self.shut()
        reply = self.start(text, **more)
        until(lambda: self.up.count() == before + 1, 30, "the leader's call")
        return reply

    def ends(self, end):
        return metric(self.rig.port, "deja_join_similar_total", f'end="{end}"')

    def alone(self, text, **more):
        """Asked beside one in flight: it asks the upstream itself."""
        before = self.up.count()
        reply = self.start(text, **more)
        until(lambda: self.up.count() == before + 1, 30, "a call of its own")
        return reply

    def followed(self, text, **more):
        """Asked beside one in flight: it waits."""
        before, t = self.up.count(), self.start(text, **more)
        time.sleep(1.5)
        self.assertEqual(self.up.count(), before)
        return t

    def test_a_rewording_of_a_question_in_flight_gets_its_answer_whole_or_streamed(self):
        lead = self.lead(ONE)
        before, saved = self.ends("served"), metric(self.rig.port, "deja_coalesced_total")
        whole, stream = self.followed(OTHER), self.followed(OTHER, stream=True)
        self.up.gate.set()
        replies = [lead(), whole(), stream()]
        self.assertEqual([r[0] for r in replies], [200] * 3)
        self.assertEqual(replies[0][1]["x-deja-cache"], "miss")
        for r in replies[1:]:
            h = r[1]
            self.assertEqual((h["x-deja-cache"], h["cache-status"]), ("coalesced", "deja; fwd=miss; collapsed; detail=semantic"))
            self.assertTrue(h["x-deja-reason"].startswith("in_flight:"), h)
            self.assertGreater(float(h["x-deja-similarity"]), 0.8)
            self.assertEqual(h["x-deja-entry"], replies[0][1]["x-deja-entry"])
        self.assertEqual(len({reply_text(r, i == 2) for i, r in enumerate(replies)}), 1)
        self.assertTrue(replies[2][2].rstrip().endswith(b"data: [DONE]"))
        self.assertEqual(self.ends("served"), before + 2)
        self.assertEqual(metric(self.rig.port, "deja_coalesced_total"), saved + 2)
        self.assertEqual(self.ask(OTHER)[1]["x-deja-cache"], "semantic")        # what came is stored once, under the leader's question

        def counted():
            stats = json.loads(fcall(self.rig, "deja_stats", "JSON"))
            return stats["followed"] >= 2 and stats["coalesced"] >= 2
        until(counted, 10, "the count in Redis")

    def test_off_by_default_and_per_namespace(self):
        self.knob("no")
        self.knob("whole", "IN", "ns:faq")
        lead = self.lead(ONE)
        own = self.alone(OTHER)
        ns = {"x-deja-namespace": "faq"}
        first = self.alone(ONE, headers=ns)
        second = self.followed(OTHER, headers=ns)
        self.up.gate.set()
        self.assertEqual([r()[1]["x-deja-cache"] for r in (lead, own, first, second)], ["miss", "miss", "miss", "coalesced"])
        fcall(self.rig, "deja_config_set", "join_similar", "unset", "IN", "ns:faq")

    def test_what_a_stored_answer_would_not_serve_follows_nobody(self):
        lead = self.lead(ONE)
        others = [self.alone(UNLIKE), self.alone("How do I reset my PIN?"), self.alone("How can I not reset my password?"),
                  self.alone(OTHER, key="key-b"), self.alone(OTHER, system="You answer for another shop."), self.alone(OTHER, max_tokens=7),
                  self.alone(OTHER, temperature=0.5), self.alone(OTHER, headers={"x-deja-namespace": "else"}),
                  self.alone(OTHER, headers={"x-deja-cache": "exact"}), self.alone(OTHER, headers={"Cache-Control": "no-cache"}),
                  self.alone(OTHER, headers={"Cache-Control": "no-store"}), self.alone("How could I reset my password?", headers={"x-deja-threshold": "1"})]
        self.up.gate.set()
        self.assertEqual(lead()[1]["x-deja-cache"], "miss")
        for r in others:
            self.assertIn(r()[1]["x-deja-cache"], ("miss", "bypass"))

    def test_an_answer_nobody_would_store_or_none_sends_followers_on_their_own_way_at_once(self):
        for i, words in enumerate(("[[finish:length]]", "[[status:500]]", "[[cut]]", "[[tools]]", "[[finish:content_filter]]")):
            self.system = f"You answer in shop {i}."
            self.up.words = {ONE: words}
            served, alone, calls = self.ends("served"), self.ends("alone"), self.up.count(OTHER)
            lead = self.lead(ONE)
            whole, stream = self.followed(OTHER), self.followed(OTHER, stream=True)
            self.up.gate.set()
            lead()
            for r, streamed in ((whole(), False), (stream(), True)):
                self.assertEqual(r[0], 200, words)
                self.assertTrue(reply_text(r, streamed).startswith("reply"), words)
            self.assertEqual(sorted(r()[1]["x-deja-reason"] for r in (whole, stream)), ["in_flight", "leader_lost"], words)
            self.assertEqual((self.ends("served"), self.ends("alone")), (served, alone + 2), words)
            self.assertEqual(self.up.count(OTHER), calls + 1, words)          # those two are equal: one call
            self.up.gate, self.up.words = None, {}

    def test_the_leaders_client_may_leave_and_a_follower_too(self):
        before = self.up.count()
        self.shut()
        c = http.client.HTTPConnection("127.0.0.1", self.rig.port, timeout=60)
        c.request("POST", "/v1/chat/completions", json.dumps({"model": "m", "temperature": 0, "messages": [
            {"role": "system", "content": self.system}, {"role": "user", "content": ONE}]}),
            {"Authorization": "Bearer key-a", "Content-Type": "application/json"})
        until(lambda: self.up.count() == before + 1, 30, "the leader's call")
        stays = self.followed(OTHER)
        c.sock.close()
        c.close()
        time.sleep(0.5)
        self.up.gate.set()
        self.assertEqual(stays()[1]["x-deja-cache"], "coalesced")
        self.assertEqual(self.up.count(), before + 1)

    def test_live_streams_flow_while_the_leader_still_speaks(self):
        self.knob("live")
        begun, body = threading.Event(), {}
        self.up.words, before = {ONE: "[[drip:600]]"}, self.up.count()
        lead = self.start(ONE, stream=True)
        until(lambda: self.up.count() == before + 1, 30)

        def read():
            c = http.client.HTTPConnection("127.0.0.1", self.rig.port, timeout=60)
            c.request("POST", "/v1/chat/completions", json.dumps({"model": "m", "temperature": 0, "stream": True, "messages": [
                {"role": "system", "content": self.system}, {"role": "user", "content": OTHER}]}),
                {"Authorization": "Bearer key-a", "Content-Type": "application/json"})
            r = c.getresponse()
            body["headers"] = dict(r.getheaders())
            r.readline()
            body["first"] = time.time()
            begun.set()
            body["rest"] = r.read()
            body["last"] = time.time()
        t = threading.Thread(target=read, daemon=True)
        t.start()
        self.assertTrue(begun.wait(30))
        t.join(60)
        self.assertEqual({k.lower(): v for k, v in body["headers"].items()}["x-deja-cache"], "coalesced")
        self.assertTrue(body["rest"].rstrip().endswith(b"data: [DONE]"))
        self.assertEqual(lead()[0], 200)
        self.assertGreater(body["last"] - body["first"], 0.3)
        self.up.words = {}

    def test_no_more_than_the_bound_wait_behind_one(self):
        lead = self.lead(ONE)
        inside = [self.start(OTHER) for _ in range(7)]
        time.sleep(2.5)
        before = self.up.count()
        outside = self.alone(OTHER + " please")
        self.assertEqual(self.up.count(), before + 1)
        self.up.gate.set()
        self.assertEqual([r()[1]["x-deja-cache"] for r in (lead, *inside, outside)], ["miss"] + ["coalesced"] * 7 + ["miss"])


if __name__ == "__main__":
    unittest.main()
