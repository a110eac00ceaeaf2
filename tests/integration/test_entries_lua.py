"""Goal: what the Functions of entries keep beside the entries is bounded by what is there, and no call of theirs holds Redis up for as long as
there were entries. Method: the Functions on a real redis-server, called as a gateway calls them."""
import json
import time
import unittest

from tests.integration.live_rig import Resp, load_library
from tests.integration.rig import Rig

SPACE, NONE = "deja:{deja}:", "0" * 32
ASIDE_MAX = 4096  # lua/quarantine.lua


class Entries(unittest.TestCase):
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

    def put(self, i, ns="shop", ttl=3600, text="x" * 200):
        """An entry for exact look-ups, as a gateway writes it."""
        entry, now = f"{i:032x}", int(time.time())
        said = self.redis("FCALL", "deja_put", 4, f"{SPACE}e:{entry}", SPACE + "log", SPACE + "p:" + NONE, SPACE + "parts", entry, now + ttl, ttl, 100000,
                          "test", "", "v", 1, "check", entry, "tenant", "t", "model", "m", "kind", 0, "q", f"question {i}", "a", text,
                          "created", now, "ttl", ttl, "ns", ns, "ptok", 0, "ctok", 100, "lat", 1000, "trust", 1, "ep", 0, "ah", f"{i:016x}", "part", NONE)
        self.assertEqual(said, "OK")
        return entry

    def ran_out(self, entry):
        self.redis("DEL", f"{SPACE}e:{entry}")  # as its time to live ends it: no Function hears of that

    def ranked(self, ns="shop"):
        return self.redis("ZCARD", f"{SPACE}w:{ns}")

    def test_what_ran_out_is_forgotten_also_where_there_is_no_budget(self):
        for i in range(1, 401):
            self.ran_out(self.put(i))
        self.assertLess(self.ranked(), 200)
        for _ in range(200):
            self.redis("FCALL", "deja_evict", 1, "{deja}", 100)
        self.assertEqual((self.ranked(), self.redis("HGETALL", SPACE + "use")), (0, []))

    def test_what_ran_out_and_comes_again_is_counted_once(self):
        once = [self.put(i) for i in range(1, 21)]
        counted = self.redis("HGET", SPACE + "use", "b:shop")
        for again in ("x" * 200, "x" * 1900, "x" * 200):
            for i, entry in enumerate(once):
                self.ran_out(entry)
                self.put(i + 1, text=again)
        for _ in range(60):
            self.redis("FCALL", "deja_evict", 1, "{deja}", 100)
        self.assertEqual((self.ranked(), self.redis("HGET", SPACE + "use", "b:shop")), (20, counted))

    def test_what_is_there_is_not_forgotten(self):
        kept = [self.put(i) for i in range(1, 41)]
        for _ in range(20):
            self.redis("FCALL", "deja_evict", 1, "{deja}", 100)
        self.assertEqual(self.ranked(), 40)
        self.assertEqual(sum(self.redis("EXISTS", f"{SPACE}e:{e}") for e in kept), 40)

    def test_a_sweep_costs_the_same_however_many_namespaces_there_are(self):
        def took():
            begin = time.perf_counter()
            for _ in range(5):
                self.redis("FCALL", "deja_evict", 1, "{deja}", 100)
            return time.perf_counter() - begin
        for i in range(100):
            self.redis("HSET", SPACE + "use", f"b:ns{i}", 1000)
        few = took()
        for i in range(0, 60000, 500):
            self.redis("HSET", SPACE + "use", *[w for k in range(500) for w in (f"b:many{i + k}", 1000)])
        self.assertLess(took(), 20 * few + 0.25)

    def test_storing_does_not_pay_for_all_that_ran_out_at_once(self):
        past = int(time.time()) - 10
        for i in range(0, 20000, 500):
            self.redis("ZADD", SPACE + "i:a", *[w for k in range(500) for w in (past, f"{i + k:032x}")])
        self.put(1)
        left = self.redis("ZCARD", SPACE + "i:a")
        self.assertTrue(10000 < left < 20001, left)
        for i in range(2, 60):
            self.put(i)
        self.assertEqual(self.redis("ZCARD", SPACE + "i:a"), 59)

    def set_aside(self, entry, state="quarantined", at=None):
        at = at or int(time.time())
        self.redis("HSET", SPACE + "aside", entry, json.dumps({"s": state, "at": at, "till": at + 10**6, "n": 9, "k": 8, "by": "test", "ns": "shop"}))

    def test_what_is_cleared_is_not_what_makes_room_for_it(self):
        oldest = self.put(1)
        self.set_aside(oldest, at=int(time.time()) - 1000)
        for i in range(2, ASIDE_MAX + 1):
            self.set_aside(f"{i:032x}")
        self.assertIn("cleared", self.redis.fcall("deja_review", "clear", oldest, "BY", "me"))
        self.assertEqual(self.redis("EXISTS", f"{SPACE}e:{oldest}"), 1)
        self.assertEqual(self.redis("HLEN", SPACE + "aside"), ASIDE_MAX)
        another = self.put(2)  # what is set aside already takes no place either
        self.assertIn("cleared", self.redis.fcall("deja_review", "clear", another, "BY", "me"))
        self.assertEqual(self.redis("HLEN", SPACE + "aside"), ASIDE_MAX)

    def test_lists_of_what_is_to_be_reviewed_end_with_what_they_list(self):
        self.assertEqual(self.redis.fcall("deja_near", 1, "shop", 100, f"{1:032x}", f"{2:032x}", "a question", "0.9", "0.95", "guard:number"), 1)
        key = "{deja}:review:shop:open"
        self.assertEqual(self.redis("ZCARD", key), 1)
        self.assertGreater(self.redis("TTL", key), 0)

    def test_a_smaller_bound_of_blocks_is_reached_bit_by_bit(self):
        space = "{deja:m:16}:kv"
        for i in range(0, 20000, 4000):
            self.redis("FCALL", "deja_prefix_sent", 1, space, "pod", 60, 10**6, *[f"{i + k:032x}" for k in range(4000)])
        left = [self.redis("FCALL", "deja_prefix_sent", 1, space, "pod", 60, 100) for _ in range(4)]
        self.assertTrue(10000 <= left[0] < 20000, left)
        self.assertEqual(left[-1], 100)


if __name__ == "__main__":
    unittest.main()
