"""Goal: the cache is steered with redis-cli while it runs: knobs are checked inside Redis, in force on every gateway within a second,
logged, kept over restarts, caught up with after a gap, and undone. Method: a real redis-server, redis-cli and gateways, and a scripted
upstream."""
import json
import os
import re
import signal
import subprocess
import time
import unittest

from tests.integration.fake_upstream import FakeUpstream
from tests.integration.live_rig import KEY, cli, fcall, load_library, until
from tests.integration.rig import BIN, DATA, Rig, ask, call

TINY = os.path.join(DATA, "tiny-bert.gguf")


class Config(unittest.TestCase):
    """The functions alone, as redis-cli shows them."""

    @classmethod
    def setUpClass(cls):
        cls.rig = Rig()
        cls.addClassCleanup(cls.rig.close)
        cls.rig.redis()
        load_library(cls.rig)

    def setUp(self):
        cli(self.rig, "FLUSHALL")

    def test_what_may_not_be_is_refused_with_what_would_be_right(self):
        for args, says in (
                (("threshold_en", "1.2"), "ERR threshold_en: 1.2 is too high; it may be 0 to 1 cosine"),
                (("threshold_en", "high"), 'ERR threshold_en: expected a number from 0 to 1 cosine, not "high"'),
                (("treshold_en", "0.9"), 'ERR no knob is called "treshold_en": did you mean "threshold_en"?'),
                (("judge", "maybe"), 'ERR judge: expected yes or no, not "maybe"'),
                (("mode", "fast"), 'ERR mode: expected one of threshold bound, not "fast"'),
                (("ttl_s", "1.5"), "ERR ttl_s: expected a whole number from 1 to 31536000 s"),
                (("ttl_s", "nan"), "ERR ttl_s: expected a whole number"), (("ttl_s", "0x10"), "ERR ttl_s: expected a whole number"),
                (("ttl_s", "9", "IN", "faq"), 'ERR scope "faq" is none: it may be global, ns:NAMESPACE or arm:EXPERIMENT/ARM'),
                (("ttl_s", "9", "IN", "arm:x/b"), "ERR there is no running experiment with the arm x/b"),
                (("ttl_s", "9", "FOR", "faq"), 'ERR deja_config_set: "FOR" is not understood here; what may follow is IN BY NOTE'),
                (("ttl_s", "9", "BY"), "ERR deja_config_set: BY needs a value"), (("ttl_s",), "ERR deja_config_set needs a name and a value")):
            self.assertIn(says, fcall(self.rig, "deja_config_set", *args))
        self.assertIn("names the key space", fcall(self.rig, "deja_config_set", "ttl_s", "9", key="config"))
        self.assertEqual(fcall(self.rig, "deja_config_get"), "version 0\nnothing is set: every gateway goes by its start options (all shows the defaults)")

    def test_every_knob_of_the_program_is_known_in_redis_with_its_range(self):
        table = subprocess.run([BIN, "functions", "--knobs"], stdout=subprocess.PIPE, text=True, check=True).stdout
        rows = re.findall(r"^\| `(\w+)` \| `([^`]*)` \| (.*?) \|", table, re.M)
        self.assertGreater(len(rows), 40)
        listed = dict(re.findall(r"^(\w+) = (\S+)", fcall(self.rig, "deja_config_get", "all"), re.M))
        self.assertEqual(listed, {name: preset for name, preset, _ in rows})
        for name, preset, may in rows:
            self.assertIn("version", fcall(self.rig, "deja_config_set", name, preset), name)
            m = re.match(r"(\S+) to (\S+)", may)
            for value in (m[1], m[2]) if m else may.replace(",", "").split():
                self.assertRegex(fcall(self.rig, "deja_config_set", name, value), "^version|^unchanged", name)
            wrong = str(float(m[2]) * 2 + 1) if m else "neither"
            self.assertIn("ERR " + name, fcall(self.rig, "deja_config_set", name, wrong))

    def test_each_change_is_a_version_with_who_and_why_and_can_be_undone_and_redone(self):
        self.assertEqual(fcall(self.rig, "deja_config_set", "threshold_en", "0.950"), "version 1: threshold_en unset -> 0.95")
        self.assertEqual(fcall(self.rig, "deja_config_set", "threshold_en", ".95"), "unchanged: threshold_en is 0.95 in version 1")
        fcall(self.rig, "deja_config_set", "ttl_s", "600", "IN", "ns:faq", "BY", "ana", "NOTE", "prices change daily")
        fcall(self.rig, "deja_config_set", "threshold_en", "0.97", "BY", "ben")
        self.assertEqual(fcall(self.rig, "deja_config_get"), "version 3\nthreshold_en = 0.97\nttl_s = 600 (ns:faq)")
        self.assertIn("ttl_s = 600 (ns:faq)", fcall(self.rig, "deja_config_get", "ttl_s", "IN", "ns:faq"))
        self.assertIn("ttl_s = 86400 (default)", fcall(self.rig, "deja_config_get", "ttl_s"))
        history = fcall(self.rig, "deja_config_history")
        self.assertRegex(history, r"version 2  20\d\d-\d\d-\d\d \d\d:\d\d:\d\dZ  ana: ttl_s unset -> 600 \(ns:faq\)  \"prices change daily\"")
        self.assertEqual(fcall(self.rig, "deja_config_rollback", "BY", "ana"), "version 4: as in version 2\nthreshold_en 0.97 -> 0.95")
        self.assertEqual(fcall(self.rig, "deja_config_rollback"), "version 5: as in version 3\nthreshold_en 0.95 -> 0.97")
        self.assertEqual(fcall(self.rig, "deja_config_rollback", "TO", "0"),
                         "version 6: as in version 0\nthreshold_en 0.97 -> unset\nttl_s 600 -> unset (ns:faq)")
        self.assertIn("version must be from 0 to 5", fcall(self.rig, "deja_config_rollback", "TO", "6"))
        settings = json.loads(fcall(self.rig, "deja_config_get", "JSON", "SINCE", "4"))
        self.assertEqual((settings["version"], settings["settings"], [c["version"] for c in settings["changes"]]), (6, [], [5, 6, 6]))
        cli(self.rig, "XTRIM", KEY + ":log", "MAXLEN", "2")
        self.assertIn("the history begins with version 6", fcall(self.rig, "deja_config_rollback", "TO", "2"))

    def test_every_function_is_described_and_a_slip_finds_its_name(self):
        listed = cli(self.rig, "FUNCTION", "LIST").split("\n")
        names = [listed[i + 1] for i, x in enumerate(listed) if x == "name"]
        self.assertGreater(len(names), 20)
        for name in names:
            self.assertRegex(cli(self.rig, "FCALL", "deja_help", "0", name), rf"^{name} KEYS ")
        overview = cli(self.rig, "FCALL", "deja_help", "0")
        self.assertEqual([n for n in names if not re.search(rf"\b{n}\b", overview)], [])
        self.assertIn('did you mean "deja_config_set"?', cli(self.rig, "FCALL", "deja_help", "0", "config_st"))

    def test_two_key_spaces_do_not_meet(self):
        fcall(self.rig, "deja_config_set", "ttl_s", "600")
        self.assertIn("version 0", fcall(self.rig, "deja_config_get", key="{staging}:config"))


