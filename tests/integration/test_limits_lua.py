"""Goal: what Redis says about limits is right whatever order things happen in: a reservation is taken whole or not at all, no more passes
than GCRA allows, what was not used comes back once, leases end, money is counted on the day it was reserved, a shadow limit counts and
refuses nothing. Method: the Functions on a real redis-server, called as a gateway calls them, against a count of their own."""
import json
import random
import threading
import time
import unittest

from tests.integration.live_rig import Resp, cli, fcall, load_library, until
from tests.integration.rig import Rig

NONE = {"rpm": 0, "rpd": 0, "tpm": 0, "tpd": 0, "concurrency": 0, "day": 0, "month": 0}
VIEW = ("allowed", "kind", "bucket", "used", "retry_ms", "shadow_kind", "shadow_bucket", "limit_requests", "left_requests", "full_requests",
        "limit_tokens", "left_tokens", "full_tokens")


class Limits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig = Rig()
        cls.addClassCleanup(cls.rig.close)
        cls.rig.redis()
        load_library(cls.rig)
        cls.redis = Resp(cls.rig.redis_socket)
        cls.addClassCleanup(cls.redis.close)

    def setUp(self):
        self.redis("FLUSHALL")
        self.n = 0

    def reserve(self, *buckets, tokens=10, cost=0, mode="-", lease=60000, rid=None, redis=None):
        self.n += 1
        args = ["reserve", rid or f"r{self.n}", mode, lease, tokens, cost, len(buckets)]
        for name, limits in buckets:
            v = {**NONE, **limits}
            args += [name, 1 if v.get("shadow") else 0] + [v[k] for k in NONE]
        reply = (redis or self.redis).fcall("deja_limit", *args)
        self.assertIsInstance(reply, list, reply)
        return {**dict(zip(VIEW, reply)), "id": args[1], "money": reply[len(VIEW):]}

    def settle(self, *items):
        return self.redis.fcall("deja_limit", "settle", *[v for item in items for v in (item + (0,) * 4)[:4]])

    def status(self, bucket):
        return json.loads(self.redis.fcall("deja_limit_status", bucket, "JSON"))[0]

    def test_exactly_the_limit_passes_and_the_next_is_told_when_to_come_again(self):
        for limit in (1, 7, 60, 97, 1000):
            b = (f"tenant:t{limit}", {"rpm": limit})
            seen = [self.reserve(b) for _ in range(limit + 1)]
            begin = time.time()
            self.assertTrue(all(x["allowed"] for x in seen[:limit]), limit)
            step = 60000 / limit
            if step > 200:                                    # else the next one may be due already
                self.assertFalse(seen[limit]["allowed"])
                self.assertEqual((seen[limit]["kind"], seen[limit]["left_requests"], seen[limit]["limit_requests"]), (1, 0, limit))
                self.assertTrue(0 < seen[limit]["retry_ms"] <= step + 1, seen[limit])
        b = ("tenant:fast", {"rpm": 600})                     # 100 ms a request
        for _ in range(600):
            self.reserve(b)
        while self.reserve(b)["allowed"]:
            pass
        begin = time.time()
        until(lambda: self.reserve(b)["allowed"], 5)
        self.assertLess(time.time() - begin, 2)

    def test_tokens_are_never_oversold_by_many_clients_at_once(self):
        limit, took, lock = 100000, [], threading.Lock()

        def client(seed):
            r, redis = random.Random(seed), Resp(self.rig.redis_socket)
            for i in range(40):
                n = r.randint(1, 500)
                x = self.reserve(("tenant:a", {"tpm": limit}), ("all", {"tpm": limit * 10}), tokens=n, rid=f"c{seed}-{i}", redis=redis)
                with lock:
                    took.append(n if x["allowed"] else 0)
            redis.close()
        begin = time.time()
        threads = [threading.Thread(target=client, args=(s,)) for s in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        flowed = (time.time() - begin) * limit / 60
        self.assertLessEqual(sum(took), limit + flowed + 1)
        self.assertGreater(sum(took), limit - 500)
        self.assertIn(0, took)

    def test_a_refusal_in_one_bucket_takes_nothing_from_any_other(self):
        self.reserve(("tenant:a", {"concurrency": 1}))
        for _ in range(5):
            x = self.reserve(("all", {"rpm": 10, "tpm": 1000, "day": 5}), ("tenant:a", {"concurrency": 1, "rpm": 10}), cost=1)
            self.assertEqual((x["allowed"], x["kind"], x["bucket"]), (0, 5, 2))
        x = self.reserve(("all", {"rpm": 10, "tpm": 1000, "day": 5}), cost=1)
        self.assertEqual((x["allowed"], x["left_requests"], x["left_tokens"], x["money"]), (1, 9, 990, [4000000]))

    def test_what_was_not_used_comes_back_once_and_what_was_used_beyond_is_owed(self):
        b = ("tenant:a", {"tpm": 1000})
        x = self.reserve(b, tokens=900)
        self.assertFalse(self.reserve(b, tokens=200)["allowed"])
        self.assertEqual(self.settle((x["id"], 100)), 1)
        self.assertEqual(self.settle((x["id"], 0)), 0)                  # once
        y = self.reserve(b, tokens=850)
        self.assertTrue(y["allowed"])
        self.settle((y["id"], 2000))
        z = self.reserve(b, tokens=1)
        self.assertFalse(z["allowed"])
        self.assertTrue(60000 < z["retry_ms"] < 70000, z)
        self.assertEqual(self.status("tenant:a")["tokens"], 2100)

    def test_a_refund_gives_nothing_that_time_has_given_already(self):
        """With 6000 tokens/min (10 ms each): reserve 50 and let them leak away; others reserve the whole; the refund of the 50 gives nothing."""
        b = ("tenant:a", {"tpm": 6000})
        x = self.reserve(b, tokens=50)
        time.sleep(0.7)
        self.assertTrue(self.reserve(b, tokens=6000)["allowed"])
        self.settle((x["id"], 0))
        y = self.reserve(b, tokens=6000)
        self.assertFalse(y["allowed"])
        self.assertGreater(y["retry_ms"], 50000)

    def test_leases_that_are_not_renewed_end_and_renewed_ones_do_not(self):
        b = ("tenant:a", {"concurrency": 2})
        x, y = self.reserve(b, lease=600), self.reserve(b, lease=600)
        self.assertEqual(self.reserve(b)["kind"], 5)
        for _ in range(8):
            self.assertEqual(self.redis.fcall("deja_limit", "renew", "g1", 600, x["id"]), 1)
            time.sleep(0.1)
        z = self.reserve(b)
        self.assertTrue(z["allowed"])                                    # y's place
        self.assertFalse(self.reserve(b)["allowed"])                     # x holds on
        self.assertEqual(self.settle((x["id"], 1), (y["id"], 1)), 1)
        self.assertTrue(self.reserve(b)["allowed"])
        self.assertEqual(self.redis.fcall("deja_limit", "renew", "g2", 60000), 2 if self.redis("ZCARD", "{deja}:limit:gateways") == 2 else 1)

    def test_money_is_reserved_and_put_right_and_a_spent_budget_says_until_when(self):
        b = ("tenant:a", {"day": 10, "month": 100})
        x = self.reserve(b, cost=6)
        self.assertEqual(x["money"], [4000000])
        y = self.reserve(b, cost=6)
        self.assertEqual((y["allowed"], y["kind"]), (0, 6))
        self.assertTrue(0 < y["retry_ms"] <= 86400000)
        self.settle((x["id"], 10, 1.25, 0.5))
        self.assertTrue(self.reserve(b, cost=6)["allowed"])
        s = self.status("tenant:a")
        self.assertAlmostEqual(s["spent"], 7.25)
        self.assertAlmostEqual(s["saved"], 0.5)
        self.assertEqual(self.reserve(b, cost=11)["retry_ms"], -1)
        m = self.reserve(("tenant:b", {"month": 5}), cost=4)
        self.assertTrue(m["allowed"])
        m = self.reserve(("tenant:b", {"month": 5}), cost=4)
        self.assertTrue(m["kind"] == 7 and 0 < m["retry_ms"] <= 31 * 86400000, m)

    def test_a_shadow_limit_counts_what_it_would_refuse_and_refuses_nothing(self):
        b = ("tenant:a", {"rpm": 2, "shadow": True})
        seen = [self.reserve(b, ("all", {"rpm": 100})) for _ in range(5)]
        self.assertTrue(all(x["allowed"] for x in seen))
        self.assertEqual([x["shadow_kind"] for x in seen], [0, 0, 1, 1, 1])
        self.assertEqual((seen[-1]["limit_requests"], seen[-1]["left_requests"]), (100, 95))  # what is only a trial is not told to clients
        self.assertEqual((self.status("tenant:a")["shadow"], self.status("tenant:a")["refused"]), (3, 0))

    def test_more_than_a_limit_ever_holds_is_refused_for_good(self):
        x = self.reserve(("tenant:a", {"tpm": 1000}), tokens=1001)
        self.assertEqual((x["allowed"], x["kind"], x["retry_ms"]), (0, 3, -1))

    def test_a_changed_limit_keeps_the_share_that_is_used(self):
        self.reserve(("tenant:a", {"tpm": 10000}), tokens=5000)
        x = self.reserve(("tenant:a", {"tpm": 100}), tokens=40)
        self.assertTrue(x["allowed"] and 9 <= x["left_tokens"] <= 12, x)

    def test_use_while_redis_was_away_is_counted_and_never_refused(self):
        b = ("tenant:a", {"tpm": 1000, "concurrency": 1, "day": 10})
        for _ in range(3):
            self.assertTrue(self.reserve(b, tokens=600, cost=4, mode="force")["allowed"])
        x = self.reserve(b, tokens=1)
        self.assertFalse(x["allowed"])
        self.assertEqual(self.status("tenant:a")["tokens"], 1800)
        self.assertEqual(self.redis("EXISTS", "{deja}:limit:leases:tenant:a"), 0)

    def test_every_key_ends_by_itself(self):
        x = self.reserve(("tenant:a", {"rpm": 10, "tpm": 10000, "concurrency": 3, "day": 5, "month": 9}), ("all", {"rpd": 100}), cost=1)
        self.settle((x["id"], 3, 0.5, 0.1))
        self.reserve(("tenant:a", {"rpm": 10, "concurrency": 3}))
        self.redis.fcall("deja_limit", "renew", "g1", 1000)
        keys = self.redis("KEYS", "*")
        self.assertGreater(len(keys), 6)
        for key in keys:
            self.assertGreater(self.redis("PTTL", key), 0, key)

    def test_random_use_is_what_a_plain_count_says(self):
        seed = random.randrange(1 << 30)
        r, held, tokens, money = random.Random(seed), {}, 0, 0.0
        b = ("tenant:a", {"tpm": 10 ** 9, "concurrency": 20, "month": 10 ** 6})
        for i in range(400):
            if held and r.random() < 0.5:
                rid = r.choice(list(held))
                held.pop(rid)
                n, c = r.randint(0, 300), r.randint(0, 100) / 64
                self.assertEqual(self.settle((rid, n, c)), 1, seed)
                tokens, money = tokens + n, money + c
            else:
                x = self.reserve(b, tokens=r.randint(1, 500), cost=1)
                self.assertEqual(x["allowed"], 1 if len(held) < 20 else 0, seed)
                if x["allowed"]:
                    held[x["id"]] = True
        s = self.status("tenant:a")
        self.assertEqual(s["tokens"], tokens, seed)
        self.assertAlmostEqual(s["spent"], money + len(held), msg=str(seed))

    def test_a_wrong_call_says_what_is_right_and_changes_nothing(self):
        for args in (("reserve",), ("reserve", "a b", "-", 1000, 1, 0, 0), ("settle", "x"), ("settle", "x", 1, 1, -1), ("renew",), ("peek",),
                     ("reserve", "a", "-", 1000, 1, 0, 1, "ns:x", 0, 0, 0, 0, 0, 0, 0, 0),
                     ("reserve", "a", "-", 1000, 1, 0, 1, "all", 0, 0, "nan", 0, 0, 0, 0, 0)):
            self.assertRegex(self.redis.fcall("deja_limit", *args), r"^ERR deja_limit")
        self.assertRegex(self.redis.fcall("deja_limit_status", "acme"), "^ERR deja_limit_status takes a bucket")
        self.assertEqual(self.redis("KEYS", "*"), [])

    def test_limits_are_set_in_scopes_of_their_own_and_nowhere_else(self):
        for args, said in ((("limit_tokens_per_min", "100", "IN", "tenant:a"), "version 1:"), (("limit_concurrency", "2", "IN", "all"), "version 2:"),
                           (("limit_tokens_per_min", "50", "IN", "model:org/m:7b"), "version 3:"), (("limit_shadow", "yes"), "version 4:"),
                           (("limit_budget_day", "9.5", "IN", "tenant:a/model:org/m:7b"), "version 5:"),
                           (("price_prompt", "2", "IN", "model:m"), "version 6:"), (("price_prompt", "2", "IN", "tenant:a"), "ERR price_prompt may be"),
                           (("limit_concurrency", "2", "IN", "ns:faq"), "ERR limit_concurrency may be set in global, tenant:T"),
                           (("ttl_s", "60", "IN", "tenant:a"), "ERR ttl_s may be set in global, ns:"),
                           (("limit_hit_tokens", "yes", "IN", "all"), "ERR limit_hit_tokens is of a tenant"),
                           (("limit_concurrency", "2", "IN", "tenant:"), "ERR scope"), (("limit_concurrency", "-1"), "ERR limit_concurrency: -1 is too low")):
            self.assertTrue(fcall(self.rig, "deja_config_set", *args).startswith(said), (args, fcall(self.rig, "deja_config_set", *args)))
        self.assertIn("limit_tokens_per_min = 100 (tenant:a)", fcall(self.rig, "deja_config_get", "limit_tokens_per_min", "IN", "tenant:a"))
        self.assertIn("limit_tokens_per_min = 50 (model:org/m:7b)",
                      fcall(self.rig, "deja_config_get", "limit_tokens_per_min", "IN", "tenant:a/model:org/m:7b"))
        self.assertIn("limit_shadow = yes", fcall(self.rig, "deja_config_get", "limit_shadow", "IN", "tenant:b/model:m"))
        self.assertIn("limit_concurrency is no knob of an arm", fcall(self.rig, "deja_experiment_start", "x", "ARM", "a", "ARM", "b",
                                                                        "limit_concurrency", "3"))
        fcall(self.rig, "deja_config_rollback", "TO", "3")
        self.assertIn("limit_budget_day = 0", fcall(self.rig, "deja_config_get", "limit_budget_day", "IN", "tenant:a/model:org/m:7b"))

    def test_status_is_for_people_and_reset_empties_a_bucket(self):
        fcall(self.rig, "deja_config_set", "limit_tokens_per_min", "1000")
        fcall(self.rig, "deja_config_set", "limit_budget_day", "5", "IN", "tenant:a")
        self.assertIn("no limit was asked about yet", fcall(self.rig, "deja_limit_status"))
        x = self.reserve(("tenant:a", {"tpm": 1000, "day": 5}), tokens=600, cost=1)
        self.settle((x["id"], 500, 1))
        self.reserve(("tenant:a", {"tpm": 1000, "day": 5}), tokens=900, cost=1)
        text = fcall(self.rig, "deja_limit_status")
        self.assertRegex(text, r"tenant:a\n +tokens/min: \d+ of 1,000, empty in \d+\.\d s\n +budget/day: 1 of 5\n"
                               r" +today: 1 requests, 500 tokens, 1 refused \(refused tokens/min 1\), money 1\.0000, saved 0\.0000")
        self.assertEqual(fcall(self.rig, "deja_limit_reset", "tenant:a"),
                         "tenant:a is empty; money spent is kept (1.0000 today, 1.0000 this month): deja_limit_reset tenant:a MONEY resets it")
        self.assertTrue(fcall(self.rig, "deja_limit_reset", "tenant:a").startswith("tenant:a was empty; money spent is kept (1.0000 today"))
        self.assertRegex(fcall(self.rig, "deja_limit_status", "tenant:a"), r"tokens/min: 0 of 1,000\n +budget/day: 1 of 5")
        self.assertEqual(fcall(self.rig, "deja_limit_reset", "tenant:a", "MONEY"), "tenant:a is empty")
        self.assertEqual(fcall(self.rig, "deja_limit_reset", "tenant:a"), "tenant:a was empty")
        self.assertIn("budget/day: 0 of 5", fcall(self.rig, "deja_limit_status", "tenant:a"))
        self.assertIn("deja_limit_status", cli(self.rig, "FCALL", "deja_help", "0"))


if __name__ == "__main__":
    unittest.main()
