"""Goal: some semantic hits are also answered by the model, beside the requests, and what the comparison says is counted for the namespace and
the arm and learnt from; a client notices nothing. Method: a gateway on a real redis-server, a scripted upstream."""
import json
import os
import re
import time
import unittest

from tests.integration.fake_upstream import FakeUpstream
from tests.integration.live_rig import cli, fcall, until
from tests.integration.rig import DATA, Rig, ask, call

TINY = os.path.join(DATA, "tiny-bert.gguf")
QUESTION, REWORDED = "How do I reset my password?", "How do I get a new password?"


class Shadow(unittest.TestCase):
    def setUp(self):
        self.rig, self.fake = Rig(), FakeUpstream()
        self.addCleanup(self.fake.close)
        self.addCleanup(self.rig.close)
        self.rig.redis()
        self.process = self.rig.gateway("--upstream", self.fake.url, "--redis", self.rig.redis_url, "--embed-model", TINY,
                                        "--cache-redis-deadline-ms", "1000", "--cache-embed-deadline-ms", "5000")
        self.fake.say = "It takes 3 days."
        self.entry = ask(self.rig.port, QUESTION)[1]["x-deja-entry"]
        for name, value in (("threshold_en", "0.01"), ("guard_replaced_word", "no"), ("guard_added_word", "no"), ("max_age_s", "3600")):
            fcall(self.rig, "deja_config_set", name, value)             # so that similarity alone decides, and there is something to learn
        until(lambda: self.hit(cache={"ttl": 1})["x-deja-cache"] == "semantic", 10)
        version = re.match(r"\D*(\d+)", fcall(self.rig, "deja_config_set", "shadow_percent", "100"))[1]
        until(lambda: f"settings in force version={version} " in self.process.tail(200000), 5)

    def hit(self, **kw):
        kw.setdefault("cache", {"ttl": 1})
        return ask(self.rig.port, REWORDED, **kw)[1]

    def stats(self):
        return json.loads(fcall(self.rig, "deja_stats", "JSON"))

    def shadows(self, answers):
        text = call(self.rig.port, "GET", "/metrics")[2].decode()
        return sum(float(x.split()[-1]) for x in text.splitlines() if x.startswith(f'deja_shadows_total{{answers="{answers}"}}'))

    def test_what_the_model_says_now_is_held_against_what_was_reused(self):
        calls = self.fake.count()
        headers = self.hit()
        self.assertEqual((headers["x-deja-cache"], headers["x-deja-entry"]), ("semantic", self.entry))
        until(lambda: self.stats()["checked"] == 1, 5)
        self.assertEqual((self.stats()["wrong"], self.fake.count()), (0, calls + 1))
        self.fake.say = "It takes 5 days."
        self.hit()
        until(lambda: self.stats()["checked"] == 2, 5)
        self.assertEqual((self.stats()["wrong"], self.stats()["feedback"]), (1, 0))
        self.assertIn("1 of 2 checked semantic hits were wrong", fcall(self.rig, "deja_stats"))
        self.assertEqual((self.shadows("same"), self.shadows("differ")), (1, 1))
        evidence = cli(self.rig, "XRANGE", "deja:{deja}:evidence", "-", "+").split()
        self.assertEqual([evidence[i + 1] for i, w in enumerate(evidence) if w == "by"].count("shadow"), 2)
        self.assertEqual(self.hit()["x-deja-cache"], "semantic")     # one comparison removes nothing

    def test_a_stream_is_asked_again_as_a_plain_request_and_the_arm_gets_the_evidence(self):
        fcall(self.rig, "deja_experiment_start", "x", "ARM", "a", "ARM", "b", "max_age_s", "0")
        until(lambda: "x-deja-arm" in ask(self.rig.port, QUESTION)[1], 3)
        status, headers, _ = ask(self.rig.port, REWORDED, stream=True, stream_options={"include_usage": True})
        self.assertEqual((status, headers["x-deja-cache"]), (200, "semantic"))
        arm = headers["x-deja-arm"].split("/")[1]

        def checked():
            report = json.loads(fcall(self.rig, "deja_experiment_report", "JSON"))
            return {a["name"]: a["checked"] for a in report["arms"]}
        until(lambda: checked()[arm] == 1, 5)
        self.assertEqual(sum(checked().values()), 1)
        time.sleep(1.2)                                              # which arm was given this entry is known with the next batch
        self.assertEqual(fcall(self.rig, "deja_feedback", self.entry, "right").split()[-1], "1")
        self.assertEqual(checked()[arm], 2)
        fcall(self.rig, "deja_config_set", "ttl_s", "7200")
        self.assertIn("note: settings were changed 1 times meanwhile", fcall(self.rig, "deja_experiment_report"))
        asked = [c["json"] for c in self.fake.calls if c["text"] == REWORDED][-1]
        self.assertNotIn("stream", asked)
        self.assertNotIn("stream_options", asked)

    def test_an_upstream_that_fails_or_hangs_changes_nothing_for_clients(self):
        self.fake.fail = "500"
        self.hit()
        until(lambda: self.shadows("none") == 1, 5)
        self.assertEqual(self.stats()["checked"], 0)
        self.fake.fail = None
        self.fake.say = "It takes 3 days." * 2000                    # too long to compare
        self.hit()
        until(lambda: self.shadows("none") == 2, 5)
        self.fake.hold = 3
        begin = time.time()
        for _ in range(12):                                          # more than may be under way
            self.assertEqual(self.hit()["x-deja-cache"], "semantic")
        self.assertLess(time.time() - begin, 2)
        text = call(self.rig.port, "GET", "/metrics")[2].decode()
        self.assertGreaterEqual(float(re.search(r"^deja_shadows_dropped_total (\S+)", text, re.M)[1]), 4)
        self.assertEqual(self.process.stop(), 0)                     # with samples under way


if __name__ == "__main__":
    unittest.main()