class Cluster(unittest.TestCase):
    """One node of a cluster, which refuses what would touch two slots."""

    def test_every_call_stays_in_one_slot(self):
        rig = Rig()
        self.addCleanup(rig.close)
        rig.redis("--cluster-enabled", "yes")
        self.assertEqual(cli(rig, "CLUSTER", "ADDSLOTSRANGE", "0", "16383"), "OK")
        until(lambda: "cluster_state:ok" in cli(rig, "CLUSTER", "INFO"), 10)
        load_library(rig)
        entry, other = "0" * 31 + "1", "0" * 31 + "2"
        put = ["FCALL", "deja_put", "4", f"deja:{{deja}}:e:{entry}", "deja:{deja}:log", "deja:{deja}:p:" + "a" * 32, "deja:{deja}:parts", entry,
               "4000000000", "3600", "100000", "src", "a" * 32, "v", "2", "part", "a" * 32, "q", "how?", "tenant", "t", "model", "m", "ns", ""]
        self.assertEqual(cli(rig, *put), "OK")
        self.assertEqual(cli(rig, "CLUSTER", "KEYSLOT", "{deja}:config"), cli(rig, "CLUSTER", "KEYSLOT", f"deja:{{deja}}:e:{entry}"))
        for call in (["deja_config_set", "ttl_s", "60"], ["deja_config_get", "all"], ["deja_config_history"],
                     ["deja_experiment_start", "e", "ARM", "a", "ARM", "b", "ttl_s", "9"],
                     ["deja_count", "s", "1", "1", "faq", "e/a", "1", "requests", "3", "1", entry, "e/a"], ["deja_stats"], ["deja_stats", "IN", "faq"],
                     ["deja_experiment_report"], ["deja_near", "1", "", "9", entry, other, "why?", "0.9", "0.95", "guard:question"],
                     ["deja_judged", "", "9", entry, other, "why?", "1", "0.9", "0.95", "guard:question", "0.99", "approve", "m"],
                     ["deja_limit", "reserve", "r1", "-", "1000", "5", "1", "2", "tenant:a", "0", "1", "1", "99", "99", "1", "9", "9",
                      "all/model:m", "0", "0", "0", "99", "0", "0", "0", "0"], ["deja_limit", "renew", "g", "1000", "r1"],
                     ["deja_limit_status"], ["deja_limit", "settle", "r1", "3", "1", "0"], ["deja_limit_reset", "tenant:a", "MONEY"],
                     ["deja_review", "list", "WHAT", "approved"], ["deja_wording", "veto", entry, "when?", "person"],
                     ["deja_feedback", entry, "right", "when?"], ["deja_forget", "tenant", "t", "dry"], ["deja_experiment_stop"],
                     ["deja_config_rollback", "TO", "0"], ["deja_feedback", entry, "wrong", "when?"], ["deja_forget", "all"]):
            self.assertNotRegex(fcall(rig, *call), r"(?m)^ERR|CROSSSLOT|MOVED", call)


