"""Goal: equal requests at the same time at several gateways of one Redis come to one upstream call, and sharing it never costs a client its
answer: leaders that die, leave or fall silent, and a Redis that stops, are passed over within bounds; tenants share nothing. Method: two
gateways, a scripted upstream with a gate, a private Redis."""
import http.client
import json
import os
import signal
import threading
import time
import unittest

from tests.integration.fake_upstream import FakeUpstream
from tests.integration.live_rig import until
from tests.integration.rig import Rig, call, metric

WAIT_MS = 2000                                         # where somebody falls silent; else long, so that a slow machine is not taken for that


def sse_text(raw):
    out = ""
    for line in raw.decode().splitlines():
        if line.startswith("data: {"):
            for c in json.loads(line[6:]).get("choices", []):
                out += c["delta"].get("content") or ""
    return out


def reply_text(r, stream):
    return sse_text(r[2]) if stream else json.loads(r[2])["choices"][0]["message"]["content"]


class Flight(unittest.TestCase):
    def setUp(self):
        self.rig, self.up = Rig(), FakeUpstream()
        self.addCleanup(self.up.close)
        self.addCleanup(self.rig.close)
        self.redis = self.rig.redis()
        self.keys = os.path.join(self.rig.folder, "keys")
        with open(self.keys, "w", encoding="utf8") as f:
            f.write("key-a a\nkey-b b\n")
        self.ports, self.gateways = [], []
        silent = any(w in self._testMethodName for w in ("dies", "redis"))
        for name in ("one", "two"):
            self.gateways.append(self.rig.gateway("--upstream", self.up.url, "--redis", self.rig.redis_url, "--api-keys", self.keys,
                                                  "--cache-redis-deadline-ms", "3000", "--coalesce-wait-ms", str(WAIT_MS if silent else 30000),
                                                  name=name))
            self.ports.append(self.rig.port)
        self.results = {}

    def ask(self, port, text, stream=False, key="key-a"):
        body = {"model": "m", "messages": [{"role": "user", "content": text}], "temperature": 0, "stream": stream}
        return call(self.ports[port], "POST", "/v1/chat/completions", body, {"Authorization": "Bearer " + key}, 60)

    def in_background(self, name, *args, **more):
        def run():
            try:
                self.results[name] = self.ask(*args, **more)
            except (OSError, http.client.HTTPException) as e:
                self.results[name] = e
        t = threading.Thread(target=run, daemon=True)
        t.start()
        return t

    def metric(self, port, part):
        return metric(self.ports[port], "deja_flight_total", f'part="{part}"')

    def sent(self):
        return metric(self.ports[0], "deja_flight_sent_bytes_total")

    def led_and_followed(self, text, streams=(True, True)):
        """One request at gateway 0 that leads, one at gateway 1 that follows; the upstream's gate is closed."""
        self.up.gate = threading.Event()
        self.addCleanup(self.up.gate.set)
        led = self.in_background("lead", 0, text, streams[0])
        until(lambda: self.up.count(text) == 1, 20, "the leader's call")
        followed = self.in_background("follow", 1, text, streams[1])
        until(lambda: self.metric(1, "followed") == 1, 20, "the follower")
        return led, followed

    def test_fifty_at_once_at_two_gateways_come_to_one_call_and_get_one_answer(self):
        for form in ("mixed", "whole", "stream"):
            text = f"fifty {form} [[drip:20]]"
            self.up.gate = threading.Event()
            streams = [form == "stream" or (form == "mixed" and i % 3 == 0) for i in range(50)]
            threads = [self.in_background((form, i), i % 2, text, streams[i]) for i in range(50)]
            until(lambda: self.up.count(text) >= 1, 20, "a call")
            time.sleep(0.3)
            self.up.gate.set()
            for t in threads:
                t.join(60)
            replies = [self.results[(form, i)] for i in range(50)]
            self.assertEqual({r[0] for r in replies}, {200}, replies[0])
            self.assertEqual(len({reply_text(r, s) for r, s in zip(replies, streams)}), 1)
            self.assertEqual(self.up.count(text), 1, form)
            for r, s in zip(replies, streams):
                self.assertTrue(not s or r[2].rstrip().endswith(b"data: [DONE]"), r)
            self.assertEqual(sum(r[1]["x-deja-cache"] == "miss" for r in replies), 1)
        self.assertGreaterEqual(sum(self.metric(p, "followed") for p in (0, 1)), 3)

    def test_answers_that_come_at_once_leave_no_gap_for_a_second_call(self):
        for i in range(8):
            text = f"fast {i}"
            threads = [self.in_background((i, k), k % 2, text, k % 3 == 0) for k in range(12)]
            for t in threads:
                t.join(60)
            replies = [self.results[(i, k)] for k in range(12)]
            self.assertEqual({r[0] for r in replies}, {200}, replies[0])
            self.assertEqual(len({reply_text(r, k % 3 == 0) for k, r in enumerate(replies)}), 1)
            self.assertEqual(self.up.count(text), 1, [r[1]["x-deja-cache"] for r in replies])

    def test_a_gateway_that_is_alone_asks_nobody_until_another_one_starts(self):
        def others(port):
            return metric(port, "deja_flight_gateways")

        self.assertEqual(others(self.ports[0]), 1)
        self.gateways[1].stop()
        until(lambda: others(self.ports[0]) == 0, 60, "noticing that the other one has gone")
        until(lambda: self.metric(0, "led") == self.asked_and_led("alone"), 30, "asking nobody")
        self.gateways[1].start().wait_for(lambda: call(self.ports[1], "GET", "/ready")[0] == 200)
        until(lambda: others(self.ports[0]) == 1, 20, "hearing of the new one")
        self.results.clear()
        led, followed = self.led_and_followed("together again")
        self.up.gate.set()
        led.join(60)
        followed.join(60)
        self.assertEqual((self.up.count("together again"), self.results["lead"][0], self.results["follow"][0]), (1, 200, 200))

    def asked_and_led(self, text):
        """Asks something new; how many calls had been led before."""
        before = self.metric(0, "led")
        self.asked = getattr(self, "asked", 0) + 1
        self.assertEqual(self.ask(0, f"{text} {self.asked}")[0], 200)
        return before

    def test_a_follower_reads_the_stream_while_it_comes(self):
        text = "as it comes [[chunks:20]][[drip:100]]"
        led = self.in_background("lead", 0, text, True)
        until(lambda: self.up.count(text) == 1, 20, "the leader's call")
        c = http.client.HTTPConnection("127.0.0.1", self.ports[1], timeout=60)
        body = {"model": "m", "messages": [{"role": "user", "content": text}], "temperature": 0, "stream": True}
        c.request("POST", "/v1/chat/completions", json.dumps(body), {"Authorization": "Bearer key-a", "Content-Type": "application/json"})
        r = c.getresponse()
        first = r.readline()
        self.assertEqual((r.status, r.getheader("x-deja-cache")), (200, "coalesced"))
        self.assertTrue(led.is_alive(), "the first frame came after the end")
        raw = first + r.read()
        c.close()
        led.join(60)
        self.assertEqual((sse_text(raw), self.up.count(text)), (sse_text(self.results["lead"][2]), 1))

    def test_an_error_of_the_upstream_is_told_to_all_and_kept_by_nobody(self):
        text = "no [[status:400]]"
        both = self.led_and_followed(text, (False, False))
        self.up.gate.set()
        for t in both:
            t.join(60)
        self.assertEqual([self.results[n][0] for n in ("lead", "follow")], [400, 400])
        self.assertEqual(self.results["lead"][2], self.results["follow"][2])
        self.assertEqual(self.up.count(text), 1)
        self.assertEqual(self.ask(1, text)[0], 400)
        self.assertEqual(self.up.count(text), 2)

    def test_followers_of_a_leader_that_dies_are_served_by_one_of_their_own(self):
        text = "the leader dies"
        _, followed = self.led_and_followed(text)
        self.gateways[0].kill(signal.SIGKILL)
        until(lambda: self.up.count(text) == 2, 30, "a call of the follower")
        self.up.gate.set()
        followed.join(60)
        status, h, raw = self.results["follow"]
        self.assertEqual((status, h["x-deja-cache"], self.up.count(text)), (200, "miss", 2))
        self.assertTrue(raw.rstrip().endswith(b"data: [DONE]"))

    def test_a_stream_that_was_begun_is_cut_in_time_when_the_leader_dies(self):
        text = "dies in the middle [[hangmid]]"
        self.in_background("lead", 0, text, True)
        until(lambda: self.up.count(text) == 1, 20, "the leader's call")
        followed = self.in_background("follow", 1, text, True)
        until(lambda: self.metric(1, "followed") == 1, 20, "the follower")
        until(lambda: self.sent() > 0, 20, "the beginning sent to the follower")
        self.gateways[0].kill(signal.SIGKILL)
        followed.join(30)
        raw = self.results["follow"][2]
        self.assertIn(b'"error"', raw)
        self.assertNotIn(b"[DONE]", raw)
        self.assertEqual(self.up.count(text), 1)

    def test_followers_get_the_whole_answer_when_the_leaders_client_leaves(self):
        text = "the client leaves [[chunks:10]][[drip:100]]"
        self.up.gate = threading.Event()
        c = http.client.HTTPConnection("127.0.0.1", self.ports[0], timeout=60)
        body = {"model": "m", "messages": [{"role": "user", "content": text}], "temperature": 0, "stream": True}
        c.request("POST", "/v1/chat/completions", json.dumps(body), {"Authorization": "Bearer key-a", "Content-Type": "application/json"})
        until(lambda: self.up.count(text) == 1, 20, "the leader's call")
        followed = [self.in_background(i, 1, text, i % 2 == 0) for i in range(4)]
        until(lambda: self.metric(1, "followed") == 1, 20, "the follower")
        c.close()
        time.sleep(0.3)
        self.up.gate.set()
        for t in followed:
            t.join(60)
        texts = {reply_text(self.results[i], i % 2 == 0) for i in range(4)}
        self.assertEqual((len(texts), self.up.count(text)), (1, 1))
        self.assertIn("piece 9", texts.pop())

    def test_a_redis_that_stops_in_the_middle_delays_followers_by_a_bounded_time(self):
        text = "redis stops"
        led, followed = self.led_and_followed(text, (False, False))
        self.redis.kill(signal.SIGSTOP)
        try:
            until(lambda: self.up.count(text) == 2, 30, "a call of the follower")
            self.up.gate.set()
            led.join(60)
            followed.join(60)
            self.assertEqual([self.results[n][0] for n in ("lead", "follow")], [200, 200])
            self.assertEqual(self.ask(0, "while it is stopped")[0], 200)
        finally:
            self.redis.kill(signal.SIGCONT)

    def test_a_stream_goes_on_after_redis_was_stopped_for_a_moment(self):
        text = "a moment [[chunks:80]][[drip:60]]"
        led = self.in_background("lead", 0, text, True)
        until(lambda: self.up.count(text) == 1, 20, "the leader's call")
        followed = self.in_background("follow", 1, text, True)
        until(lambda: self.metric(1, "followed") == 1, 20, "the follower")
        until(lambda: self.sent() > 0, 20, "the beginning sent to the follower")
        self.redis.kill(signal.SIGSTOP)
        time.sleep(1.5 * WAIT_MS / 1000)
        self.redis.kill(signal.SIGCONT)
        led.join(60)
        followed.join(60)
        self.assertEqual(sse_text(self.results["follow"][2]), sse_text(self.results["lead"][2]))
        self.assertEqual(self.up.count(text), 1)

    def test_tenants_share_nothing(self):
        text = "whose is it"
        self.up.gate = threading.Event()
        threads = [self.in_background(i, i % 2, text, key=("key-a", "key-b")[i // 2]) for i in range(4)]
        until(lambda: self.up.count(text) == 2, 20, "two calls")
        self.up.gate.set()
        for t in threads:
            t.join(60)
        said = [reply_text(self.results[i], False) for i in range(4)]
        self.assertEqual((said[0] == said[1], said[2] == said[3], said[0] != said[2], self.up.count(text)), (True, True, True, 2))


if __name__ == "__main__":
    unittest.main()
