"""Goal: what redis-cli does, the /admin endpoints do over HTTP, with a key and never without; JSON in and out, mistakes told with their
member. Method: a gateway on a real redis-server."""
import json
import os
import unittest

from tests.integration.fake_upstream import FakeUpstream
from tests.integration.live_rig import cli, fcall, until
from tests.integration.rig import DATA, Rig, ask, call, metric

TINY = os.path.join(DATA, "tiny-bert.gguf")
ADMIN = "an-admin-key"
AUTH = {"Authorization": "Bearer " + ADMIN}


class Admin(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig, cls.fake = Rig(), FakeUpstream()
        cls.addClassCleanup(cls.rig.close)
        cls.addClassCleanup(cls.fake.close)
        cls.rig.redis()
        cls.process = cls.rig.gateway("--upstream", cls.fake.url, "--redis", cls.rig.redis_url, "--admin-key", ADMIN,
                                      "--cache-redis-deadline-ms", "1000")
        cls.port = cls.rig.port

    def admin(self, method, path, body=None, headers=AUTH, want=200):
        status, got, raw = call(self.port, method, "/admin" + path, body, headers)
        self.assertEqual(status, want, raw)
        self.assertEqual(got["content-type"], "application/json")
        doc = json.loads(raw)
        return doc if want == 200 else (doc["error"]["param"], doc["error"]["message"])

    def test_nothing_happens_without_the_right_key_and_nothing_at_all_where_none_is_configured(self):
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer " + ADMIN + "x"}, {"Authorization": ADMIN},
                        {"x-admin-key": ""}):
            self.admin("PUT", "/config", {"name": "ttl_s", "value": 5}, headers, 401)
            self.admin("GET", "/nothing", None, headers, 401)
        self.assertEqual(self.admin("GET", "/config", None, {"x-admin-key": ADMIN})["settings"], [])
        self.rig.gateway("--upstream", self.fake.url, "--redis", self.rig.redis_url, name="closed")
        status, _, raw = call(self.rig.port, "GET", "/admin/config", None, {"Authorization": "Bearer "})
        self.assertEqual((status, json.loads(raw)["error"]["code"]), (403, "admin_off"))
        self.assertNotIn(ADMIN, self.process.tail(200000))

    def test_settings_that_are_lost_with_redis_data_are_told(self):
        rig = Rig()
        self.addCleanup(rig.close)
        rig.redis()
        process = rig.gateway("--upstream", self.fake.url, "--redis", rig.redis_url)
        fcall(rig, "deja_config_set", "ttl_s", "600")
        fcall(rig, "deja_config_set", "limit_requests_per_min", "5", "IN", "tenant:a")
        until(lambda: metric(rig.port, "deja_settings_version") == 2, 5, "both are in force")
        self.assertNotIn("version fell", process.tail(1 << 20))
        cli(rig, "FLUSHALL")
        until(lambda: metric(rig.port, "deja_settings_version") == 0, 5, "nothing is")
        self.assertRegex(process.tail(1 << 20), r"warn +gateway settings: their version fell from 2 to 0: ")

    def test_a_knob_is_set_shown_and_undone(self):
        said = self.admin("PUT", "/config", {"name": "ttl_s", "value": 600, "note": "shorter"}, {**AUTH, "x-deja-who": "ana"})
        self.assertRegex(said["message"], r"^version \d+: ttl_s unset -> 600$")
        version = int(said["message"].split()[1][:-1])
        until(lambda: self.admin("GET", "/config")["in_force_version"] == version, 1)
        doc = self.admin("GET", "/config")
        self.assertEqual((doc["version"], doc["settings"]), (version, [{"scope": "global", "name": "ttl_s", "value": "600"}]))
        knob = next(k for k in doc["knobs"] if k["name"] == "ttl_s")
        self.assertEqual((knob["value"], knob["default"], knob["type"], knob["min"], knob["max"], knob["unit"]), ("600", "86400", "int", 1, 31536000, "s"))
        self.admin("PUT", "/config", {"name": "ttl_s", "value": 60, "scope": "ns:faq"})
        until(lambda: next(k for k in self.admin("GET", "/config?ns=faq")["knobs"] if k["name"] == "ttl_s")["value"] == "60", 1)
        history = self.admin("GET", "/history?count=2")
        self.assertEqual([(h["who"], h["scope"], h["note"]) for h in history], [("admin", "ns:faq", ""), ("ana", "global", "shorter")])
        lines = self.admin("POST", "/rollback", {"to": version - 1, "who": "ben"})["lines"]
        self.assertEqual(lines[1:], ["ttl_s 600 -> unset", "ttl_s 60 -> unset (ns:faq)"])

    def test_a_mistake_is_told_with_its_member(self):
        for method, path, body, param, words in (
                ("PUT", "/config", {"name": "ttl_s", "value": 0}, "value", "ttl_s: 0 is too low; it may be 1 to 31536000 s"),
                ("PUT", "/config", {"name": "tl_s", "value": 0}, "name", 'did you mean "ttl_s"?'),
                ("PUT", "/config", {"name": "ttl_s", "value": 9, "scope": "faq"}, "scope", "is none: it may be global"),
                ("PUT", "/config", {"name": "ttl_s"}, "value", "is missing"), ("PUT", "/config", [], "body", "expected a JSON object"),
                ("PUT", "/config", b'{"name":', "body", ""), ("GET", "/stats?hours=0", None, None, "HOURS may be a whole number from 1"),
                ("POST", "/forget", {"by": "colour", "value": "x"}, None, "is unknown; it may be entry"),
                ("POST", "/rollback", {"to": 99999}, None, "version must be from 0"),
                ("POST", "/experiments", {"name": "e", "arms": [{"name": "a"}]}, None, "2 to 8 arms, not 1"),
                ("POST", "/experiments", {"name": "e", "arms": [{"name": "a", "knobs": []}]}, "arms[0].knobs", "expected an object")):
            got, message = self.admin(method, path, body, want=400)
            self.assertEqual(got, param, message)
            self.assertIn(words, message)
        self.admin("GET", "/konfig", want=404)
        status, headers, _ = call(self.port, "POST", "/admin/config", {}, AUTH)
        self.assertEqual((status, headers["allow"]), (405, "GET, PUT"))

    def test_what_is_forgotten_is_counted_first(self):
        entry = ask(self.port, "to be forgotten?", headers={"x-deja-tags": "old"})[1]["x-deja-entry"]
        until(lambda: self.admin("POST", "/forget", {"by": "tag", "value": "old", "dry_run": True})["matched"] == 1, 3)
        self.assertEqual(ask(self.port, "to be forgotten?")[1]["x-deja-entry"], entry)
        self.assertEqual(self.admin("POST", "/forget", {"by": "tag", "value": "old"})["deleted"], 1)
        until(lambda: ask(self.port, "to be forgotten?", headers={"Cache-Control": "only-if-cached"})[0] == 504, 2)

    def test_an_experiment_from_start_to_end_and_the_statistics(self):
        lines = self.admin("POST", "/experiments", {"name": "http", "split": "tenant", "note": "n",
                                                    "arms": [{"name": "a"}, {"name": "b", "percent": 50, "knobs": {"exact": False, "ttl_s": 60}}]})["lines"]
        self.assertIn("arm b 50 %: exact no, ttl_s 60", lines)
        until(lambda: "x-deja-arm" in ask(self.port, "which arm?")[1], 2)
        until(lambda: sum(a["requests"] for a in self.admin("GET", "/experiments?name=http")["arms"]) >= 1, 3)
        doc = self.admin("DELETE", "/experiments", {"note": "enough"})
        self.assertEqual((doc["state"], [a["name"] for a in doc["arms"]]), ("stopped", ["a", "b"]))
        self.assertGreater(self.admin("GET", "/stats?hours=2")["requests"], 0)
        self.assertEqual(self.admin("DELETE", "/experiments", want=400)[1], "deja_experiment_stop: none is running")

    def test_explain_says_what_each_step_would_say_and_changes_nothing(self):
        self.rig.gateway("--upstream", self.fake.url, "--redis", self.rig.redis_url, "--admin-key", ADMIN, "--embed-model", TINY,
                         "--cache-redis-deadline-ms", "1000", "--cache-embed-deadline-ms", "2000", name="explaining")
        port = self.rig.port
        stored = ask(port, "How do I pay 20 euros by card?")[1]
        self.assertEqual(ask(port, "How do I pay 20 euros by card?")[1]["x-deja-cache"], "exact")

        def explain(text, query="", **fields):
            body = {"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": 8, "temperature": 0, **fields}
            status, _, raw = call(port, "POST", "/admin/explain" + query, body, AUTH)
            self.assertEqual(status, 200, raw)
            return json.loads(raw)

        def counted():
            text = call(port, "GET", "/metrics")[2].decode()
            return [x for x in text.splitlines() if x.startswith(("deja_cache_lookups", "deja_cache_guard", "deja_cache_refus", "deja_cache_total"))]
        before, calls = counted(), self.fake.count()
        doc = explain("How do I pay 20 euros by card?")
        self.assertEqual((doc["result"], doc["entry"], doc["candidates"]), ("exact", stored["x-deja-entry"], []))
        doc = explain("How do I pay 20 euros by card?", "?skip_exact=true")
        self.assertEqual((doc["result"], doc["reason"], doc["candidates"][0]["step"]), ("semantic", "semantic:same", "hit"))
        doc = explain("How do I pay 30 euros by card?")
        first = doc["candidates"][0]
        self.assertEqual((doc["result"], doc["reason"], first["step"]), ("miss", "guard:number", "guards"))
        self.assertEqual((first["question"], first["entry"]), ("How do I pay 20 euros by card?", stored["x-deja-entry"]))
        self.assertIn("20", first["detail"])
        doc = explain("How do I pay 20 euros by card?", tools=[{"type": "function", "function": {"name": "f"}}])
        self.assertEqual((doc["result"], doc["reason"], doc["key"]["why_not"]), ("miss", "skipped:tools", "tools"))
        self.assertEqual(explain("How do I pay 20 euros by card?", "?tenant=other")["reason"], "empty")
        self.assertEqual((counted(), self.fake.count()), (before, calls))
        status, _, raw = call(port, "POST", "/admin/explain", {"model": "m", "messages": 7}, AUTH)
        self.assertEqual((status, json.loads(raw)["error"]["param"]), (400, "messages"))
        for query, said in (("?tennant=other", "tennant is not known here"), ("?skip_exact=1", "skip_exact: expected true or false"),
                            ("?tenant=" + "t" * 65, "tenant: expected at most 64 bytes"), ("?tenant=%zz", "malformed")):
            status, _, raw = call(port, "POST", "/admin/explain" + query, {"model": "m", "messages": [{"role": "user", "content": "a"}]}, AUTH)
            self.assertEqual((status, json.loads(raw)["error"]["param"]), (400, "query"))
            self.assertIn(said, json.loads(raw)["error"]["message"])
        self.assertEqual(call(port, "POST", "/admin/explain", {"model": "m"}, {})[0], 401)
        self.assertEqual(call(port, "GET", "/admin/explain", None, AUTH)[1]["allow"], "POST")

    def test_without_redis_it_says_so_and_serves_on(self):
        self.rig.gateway("--upstream", self.fake.url, "--admin-key", ADMIN, name="memory-only")
        status, _, raw = call(self.rig.port, "GET", "/admin/stats", None, AUTH)
        self.assertEqual((status, json.loads(raw)["error"]["code"]), (503, "no_redis"))
        redis = self.rig.processes[0]
        redis.kill()
        redis.popen.wait()
        os.unlink(self.rig.redis_socket)
        try:
            self.assertIn("Redis", self.admin("PUT", "/config", {"name": "ttl_s", "value": 5}, want=503)[1])
            self.assertEqual(ask(self.port, "still served?")[0], 200)
        finally:
            redis.start().wait_for(lambda: os.path.exists(self.rig.redis_socket), 10)
            until(lambda: cli(self.rig, "PING") == "PONG", 5)
            until(lambda: "version" in fcall(self.rig, "deja_config_get"), 5)

    def test_a_client_that_leaves_harms_nobody(self):
        cli(self.rig, "CLIENT", "PAUSE", "700")
        with self.assertRaises(OSError):
            call(self.port, "GET", "/admin/stats", None, AUTH, timeout=0.2)
        until(lambda: call(self.port, "GET", "/admin/stats", None, AUTH)[0] == 200, 5)


if __name__ == "__main__":
    unittest.main()