class Gateways(unittest.TestCase):
    """Two gateways on one Redis."""

    @classmethod
    def setUpClass(cls):
        cls.rig, cls.fake = Rig(), FakeUpstream()
        cls.addClassCleanup(cls.rig.close)
        cls.addClassCleanup(cls.fake.close)
        cls.rig.redis()
        cls.ports, cls.processes = [], []
        for name in ("gateway-1", "gateway-2"):
            cls.processes.append(cls.rig.gateway("--upstream", cls.fake.url, "--redis", cls.rig.redis_url, "--embed-model", TINY,
                                                 "--cache-redis-deadline-ms", "1000", "--cache-embed-deadline-ms", "2000", name=name))
            cls.ports.append(cls.rig.port)

    def setUp(self):
        fcall(self.rig, "deja_config_rollback", "TO", "0")
        self.until_in_force()

    def until_in_force(self, seconds=3):
        """Until both gateways say that they go by the version Redis has: the longer of both times."""
        version = cli(self.rig, "HGET", KEY, "version") or "0"
        if version == "0":
            return 0
        said = f"settings in force version={version} "
        return max(until(lambda p=p: said in p.tail(200000), seconds, said) for p in self.processes)

    def cached(self, port, text, **kw):
        status, headers, _ = ask(port, text, **kw)
        self.assertEqual(status, 200)
        return headers["x-deja-cache"]

    def test_a_change_is_in_force_on_both_within_a_second_and_logged_with_who_and_what(self):
        ask(self.ports[0], "in force?")
        until(lambda: [self.cached(p, "in force?") for p in self.ports] == ["exact", "exact"], 10)  # written once its vector is made
        said = fcall(self.rig, "deja_config_set", "exact", "no", "BY", "ana", "NOTE", "test")
        took = self.until_in_force()
        self.assertLess(took, 1.0)
        self.assertNotIn("exact", [self.cached(p, "in force?", headers={"x-deja-cache": "exact"}) for p in self.ports])
        version = re.match(r"version (\d+)", said)[1]
        for p in self.processes:
            self.assertRegex(p.tail(200000), rf"setting version={version} at_ms=\d+ op=set who=ana scope=global name=exact old=unset new=no")
        fcall(self.rig, "deja_config_rollback")
        self.until_in_force()
        self.assertEqual([self.cached(p, "in force?") for p in self.ports], ["exact", "exact"])

    def test_bytes_that_are_no_text_stop_no_gateway(self):
        for args in (("route", b"chat -> m\xff"), ("threshold_en", b"0.9\xc3")):
            self.assertIn("the value is not UTF-8 text", fcall(self.rig, "deja_config_set", *args))
        fcall(self.rig, "deja_config_set", "ttl_s", "500", "BY", b"Jos\xe9", "NOTE", "\u6539".encode() * 100 + b"\xed\xa0\x80")
        self.until_in_force()
        who, note = (cli(self.rig, "--json", "FCALL", "deja_config_history", "1", KEY).count(x) for x in ("Jos?", "\u6539" * 66))
        self.assertEqual((who, note), (1, 1))
        cli(self.rig, "XADD", KEY + ":log", "*", "version", "77", "op", "set", "who", b"\xff", "scope", "global", "name", "ttl_s", "old", "500",
            "new", "600", "note", b"\xe6\x94")                           # as one written by an older library
        cli(self.rig, "HSET", KEY, "version", "77")
        self.until_in_force()
        self.assertEqual([call(p, "GET", "/ready")[0] for p in self.ports], [200, 200])

    def test_a_namespace_has_settings_of_its_own(self):
        fcall(self.rig, "deja_config_set", "exact", "no", "IN", "ns:faq")
        fcall(self.rig, "deja_config_set", "semantic", "no", "IN", "ns:faq")
        self.until_in_force()
        for _ in range(2):
            faq = ask(self.ports[0], "of which namespace?", headers={"x-deja-namespace": "faq"})[1]
            other = self.cached(self.ports[0], "of which namespace?")
        self.assertEqual((faq["x-deja-cache"], faq["x-deja-reason"], other), ("bypass", "off", "exact"))

    def test_a_stopped_gateway_catches_up_and_a_new_one_begins_with_what_is_set(self):
        self.processes[1].popen.send_signal(signal.SIGSTOP)
        try:
            fcall(self.rig, "deja_config_set", "ttl_s", "77")
            fcall(self.rig, "deja_config_set", "exact", "no")
            cli(self.rig, "XTRIM", KEY + ":log", "MAXLEN", "0")       # the events are gone too
        finally:
            self.processes[1].popen.send_signal(signal.SIGCONT)
        self.until_in_force()
        self.assertNotEqual(self.cached(self.ports[1], "caught up?"), "exact")
        self.assertEqual(self.cached(self.ports[1], "caught up?", headers={"x-deja-cache": "exact"}), "miss")
        process = self.rig.gateway("--upstream", self.fake.url, "--redis", self.rig.redis_url, "--cache-redis-deadline-ms", "1000", name="gateway-3")
        port = self.rig.port
        until(lambda: "settings in force version=" in process.tail(), 3)
        ask(port, "begun with?")
        self.assertEqual(self.cached(port, "begun with?"), "miss")
        self.assertEqual(process.stop(), 0)
        self.rig.processes.remove(process)

    def test_settings_survive_a_restart_of_redis_and_stay_in_force_while_it_is_away(self):
        fcall(self.rig, "deja_config_set", "exact", "no")
        self.until_in_force()
        time.sleep(1.1)                                               # appendfsync everysec
        redis = self.rig.processes[0]
        redis.kill()
        redis.popen.wait()
        os.unlink(self.rig.redis_socket)
        ask(self.ports[0], "while away?")
        self.assertNotEqual(self.cached(self.ports[0], "while away?", headers={"x-deja-cache": "exact"}), "exact")
        redis.start().wait_for(lambda: os.path.exists(self.rig.redis_socket), 10)
        until(lambda: fcall(self.rig, "deja_config_get", "exact").startswith("exact = no"), 10)
        fcall(self.rig, "deja_config_set", "exact", "yes")
        until(lambda: self.cached(self.ports[0], "back?") == "exact", 5)

    def test_a_newer_programs_knob_harms_nothing(self):
        cli(self.rig, "HSET", KEY, "global knob_of_tomorrow", "9")
        fcall(self.rig, "deja_config_set", "ttl_s", "99")
        self.until_in_force()
        cli(self.rig, "HDEL", KEY, "global knob_of_tomorrow")
        self.assertIn("not_understood=1", self.processes[0].tail(200000))


if __name__ == "__main__":
    unittest.main()
