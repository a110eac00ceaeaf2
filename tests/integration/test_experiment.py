"""Goal: an experiment splits traffic as it says, keeps every unit in its arm on all gateways, counts what came of it once, and its figures
are right: intervals and tests are those of an implementation of their own (below), and under no difference they cry wolf as seldom as they
promise. Method: a real redis-server; counters given directly for the arithmetic (printed seed), two gateways for the way there."""
import json
import math
import os
import random
import unittest
from fractions import Fraction

from tests.integration.fake_upstream import FakeUpstream
from tests.integration.live_rig import Resp, cli, fcall, load_library, until
from tests.integration.rig import DATA, Rig, ask

TINY = os.path.join(DATA, "tiny-bert.gguf")
Z = 1.959963984540054


def wilson(k, n):
    if not n:
        return 0.0, 1.0
    p = k / n
    a, b, c = 1 + Z * Z / n, -(2 * p + Z * Z / n), p * p       # the roots of (p - x)^2 = z^2 x (1 - x) / n
    root = math.sqrt(max(0.0, b * b - 4 * a * c))
    return (-b - root) / (2 * a), (-b + root) / (2 * a)


def newcombe(ka, na, kb, nb):
    (la, ua), (lb, ub), d = wilson(ka, na), wilson(kb, nb), kb / nb - ka / na
    return d, d - math.hypot(kb / nb - lb, ua - ka / na), d + math.hypot(ub - kb / nb, ka / na - la)


def z_test(ka, na, kb, nb):
    p = (ka + kb) / (na + nb)
    se = math.sqrt(p * (1 - p) * (1 / na + 1 / nb))
    return math.erfc(abs(kb / nb - ka / na) / se / math.sqrt(2)) if se else 1.0


def fisher(ka, na, kb, nb):
    k, total = ka + kb, math.comb(na + nb, ka + kb)
    chance = {i: Fraction(math.comb(na, i) * math.comb(nb, k - i), total) for i in range(max(0, k - nb), min(k, na) + 1)}
    return float(sum(p for p in chance.values() if p <= chance[ka]))


