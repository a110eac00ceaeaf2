"""Goal: which model answers for which is changed while gateways run, by redis-cli or HTTP: checked with a word about what would be right, in
force on all of them within a second, undone like every knob, and what is at work meanwhile is answered. Method: two gateways, scripted
upstreams, a private Redis."""
import json
import subprocess
import threading
import time
import unittest

from tests.integration.fake_upstream import FakeUpstream
from tests.integration.live_rig import cli, fcall, until
from tests.integration.rig import BIN, Rig, call, free_port, unique

BAD = (("fallback", "big", "expected model=other,third"), ("fallback", "big=", "expected model=other,third"), ("fallback", "=x", "expected model=other,third"),
       ("fallback", "big=big", "big is its own fallback"), ("fallback", "big=a,b,c,d,e", "at most 4 others"), ("fallback", "big=a,,b", "expected model=other"),
       ("fallback", "", "there is no line"), ("route", " ; ", "there is no line"), ("route", "x" * 9000, "over 8192 bytes"),
       ("route", "chat", "expected when or ->"), ("route", "chat -> ", "expected a model after ->"), ("route", "chat -> a b", "expected the end of the line"),
       ("route", "chat when mood=good -> a", "expected prompt_tokens, prompt_bytes"), ("route", "chat when load ~ 3 -> a", "expected > >= < <= = or !="),
       ("route", "chat when load > many -> a", "expected a whole number"), ("route", "chat when tenant > x -> a", "expected = or !="),
       ("route", "chat when load > 1 and -> a", "expected prompt_tokens"), ("route", "a -> b; c when load > 3 d", "line 2: "),
       ("route", "; ".join(f"m{i} -> b" for i in range(257)), "more than 256 lines"),
       ("route", "a when " + " and ".join(["load > 1"] * 9) + " -> b", "more than 8 conditions"))
# said alike by gateways of their options and by Redis of the knobs: (name, text, what is said of which line)
STREAM, CLASS, SIDES = "expected yes or no after stream", "expected online or batch after class", "expected a word on each side of |"
STAYS = "expected another model after ->: it leads to itself, and no later line is of it or of *"
NAMED, ALONE = "* stands for any only before it", "expected no other line, ; or comment beside it: none stands alone"
ALIKE = (("route", "a when stream = maybe -> b", f'line 1: "maybe": {STREAM}'), ("route", "a -> b; c when stream != yes|on -> d", f'line 2: "on": {STREAM}'),
         ("route", "a when class = bulk -> b", f'line 1: "bulk": {CLASS}'), ("route", "a when load > 1 and class!=batch|said -> b", f'line 1: "said": {CLASS}'),
         ("route", "a when class > batch -> b", 'line 1: ">": expected = or !='), ("route", "a when stream = Yes -> b", f'line 1: "Yes": {STREAM}'),
         ("route", "a when tenant = x|y| -> b", f'line 1: "x|y|": {SIDES}'), ("route", "a -> b; a when tenant != x||y -> c", f'line 2: "x||y": {SIDES}'),
         ("route", "a when class = |batch -> b", f'line 1: "|batch": {SIDES}'), ("route", "a when stream = | -> b", f'line 1: "|": {SIDES}'),
         ("route", "a when tenant = and -> b", 'line 1: "and": expected a word'),
         ("fallback", "a=b,", 'line 1: "a=b,": expected model=other,third'),
         ("route", "a -> b; c -> *", f'line 2: "*": expected the name of a model after ->: {NAMED}'),
         ("fallback", "a=b; c=d,*", f'line 2: "*": expected the name of a model after =: {NAMED}'),
         ("fallback", "*=*", f'line 1: "*": expected the name of a model after =: {NAMED}'),
         ("fallback", "a=b; c=d; a = e", 'line 3: "a = e": line 1 is of a too: expected one line with all its others'),
         ("fallback", "b=c; *=a; *=b", 'line 3: "*=b": line 2 is of * too: expected one line with all its others'),
         ("fallback", "a=b; c=c", "line 2: c is its own fallback"), ("fallback", "a=b; c", 'line 2: "c": expected model=other,third'),
         ("route", "a -> a", f'line 1: "a": {STAYS}'), ("route", "* -> b; a when load > 3 -> a; c -> c", f'line 2: "a": {STAYS}'),
         ("route", "a -> b; none", f'line 2: "none": {ALONE}'), ("route", "None # yet; a -> b", f'line 1: "None": {ALONE}'),
         ("fallback", "none; a=b", f'line 1: "none": {ALONE}'), ("fallback", "a=b; NONE", f'line 2: "NONE": {ALONE}'),
         ("route", "none;", f'line 1: "none": {ALONE}'), ("fallback", "none;", f'line 1: "none": {ALONE}'))
