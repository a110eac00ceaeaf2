"""Goal: answers people wrote (`deja seed`) are served before anything a model said, exactly and by meaning, streamed or not, survive restarts
of Redis and gateways, and loading them twice changes nothing. Method: real deja, redis-server and gateway, a scripted upstream."""
import json
import os
import subprocess
import tempfile
import time
import unittest

from tests.integration.fake_upstream import FakeUpstream
from tests.integration.rig import BIN, DATA, Rig, ask, call, first_true, said_of

FAQ = [{"question": "How do I reset my password?", "answer": "Press Forgot password.", "wordings": ["pw forgotten, what now"],
        "near": ["How do I reset my router?"], "tags": ["account"], "lang": "en"},
       {"question": "What does express delivery cost?", "answer": "It costs 9.95.", "ttl": 3600}]
CLIENT = r"""
import sys
from openai import OpenAI
c = OpenAI(base_url=sys.argv[1], api_key="x")
m = [{"role": "user", "content": "How do I reset my password?"}]
r = c.chat.completions.create(model="m", messages=m)
print(r.choices[0].message.content, r.choices[0].finish_reason, r.usage.total_tokens, r.model, r.created > 1700000000)
print("".join(x.choices[0].delta.content or "" for x in c.chat.completions.create(model="m", messages=m, stream=True) if x.choices))
"""