class Figures(unittest.TestCase):
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

    def start(self, *arms):
        words = [w for a in arms or ("a", "b") for w in ("ARM", a)]
        self.assertIsInstance(self.redis.fcall("deja_experiment_start", "e", *words), list)

    def counted(self, batch, **arms):
        """Report of the experiment e with exactly these counts: arm -> {field: n}."""
        args = ["src", batch, len(arms)]
        for arm, fields in arms.items():
            self.redis("DEL", "{deja}:arm:e/" + arm)
            self.redis("HSET", "{deja}:arm:e/" + arm, "started_ms", 1)
            args += ["", "e/" + arm, len(fields)] + [x for kv in fields.items() for x in kv]
        self.assertEqual(self.redis.fcall("deja_count", *args, 0), 1)
        return json.loads(self.redis.fcall("deja_experiment_report", "JSON"))

    def test_intervals_and_tests_are_those_of_another_implementation(self):
        self.start()
        seed = random.randrange(1 << 30)
        rng, tests = random.Random(seed), set()
        cases = [(0, 12, 2, 4)]                                     # p is 1/20 to the last digit, which is not significant
        while len(cases) < 300:
            top = rng.choice((3, 12, 60, 400, 20000))
            na, nb = rng.randint(1, top), rng.randint(1, top)
            rate = rng.choice((0.0, 0.01, 0.3, 0.5, 0.97, 1.0))
            ka, kb = (min(n, max(0, round(n * rate + rng.uniform(-2, 2)))) for n in (na, nb))
            cases.append((ka, na, kb, nb))
        for i, (ka, na, kb, nb) in enumerate(cases):
            doc = self.counted(i + 1, a={"requests": na, "exact": ka, "checked": na, "wrong": ka},
                               b={"requests": nb, "semantic": kb, "checked": nb, "wrong": kb})
            low, high = wilson(kb, nb)
            where = f"{ka}/{na} {kb}/{nb} seed {seed}"
            self.assertAlmostEqual(doc["arms"][1]["false_reuse_low"], max(0, low), 10, where)
            self.assertAlmostEqual(doc["arms"][1]["false_reuse_high"], high, 10, where)
            for c in doc["comparisons"]:
                d, low, high = newcombe(ka, na, kb, nb)
                for name, value in (("difference", d), ("low", low), ("high", high)):
                    self.assertAlmostEqual(c[name], value, 9, where)
                p = {"z": z_test, "Fisher": fisher}[c["test"]](ka, na, kb, nb)
                self.assertLess(abs(c["p"] - p), 1e-9 + 1e-6 * p, where)
                self.assertEqual(c["significant"], p < 0.05, where)
                tests.add(c["test"])
        self.assertEqual(tests, {"z", "Fisher"})

    def test_without_a_difference_one_report_in_twenty_at_most_is_significant_and_with_one_most_are(self):
        self.start()
        seed = 20260801
        rng = random.Random(seed)
        for rate_b, least, most in ((0.30, 0, 0.07), (0.40, 0.75, 1)):
            significant, runs, covered = 0, 400, 0
            for i in range(runs):
                hits = [sum(rng.random() < rate for _ in range(400)) for rate in (0.30, rate_b)]
                wrong = sum(rng.random() < 0.02 for _ in range(200))
                doc = self.counted(i + 1 + int(rate_b * 100000), a={"requests": 400, "exact": hits[0]},
                                   b={"requests": 400, "exact": hits[1], "checked": 200, "wrong": wrong})
                significant += doc["comparisons"][0]["significant"]
                covered += doc["arms"][1]["false_reuse_low"] <= 0.02 <= doc["arms"][1]["false_reuse_high"]
            print(f"rate 0.30 against {rate_b}: {significant} of {runs} significant; interval held the truth in {covered} of {runs}")
            self.assertTrue(least <= significant / runs <= most, f"{significant} of {runs}, seed {seed}")
            self.assertGreater(covered / runs, 0.92)

    def test_the_verdict_says_in_words_what_the_figures_say(self):
        self.start()
        cases = ((dict(requests=90), dict(requests=5000), "open; too few requests"),
                 (dict(requests=1000, exact=300), dict(requests=1000, exact=305), "open; no difference in answers from the cache is shown"),
                 (dict(requests=1000, semantic=300), dict(requests=1000, semantic=400), "open; it answers more from the cache; nothing is known of"),
                 (dict(requests=1000, semantic=300, checked=200, wrong=1), dict(requests=1000, semantic=400, checked=200, wrong=2),
                  "take b; it answers more from the cache; it is not shown to be wrong more often (at most 3.6 % of its semantic hits"),
                 (dict(requests=1000, semantic=300, checked=200, wrong=1), dict(requests=1000, semantic=400, checked=200, wrong=30),
                  "keep a; it answers more from the cache; it is wrong more often"),
                 (dict(requests=1000, semantic=400, checked=200), dict(requests=1000, semantic=300, checked=200), "keep a; it answers less"),
                 (dict(requests=1000, semantic=400, checked=200, wrong=40), dict(requests=1000, semantic=400, checked=200, wrong=4),
                  "take b; no difference in answers from the cache is shown; it is wrong less often"))
        for i, (a, b, words) in enumerate(cases):
            doc = self.counted(i + 1, a=a, b=b)
            self.assertIn("verdict on b: " + words, doc["verdicts"][0])
            self.assertIn(doc["verdicts"][0], self.redis.fcall("deja_experiment_report"))

    def test_more_arms_make_each_comparison_stricter(self):
        self.start("a", "b", "c")
        counts = {"requests": 1000, "exact": 300}
        doc = self.counted(1, a=counts, b={"requests": 1000, "exact": 342}, c=counts)
        p = doc["comparisons"][0]["p"]
        self.assertTrue(0.025 < p < 0.05)
        self.assertFalse(doc["comparisons"][0]["significant"])

    def test_a_batch_is_added_once_and_a_wrong_one_not_at_all(self):
        self.start()
        row = ["", "e/a", 2, "requests", 5, "l3", 5]
        self.assertEqual(self.redis.fcall("deja_count", "src", 7, 1, *row, 0), 1)
        self.assertEqual(self.redis.fcall("deja_count", "src", 7, 1, *row, 0), 0)
        self.assertEqual(self.redis.fcall("deja_count", "src", 6, 1, *row, 0), 0)
        self.assertEqual(self.redis.fcall("deja_count", "other", 7, 1, *row, 0), 1)
        for args in (["src", 8, 1, "", "e/a", 1, "requests", "many", 0], ["src", 8, 2, *row, 0], ["src", 8, 1, *row, 1, "x"], ["s/c", 8, 0, 0],
                     ["src", "x", 0, 0], ["src", 8, 1, *row, 0, 1]):
            self.assertIn("ERR deja_count", self.redis.fcall("deja_count", *args))
        doc = json.loads(self.redis.fcall("deja_experiment_report", "JSON"))
        self.assertEqual((doc["arms"][0]["requests"], doc["arms"][1]["requests"]), (10, 0))
        stats = json.loads(self.redis.fcall("deja_stats", "JSON"))
        self.assertEqual((stats["requests"], stats["namespace"]), (10, "all"))
        self.assertLess(abs(stats["p50_ms"] - 0.05 * 2 ** (2.5 / 4)), 1e-6)

    def test_quantiles_are_those_of_the_latencies_within_a_bucket(self):
        self.start()
        rng = random.Random(7)
        times = [rng.lognormvariate(3, 1.5) for _ in range(5000)]
        buckets = {}
        for ms in times:
            i = max(0, math.ceil(4 * math.log2(ms / 0.05)))
            buckets[f"l{i}"] = buckets.get(f"l{i}", 0) + 1
        doc = self.counted(1, a={"requests": 5000, **buckets}, b={"requests": 1})
        for name, share in (("p50_ms", 0.5), ("p95_ms", 0.95)):
            true = sorted(times)[int(share * 5000)]
            self.assertLess(abs(math.log2(doc["arms"][0][name] / true)), 0.25)

    def test_a_wrong_definition_is_refused_with_what_would_be_right(self):
        for args, says in ((("e",), "an experiment has 2 to 8 arms, not 0"), (("e f", "ARM", "a"), "an experiment is called by"),
                           (("e", "threshold_en", "1"), "begin with the arms"), (("e", "ARM", "a", "ARM", "a"), "two arms are called a"),
                           (("e", "ARM", "a", "ARM", "b", "treshold_en", "1"), 'did you mean "threshold_en"?'),
                           (("e", "ARM", "a", "ARM", "b", "threshold_en", "2"), "threshold_en: 2 is too high; it may be 0 to 1"),
                           (("e", "ARM", "a", "PERCENT", "60", "ARM", "b", "PERCENT", "60"), "more than 100 %"),
                           (("e", "ARM", "a", "ARM", "b", "SPLIT", "coin"), "SPLIT may be request, user or tenant"),
                           (("e", "ARM", "a", "ARM", "b", "judge"), "judge needs a value after it")):
            self.assertIn(says, self.redis.fcall("deja_experiment_start", *args))
        self.assertIn("no experiment was started yet", self.redis.fcall("deja_experiment_report"))
        self.assertIn("none is running", self.redis.fcall("deja_experiment_stop"))
        self.start()
        self.assertIn("e is running", self.redis.fcall("deja_experiment_start", "f", "ARM", "a", "ARM", "b"))
        self.redis.fcall("deja_experiment_stop")
        self.assertIn("already; take another name", self.redis.fcall("deja_experiment_start", "e", "ARM", "a", "ARM", "b"))