GOOD = (("route", "chat when prompt_tokens>500 and tenant!=a|b->small", "chat when prompt_tokens > 500 and tenant != a|b -> small"),
        ("route", "# nothing yet\nchat -> small # now\n*->big", "chat -> small; * -> big"), ("route", "none", "none"), ("route", "DEFAULT", "none"),
        ("route", "chat when tenant=acme -> chat; big -> big; * -> small", "chat when tenant = acme -> chat; big -> big; * -> small"),
        ("route", "chat when class=online|batch and stream != no -> small", "chat when class = online|batch and stream != no -> small"),
        ("route", "none -> small; none -> big", "none -> small; none -> big"), ("fallback", "none=big", "none=big"),
        ("fallback", " big = middle , small ;\n* = small; ", "big=middle,small; *=small"), ("fallback", "None", "none"))


class Rules(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig, cls.a, cls.b = Rig(), FakeUpstream(), FakeUpstream()
        cls.rig.redis()
        cls.ports, cls.gateways = [], []
        for name in ("one", "two"):
            cls.gateways.append(cls.rig.gateway(
                "--upstream", f"{cls.a.url} models=big", "--upstream", f"{cls.b.url} models=small", "--redis", cls.rig.redis_url, "--fallback", "big=small",
                "--breaker-error-percent", "0", "--breaker-failures", "1000", "--upstream-backoff-ms", "5", "--stale-if-error-s", "0",
                "--admin-key", "adm", name=name))
            cls.ports.append(cls.rig.port)

    @classmethod
    def tearDownClass(cls):
        cls.a.close()
        cls.b.close()
        cls.rig.close()

    def setUp(self):
        self.a.fail = self.a.gate = None

    def tearDown(self):
        for name in ("route", "fallback"):
            self.set(name, "unset")

    def set(self, name, value, *more):
        return fcall(self.rig, "deja_config_set", name, value, *more)

    def ask(self, at, model, text=None, **headers):
        body = {"model": model, "messages": [{"role": "user", "content": text or unique()}], "temperature": 0}
        return call(self.ports[at], "POST", "/v1/chat/completions", body, headers, 30)

    def admin(self, method, body=None, at=0):
        s, _, b = call(self.ports[at], method, "/admin/config", body, {"Authorization": "Bearer adm"})
        return s, json.loads(b)

    def test_what_cannot_be_read_is_refused_with_what_would_be_right(self):
        for name, text, words in BAD:
            said = self.set(name, text)
            self.assertTrue(said.startswith(f"(error) ERR {name}: ") or said.startswith(f"ERR {name}: "), (text[:60], said))
            self.assertIn(words, said)
        for where in ("ns:faq", "tenant:t", "model:m", "all"):
            self.assertIn("may be set in global only", self.set("route", "a -> b", "IN", where))
        self.assertIn("no knob of an arm", fcall(self.rig, "deja_experiment_start", "e", "ARM", "x", "ARM", "y", "route", "a -> b"))
        s, doc = self.admin("PUT", {"name": "route", "value": "chat -> "})
        self.assertEqual((s, doc["error"]["param"]), (400, "value"), doc)
        self.assertIn("a model after ->", doc["error"]["message"])

    def test_what_cannot_do_what_it_says_is_refused_alike_by_redis_and_at_the_start(self):
        for name, text, words in ALIKE:
            said = self.set(name, text)
            self.assertIn(f"ERR {name}: {words}", said)
            self.assertIn("(as in: ", said)
            options = [x for line in text.split("; ") for x in ("--" + name, line)]
            for given in (options, ["--" + name, text]):
                p = subprocess.run([BIN, "gateway", "--port", str(free_port()), "--upstream", self.a.url, *given], capture_output=True, text=True, timeout=60)
                self.assertNotEqual(p.returncode, 0, given)
                self.assertIn(words, p.stdout + p.stderr, given)
                self.assertIn(f"option {name}: ", p.stdout + p.stderr, given)

    def test_what_is_set_is_what_gateways_understand(self):
        for name, text, stored in GOOD:
            self.assertTrue(self.set(name, text).startswith("version "), text)
            settings = json.loads(fcall(self.rig, "deja_config_get", "JSON"))["settings"]
            self.assertEqual([x["value"] for x in settings if x["name"] == name], [stored])
            for at in (0, 1):
                until(lambda: [k["value"] for k in self.admin("GET", at=at)[1]["knobs"] if k["name"] == name] == [stored], 5, stored)
            self.set(name, "unset")
        for g in self.gateways:
            self.assertNotIn("not_understood=1", g.tail(100000))

    def test_models_that_no_upstream_takes_are_told_in_the_reply_the_log_and_the_settings(self):
        passed = "no upstream of this gateway takes nosuch, other: passed over when fallbacks are asked"
        until(lambda: cli(self.rig, "HLEN", "{deja}:config:models") == "2", 5, "what both take")
        fcall(self.rig, "deja_models", "another", "nosuch\nlarge")    # a gateway that has more
        said = self.set("fallback", "big=nosuch,large,more")
        self.assertIn("-> big=nosuch,large,more; no upstream of any gateway takes more: passed", said)
        cli(self.rig, "HDEL", "{deja}:config:models", "another")
        s, doc = self.admin("PUT", {"name": "fallback", "value": "big=nosuch,small; gone=small; *=other"})
        self.assertEqual((s, doc["message"].partition("; no ")[2]), (200, passed.replace("this", "any")[3:]), doc)
        said = self.set("route", "chat when load > 50 -> nosuch; big when load > 90 -> small; chat -> big")
        self.assertTrue(said.endswith("; no upstream of any gateway takes nosuch: requests that a rule leads there fail"), said)
        for at, g in enumerate(self.gateways):
            until(lambda at=at: {k["name"]: k["unserved"] for k in self.admin("GET", at=at)[1]["knobs"] if "unserved" in k}
                  == {"route": ["nosuch"], "fallback": ["nosuch", "other"]}, 5)
            until(lambda g=g: "fallback: " + passed in g.tail(100000), 5)
            until(lambda g=g: "route: no upstream of this gateway takes nosuch: requests that a rule leads there fail" in g.tail(100000), 5)
        self.set("ttl_s", "3601", "IN", "ns:other")                    # another knob tells it no second time
        for name, value in (("fallback", "big=small"), ("route", "chat -> small"), ("fallback", "none"), ("ttl_s", "3600")):
            s, doc = self.admin("PUT", {"name": name, "value": value})
            self.assertEqual((s, "no upstream" in doc["message"]), (200, False), doc)
        until(lambda: all(not k["unserved"] for k in self.admin("GET")[1]["knobs"] if "unserved" in k), 5)
        self.assertEqual(self.gateways[0].tail(100000).count(passed), 1)
        self.set("ttl_s", "unset")
        self.set("ttl_s", "unset", "IN", "ns:other")

    def test_the_class_of_a_rule_is_that_of_the_queue(self):
        self.set("route", "chat when class = batch -> small; chat -> big")
        until(lambda: self.ask(0, "chat")[1].get("x-deja-model") == "big", 5)
        for said in ({"x-deja-priority": "batch"}, {"x-priority": "batch"}):
            self.assertEqual(self.ask(0, "chat", **said)[1].get("x-deja-model"), "small", said)
        self.assertIn("class=batch", self.gateways[0].tail(20000))

    def test_rules_are_in_force_on_every_gateway_within_a_second_and_undone(self):
        s, doc = self.admin("PUT", {"name": "route", "value": "chat when messages > 1 -> big; chat -> small"})
        self.assertEqual(s, 200, doc)
        for at in (0, 1):
            took = until(lambda: self.ask(at, "chat")[1].get("x-deja-model") == "small", 5)
            self.assertLess(took, 3)
        fcall(self.rig, "deja_config_rollback")
        for at in (0, 1):
            until(lambda: self.ask(at, "chat")[0] != 200, 5)
        self.assertIn("route chat when messages > 1 -> big; chat -> small -> unset", fcall(self.rig, "deja_config_history"))

    def test_fallbacks_are_changed_and_taken_away_while_requests_are_at_work(self):
        self.a.fail = "500"
        self.assertEqual(self.ask(0, "big")[1].get("x-deja-served-by"), "fallback; model=small")       # the start option
        self.set("fallback", "none")
        for at in (0, 1):
            until(lambda: self.ask(at, "big")[0] == 500, 5)
        self.set("fallback", "big=small; nothing=small")
        for at in (0, 1):
            until(lambda: self.ask(at, "big")[1].get("x-deja-served-by") == "fallback; model=small", 5)
        self.a.gate, replies = threading.Event(), []                   # a failure that comes after its rules are gone
        threads = [threading.Thread(target=lambda i=i: replies.append(self.ask(i % 2, "big"))) for i in range(6)]
        before = self.a.count()
        for t in threads:
            t.start()
        until(lambda: self.a.count() >= before + 6, 20)
        self.set("fallback", "none")
        for at in (0, 1):
            until(lambda: "none" in [k["value"] for k in self.admin("GET", at=at)[1]["knobs"] if k["name"] == "fallback"], 5)
        time.sleep(0.3)
        self.a.gate.set()
        for t in threads:
            t.join(30)
        self.assertEqual([r[1].get("x-deja-served-by") for r in replies], ["fallback; model=small"] * 6)


if __name__ == "__main__":
    unittest.main()