class Seed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig, cls.fake = Rig(), FakeUpstream()
        cls.addClassCleanup(cls.rig.close)
        cls.addClassCleanup(cls.fake.close)
        cls.rig.redis()
        cls.start_gateway()
        cls.path = os.path.join(cls.rig.folder, "faq.jsonl")

    @classmethod
    def start_gateway(cls, *extra, embed="tiny-bert.gguf", name="gateway"):
        embedder = ("--embed-model", os.path.join(DATA, embed)) if embed else ()
        return cls.rig.gateway("--upstream", cls.fake.url, "--redis", cls.rig.redis_url, *embedder, "--cache-redis-deadline-ms", "2000",
                               "--cache-embed-deadline-ms", "5000", "--admin-key", "k", *extra, name=name)

    def redis(self, *words, check=True):
        return subprocess.run(["redis-cli", "-s", self.rig.redis_socket, *words], stdout=subprocess.PIPE, text=True, check=check).stdout.strip()

    def seed(self, items=None, *extra, path=None, status=0):
        path = path or self.path
        if items is not None:
            with open(path, "w", encoding="utf8") as f:
                f.write(items if isinstance(items, str) else "\n".join(json.dumps(i, ensure_ascii=False) for i in items) + "\n")
        r = subprocess.run([BIN, "seed", path, "--redis", self.rig.redis_url, *extra], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                           timeout=60, check=False)
        self.assertEqual(r.returncode, status, r.stdout + r.stderr)
        return r.stdout.strip(), r.stderr

    def served(self, text, headers=None, **fields):
        """The curated answer, or None when the upstream was asked."""
        r = ask(self.rig.port, text, dict({"x-deja-cache": "exact"}, **(headers or {})) if fields.pop("exact", False) else headers, model="m", **fields)
        return (r[1]["x-deja-cache"], r[1].get("x-deja-reason"), said_of(r)) if r[1]["x-deja-cache"] not in ("miss", "bypass") else None

    def tearDown(self):
        self.redis("FCALL", "deja_config_set", "1", "{deja}:config", "curated", "plain")
        for line in self.redis("FCALL", "deja_seeds", "1", "{deja}").splitlines():
            if line:
                self.seed(None, "--remove", "--set", line.split("  ")[0], path="gone")

    def test_what_was_loaded_is_served_exactly_and_by_wording_before_what_a_model_said(self):
        text = "How do I reset my password?"
        ask(self.rig.port, text, model="m")
        self.assertEqual(self.served(text)[:2], ("exact", "exact"))         # a model's
        self.assertEqual(self.seed(FAQ)[0], "faq.jsonl: new 2, changed 0, same 0, removed 0, refused 0")
        first_true(lambda: self.served(text) == ("exact", "curated", "Press Forgot password."))
        n = self.fake.count()
        self.assertEqual(self.served("pw forgotten, what now"), ("semantic", "semantic:wording", "Press Forgot password."))
        self.assertEqual(self.served("Please, how do I RESET my password??"), ("semantic", "semantic:same", "Press Forgot password."))
        self.assertEqual(self.served(text, exact=True), ("exact", "curated", "Press Forgot password."))
        self.assertEqual(self.served(text, max_tokens=3, temperature=2)[1], "curated")
        self.assertEqual(self.fake.count(), n)
        self.assertIsNone(self.served("How do I reset my router?"))
        self.assertIsNone(self.served(text, tools=[{"type": "function", "function": {"name": "f"}}]))
        self.assertIsNone(self.served(text, n=2))
        self.assertIsNone(self.served(text, response_format={"type": "json_object"}))

    def admin(self, method, query, body=None, key="k"):
        status, _, text = call(self.rig.port, method, "/admin/seed" + query, body, {"Authorization": "Bearer " + key, "Content-Type": "application/x-ndjson"})
        return status, json.loads(text)

    def test_a_file_sent_to_the_admin_endpoint_is_loaded_as_by_the_command(self):
        file = "\n".join(json.dumps(x) for x in FAQ).encode()
        report = {"set": "faq", "dry_run": False, "new": 2, "changed": 0, "same": 0, "removed": 0, "refused": 0, "refusals": []}
        self.assertEqual(self.admin("POST", "?set=faq&dry_run=true", file), (200, {**report, "dry_run": True}))
        self.assertEqual(self.admin("GET", "")[1], {"lines": []})
        self.assertEqual(self.admin("POST", "?set=faq", file), (200, report))
        first_true(lambda: self.served("How do I reset my password?") == ("exact", "curated", "Press Forgot password."))
        self.assertEqual(self.admin("POST", "?set=faq", file), (200, {**report, "new": 0, "same": 2}))
        self.assertEqual(self.admin("GET", "")[1], {"lines": ["faq  2"]})
        self.assertEqual(len(self.admin("GET", "?set=faq")[1]["lines"]), 2)
        again = self.admin("POST", "?set=other", file.splitlines()[0])[1]  # what another set answers is refused and told
        self.assertEqual((again["refused"], again["refusals"][0]["line"]), (1, 1))
        self.assertIn('in the set "faq" already', again["refusals"][0]["why"])
        csv = 'question,answer\n"What does express delivery cost?","It costs 12."\n'.encode()
        self.assertEqual(self.admin("POST", "?set=faq", csv), (200, {**report, "new": 0, "changed": 1, "removed": 1}))
        first_true(lambda: (self.served("What does express delivery cost?") or [0] * 3)[2] == "It costs 12.")
        self.assertEqual(self.admin("DELETE", "?set=faq"), (200, {**report, "new": 0, "removed": 1}))
        first_true(lambda: (self.served("What does express delivery cost?") or [0, 0])[1] != "curated")

    def test_the_admin_endpoint_refuses_what_is_wrong_and_loads_nothing_of_it(self):
        bad = b'{"question":"a"}\n{"question":"b","answer":"c"}\nnot json\n'
        status, said = self.admin("POST", "?set=faq", bad)
        self.assertEqual((status, said["error"]["code"], len(said["problems"])), (400, "seed_mistakes", 2))
        self.assertEqual(said["problems"][0][:2], "1:")
        self.assertEqual(self.admin("GET", "")[1], {"lines": []})
        good = json.dumps(FAQ[0]).encode()
        for query, body, says in (("", good, "name the set"), ("?set=a&ttl=x", good, "ttl"), ("?set=a&speed=2", good, "speed"), ("?set=a&dry_run=1", good, "dry_run"),
                                  ("?set=a", b"", "the body is the file"), ("?set=" + "a" * 129, good, "name the set")):
            status, said = self.admin("POST", query, body)
            self.assertEqual(status, 400, said)
            self.assertIn(says, said["error"]["message"])
        self.assertEqual(self.admin("POST", "?set=a", good, key="wrong")[0], 401)
        self.assertEqual(self.admin("PUT", "?set=a")[0], 405)

    def test_the_openai_client_reads_it_streamed_and_not(self):
        python = os.path.join(os.environ.get("DEJA_VENV", ""), "bin", "python")
        if not os.path.exists(python) or subprocess.run([python, "-c", "import openai"], stderr=subprocess.DEVNULL, check=False).returncode:
            self.skipTest("the openai package is not importable (set DEJA_VENV to an environment that has it)")
        self.seed(FAQ)
        first_true(lambda: self.served("How do I reset my password?", exact=True))
        out = subprocess.run([python, "-c", CLIENT, f"http://127.0.0.1:{self.rig.port}/v1"], stdout=subprocess.PIPE, text=True, timeout=60, check=True)
        self.assertEqual(out.stdout, "Press Forgot password. stop 0 m True\nPress Forgot password.\n")

    def test_the_same_file_twice_changes_nothing_and_a_changed_one_what_differs(self):
        self.seed(FAQ)
        before = self.redis("XLEN", "deja:{deja}:log")
        self.assertEqual(self.seed(FAQ)[0], "faq.jsonl: new 0, changed 0, same 2, removed 0, refused 0")
        self.assertEqual(self.redis("XLEN", "deja:{deja}:log"), before)
        changed = [dict(FAQ[0], answer="Ask support.", wordings=["lost my pw"])]
        self.assertEqual(self.seed(changed, "--dry-run")[0], "would be: faq.jsonl: new 0, changed 1, same 0, removed 1, refused 0")
        self.assertEqual(self.redis("XLEN", "deja:{deja}:log"), before)
        self.assertEqual(self.seed(changed)[0], "faq.jsonl: new 0, changed 1, same 0, removed 1, refused 0")
        first_true(lambda: self.served("lost my pw") == ("semantic", "semantic:wording", "Ask support."))
        self.assertNotEqual((self.served("pw forgotten, what now") or ("",) * 3)[1], "semantic:wording")
        self.assertNotEqual((self.served("What does express delivery cost?") or ("",) * 3)[1], "curated")
        self.assertEqual(self.redis("FCALL", "deja_seeds", "1", "{deja}"), "faq.jsonl  1")

    def test_removing_a_set_needs_no_file_and_leaves_nothing(self):
        self.seed([dict(FAQ[0], question="Is this the removed one?", wordings=["removed one, is it"])])
        first_true(lambda: self.served("removed one, is it"))
        os.unlink(self.path)
        self.assertEqual(self.seed(None, "--remove")[0], "faq.jsonl: new 0, changed 0, same 0, removed 1, refused 0")
        first_true(lambda: self.served("Is this the removed one?", exact=True) is None)
        self.assertEqual(self.redis("--raw", "EVAL", "local n=0 for _,k in ipairs(redis.call('KEYS','deja:{deja}:e:*')) do "
                                    "if redis.call('HGET',k,'set') or redis.call('HGET',k,'by')=='seed' then n=n+1 end end return n", "0"), "0")

    def test_a_damaged_record_of_a_set_is_mended_by_the_next_load_and_can_be_removed(self):
        items = [{"question": f"Is number {i} damaged?", "answer": f"Number {i}."} for i in range(5)]
        self.seed(items, "--set", "hurt")
        ids = self.redis("FCALL", "deja_seeds", "1", "{deja}", "hurt").split()
        self.assertEqual(len(ids), 5)
        rubbish = ("{", "7", '{"w":"x","n":7,"p":[]}', '{"w":[7,{}],"p":"zz"}', '""')
        for i, text in zip(ids, rubbish):
            self.redis("HSET", "deja:{deja}:seed:hurt", i, text)
        self.assertIn("changed 5, same 0", self.seed(items, "--set", "hurt")[0])
        self.assertIn("changed 0, same 5", self.seed(items, "--set", "hurt")[0])
        for i, text in zip(ids, rubbish):
            self.redis("HSET", "deja:{deja}:seed:hurt", i, text)
        self.redis("HSET", "deja:{deja}:seed:hurt", "no id", "x")
        self.seed(None, "--set", "hurt", "--remove")
        self.assertNotIn("hurt", self.redis("FCALL", "deja_seeds", "1", "{deja}"))
        self.assertIsNone(self.served("Is number 1 damaged?"))

    def test_names_of_sets_hold_no_control_characters(self):
        for name in ("a%0Ab", "%01", "x%7F", "%FF"):
            s, _, b = call(self.rig.port, "POST", "/admin/seed?set=" + name, json.dumps(FAQ[0]).encode(), {"Authorization": "Bearer k"})
            self.assertEqual((s, json.loads(b)["error"]["message"][:4]), (400, "set:"), b)
        self.assertIn("control characters", self.redis("FCALL", "deja_seed", "1", "{deja}", "a\nb", "0", "0" * 32, "0" * 32, "0" * 32, "1", "0", "0", "q", "x"))

    def test_mistakes_name_their_line_and_nothing_is_loaded(self):
        text = '{"question":"a?","answer":"1","tenannt":"x"}\n{"question":"b?"}\n[]\n{"question":"c?","answer":"1","near":["c?"]}\n'
        err = self.seed(text, status=1)[1]
        for line in (':1: "tenannt" is unknown: did you mean "tenant"?', ":2: answer: missing or empty", ":3: expected an object, not an array",
                     "3 mistakes in"):
            self.assertIn(line, err)
        err = self.seed('{"question":"c?","answer":"1","near":["c?"]}\n{"question":"c?","answer":"2"}\n', status=1)[1]
        self.assertIn(":1: near[0]: is a wording of this very question", err)
        self.assertIn(":2: the question reads as a question of line 1", err)
        self.assertEqual(self.redis("FCALL", "deja_seeds", "1", "{deja}"), "")

    def test_a_question_of_another_set_is_a_conflict(self):
        self.seed(FAQ)
        out, err = self.seed([FAQ[0]], "--set", "other", status=1)
        self.assertEqual(out, "other: new 0, changed 0, same 0, removed 0, refused 1")
        self.assertIn('is in the set "faq.jsonl" already', err)

    def test_csv_namespace_tenant_and_system_prompt(self):
        path = os.path.join(self.rig.folder, "shop.csv")
        csv = 'question,answer,wordings,namespace\n"When, exactly, do you open?","At ""nine""\nsharp.",opening hours|hours of opening,shop\n'
        self.seed(csv, path=path)
        want, ns = ("exact", "curated", 'At "nine"\nsharp.'), {"x-deja-namespace": "shop"}
        first_true(lambda: self.served("When, exactly, do you open?", ns) == want)
        self.assertEqual(self.served("hours of opening", ns)[1], "semantic:wording")
        self.assertIsNone(self.served("When, exactly, do you open?", exact=True))
        m = [{"role": "system", "content": "You are a pirate."}, {"role": "user", "content": "When, exactly, do you open?"}]
        self.assertIsNone(self.served("", dict(ns, **{"x-deja-cache": "exact"}), messages=m))
        self.redis("FCALL", "deja_config_set", "1", "{deja}:config", "curated", "any_system", "IN", "ns:shop")
        first_true(lambda: self.served("", ns, messages=m) and self.served("", ns, messages=m)[1] == "curated")
        self.redis("FCALL", "deja_config_set", "1", "{deja}:config", "curated", "no", "IN", "ns:shop")
        first_true(lambda: (self.served("When, exactly, do you open?", ns) or ("", ""))[1] != "curated")
        self.redis("FCALL", "deja_config_set", "1", "{deja}:config", "curated", "plain", "IN", "ns:shop")

    def test_it_survives_a_restart_of_redis_and_of_the_gateway_without_an_embedder(self):
        self.seed(FAQ)
        key = next(k for k in self.redis("KEYS", "deja:{deja}:e:*").split() if self.redis("HGET", k, "q") == FAQ[0]["question"])
        self.assertEqual(self.redis("TTL", key), "-1")
        self.rig.processes[0].stop()
        self.rig.processes[0].start().wait_for(lambda: self.redis("PING", check=False) == "PONG", 30)
        gateway = [p for p in self.rig.processes if p.name == "gateway"][-1]
        port = self.rig.port
        try:
            self.start_gateway(embed=None, name="no-embedder")
            first_true(lambda: self.served("How do I reset my password?") == ("exact", "curated", "Press Forgot password."))
            self.assertEqual(self.served("pw forgotten, what now")[1], "semantic:wording")
        finally:
            self.rig.port = port
        self.assertIsNone(gateway.popen.poll())
        first_true(lambda: self.served("How do I reset my password?") == ("exact", "curated", "Press Forgot password."))


if __name__ == "__main__":
    unittest.main()