class Traffic(unittest.TestCase):
    """Two gateways."""

    @classmethod
    def setUpClass(cls):
        cls.rig, cls.fake = Rig(), FakeUpstream()
        cls.addClassCleanup(cls.rig.close)
        cls.addClassCleanup(cls.fake.close)
        cls.rig.redis()
        cls.gateways = [cls.start_gateway(f"gateway-{i}") for i in range(2)]

    @classmethod
    def start_gateway(cls, name):
        p = cls.rig.gateway("--upstream", cls.fake.url, "--redis", cls.rig.redis_url, "--embed-model", TINY, "--cache-redis-deadline-ms", "1000",
                            "--cache-embed-deadline-ms", "2000", name=name)
        return p, cls.rig.port

    def in_force(self, name):
        for p, _ in self.gateways:
            until(lambda p=p: f"experiment={name}\n" in p.tail(200000), 3)

    def test_a_user_keeps_the_arm_everywhere_and_the_report_counts_every_request_once(self):
        fcall(self.rig, "deja_config_set", "price_completion", "1000000")
        fcall(self.rig, "deja_experiment_start", "off", "ARM", "a", "ARM", "b", "exact", "no", "semantic", "yes", "threshold_en", "1", "SPLIT", "user")
        self.in_force("off")
        arms, counts = {}, {"off/a": [0, 0, 0], "off/b": [0, 0, 0]}

        def note(headers):
            seen = counts[headers["x-deja-arm"]]
            seen[0] += 1
            seen[1] += headers["x-deja-cache"] == "exact"
            seen[2] += headers["x-deja-cache"] in ("exact", "semantic", "coalesced")
        for i in range(120):
            user, port = f"user-{i % 20}", self.gateways[i % 2][1]
            status, headers, _ = ask(port, f"question number {i % 10} of all", user=user)
            self.assertEqual(status, 200)
            arm = headers["x-deja-arm"]
            self.assertEqual(arms.setdefault(user, arm), arm)
            note(headers)
        self.assertEqual(set(arms.values()), {"off/a", "off/b"})
        self.assertEqual(counts["off/b"][1], 0)
        self.assertGreater(counts["off/a"][1], 10)
        self.assertNotIn("x-deja-arm", ask(self.gateways[0][1], "who has no user?")[1])
        process, _ = self.gateways[0]
        self.assertEqual(process.stop(), 0)                            # its last counts are sent before it ends
        self.rig.processes.remove(process)
        self.gateways[0] = self.start_gateway("gateway-again")
        self.in_force("off")
        for user in list(arms)[:6]:
            _, headers, _ = ask(self.gateways[0][1], "after the restart?", user=user)
            self.assertEqual(headers["x-deja-arm"], arms[user])
            note(headers)

        def report():
            return json.loads(fcall(self.rig, "deja_experiment_report", "off", "JSON"))["arms"]
        until(lambda: sum(a["requests"] for a in report()) == 126, 5)
        for arm in report():
            n, exact, saved = counts["off/" + arm["name"]]
            self.assertEqual((arm["requests"], arm["exact"]), (n, exact))
            self.assertEqual((arm["completion_tokens_saved"], arm["money_saved"]), (3 * saved, 3 * saved))
            self.assertEqual(arm["miss"] + arm["coalesced"] + arm["exact"] + arm["semantic"], n)
        text = fcall(self.rig, "deja_experiment_stop")
        self.assertIn("verdict on b: open; too few requests (at least 100 an arm)", text)
        self.in_force("-")
        self.assertNotIn("x-deja-arm", ask(self.gateways[0][1], "stopped?", user="user-1")[1])
        stats = json.loads(fcall(self.rig, "deja_stats", "JSON"))
        self.assertGreaterEqual(stats["requests"], 127)

    def test_counts_made_while_redis_is_away_arrive_later(self):
        before = json.loads(fcall(self.rig, "deja_stats", "JSON"))["requests"]
        redis = self.rig.processes[0]
        until(lambda: json.loads(fcall(self.rig, "deja_stats", "JSON"))["requests"] >= before, 2)
        redis.kill()
        redis.popen.wait()
        os.unlink(self.rig.redis_socket)
        for i in range(7):
            self.assertEqual(ask(self.gateways[1][1], f"asked while Redis is away {i}")[0], 200)
        redis.start().wait_for(lambda: os.path.exists(self.rig.redis_socket), 10)
        until(lambda: cli(self.rig, "PING") == "PONG", 5)
        until(lambda: "requests" in fcall(self.rig, "deja_stats", "JSON"), 5)
        until(lambda: json.loads(fcall(self.rig, "deja_stats", "JSON"))["requests"] >= 7, 10)


if __name__ == "__main__":
    unittest.main()
