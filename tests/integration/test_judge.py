"""Goal: what was nearly a hit is listed for people, judged by a model beside the requests, and then is a hit or never one; a person can
undo it; a judge that fails harms nobody. Method: gateways on a real redis-server, a scripted upstream, and a scripted judge that knows
the truth of the FAQ files (tests/data)."""
import json
import math
import os
import random
import re
import subprocess
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.integration.fake_upstream import FakeUpstream
from tests.integration.live_rig import fcall, until
from tests.integration.rig import BIN, DATA, E5, Rig, ask, call, model

TINY = os.path.join(DATA, "tiny-bert.gguf")
ADMIN = {"Authorization": "Bearer k"}


def faqs(language, n):
    with open(os.path.join(DATA, f"faq_{language}.jsonl"), encoding="utf8") as f:
        return [json.loads(line) for line in f][:n]


class Oracle:
    """A judge that looks the pair up; `mode` makes it fail in other ways."""

    def __init__(self, groups):
        self.group, self.asked, self.mode = {}, [], "truth"
        for g in groups:
            for text in [g["q"], *g["same"]]:
                self.group[text] = g["id"]
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_POST(self):
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                doc = json.loads(raw)
                a, b = (json.loads(x) for x in re.findall(r'"(?:[^"\\]|\\.)*"', doc["messages"][-1]["content"])[:2])
                owner.asked.append((a, b, doc, {k.lower(): v for k, v in self.headers.items()}))
                if owner.mode == "hang":
                    time.sleep(3)
                p = owner.probability(a, b)
                top = [{"token": t, "logprob": math.log(max(q, 1e-9))} for t, q in (("Yes", p * 0.6), (" yes", p * 0.3), ("No", (1 - p) * 0.9), ("Hm", 0.1))]
                body = {"ok": True} if owner.mode == "nonsense" else {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes"}, "logprobs":
                        {"content": [{"token": "Yes", "logprob": -0.1, "top_logprobs": top}]}, "finish_reason": "length"}]}
                body = json.dumps(body).encode()
                self.send_response(500 if owner.mode == "error" else 200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def probability(self, a, b):
        if self.mode == "unsure":
            return 0.5
        return 0.99 if self.group_of(a) == self.group_of(b) is not None else 0.01

    def group_of(self, text):
        """The judge is shown simplified characters: then the known text that has most of them in their places."""
        if text in self.group or text.isascii():
            return self.group.get(text)
        alike = [(sum(x == y for x, y in zip(text, t)), t) for t in self.group if len(t) == len(text)]
        n, t = max(alike, default=(0, ""))
        return self.group[t] if 2 * n >= len(text) > 0 else None

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Judge(unittest.TestCase):
    def begin(self, groups, embed=TINY, **knobs):
        rig, self.fake, self.oracle = Rig(), FakeUpstream(), Oracle(groups)
        self.rig = rig
        self.addCleanup(self.oracle.close)
        self.addCleanup(self.fake.close)
        self.addCleanup(rig.close)
        rig.redis()
        self.process = rig.gateway("--upstream", self.fake.url, "--redis", rig.redis_url, "--embed-model", embed, "--judge-url", self.oracle.url,
                                   "--judge-model", "oracle-1", "--judge-key", "secret", "--admin-key", "k", "--cache-redis-deadline-ms", "1000",
                                   "--cache-embed-deadline-ms", "5000")
        for name, value in {"judge": "yes", "judge_per_min": "6000", "judge_band": "1", "judge_refused": "yes", "top_k": "3", **knobs}.items():
            said = fcall(rig, "deja_config_set", name, str(value))
        version = re.match(r"\D*(\d+)", said)[1]
        until(lambda: f"settings in force version={version} " in self.process.tail(200000), 5)

    def ask(self, text, **fields):
        status, headers, _ = ask(self.rig.port, text, **fields)
        self.assertEqual(status, 200)
        return headers

    def seed(self, text):
        """Asks, so that it is stored, and waits until it is found by similarity too; its entry."""
        entry = self.ask(text)["x-deja-entry"]
        body = {"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": 8, "temperature": 0}
        until(lambda: json.loads(call(self.rig.port, "POST", "/admin/explain?skip_exact=true", body, ADMIN)[2])["result"] == "semantic", 10)
        return entry

    def counted(self, name):
        text = call(self.rig.port, "GET", "/metrics")[2].decode()
        return sum(float(x.split()[-1]) for x in text.splitlines() if x.startswith(name))

    def idle(self):
        """Until the judge has nothing to do: it has been asked no more for a while."""
        seen = [-1, time.time()]

        def quiet():
            if len(self.oracle.asked) != seen[0]:
                seen[:] = [len(self.oracle.asked), time.time()]
            return time.time() - seen[1] > 0.6
        until(quiet, 300)

    def stream_twice(self, groups, embed, **knobs):
        self.begin(groups, embed, **{"top_k": 16, "judge_top": 16, "judge_hits": "yes", **knobs})
        entries = {g["id"]: self.seed(g["q"]) for g in groups}
        self.fake.finish = "length"                            # so that nothing more is stored: a second hit is the judge's doing
        stream = [(g["id"], text) for g in groups for text in g["same"]]

        def once():
            seen = {}
            for i in range(0, len(stream), 100):
                seen.update({text: self.ask(text) for _, text in stream[i:i + 100]})
                self.idle()                                    # the judge's queue is bounded
            return seen
        first = once()
        n_questions, judged = len(self.oracle.asked), {b for _, b, _, _ in self.oracle.asked}
        same = {b for a, b, _, _ in self.oracle.asked if self.oracle.probability(a, b) > 0.9}
        second = once()
        hits = {text for text, h in second.items() if h["x-deja-cache"] == "semantic"}
        wrong = [(text, second[text]["x-deja-reason"]) for group, text in stream if text in hits and second[text]["x-deja-entry"] != entries[group]]
        print(f"first time {sum(h['x-deja-cache'] == 'semantic' for h in first.values())} of {len(stream)} hit; {len(judged)} judged with "
              f"{n_questions} questions, {len(same)} the same; second time {len(hits)} hit, {len(hits & same)} of those judged the same, {len(wrong)} wrong")
        self.assertLessEqual(len(wrong), 0.01 * len(stream), wrong)
        return len(hits & same), len(same), len(hits), len(stream)

    def test_the_same_stream_a_second_time_hits_what_was_judged(self):
        again, same, _, n = self.stream_twice(faqs("en", 8), TINY)
        self.assertGreater(same, 2, n)                         # the tiny encoder's vectors say little: 5 to 19, by which comes first
        self.assertGreaterEqual(again, 0.95 * same)

    @unittest.skipUnless(model(E5) and os.environ.get("DEJA_SLOW"), "a long measurement: set DEJA_SLOW=1")
    def test_the_whole_faq_twice_with_the_real_encoder(self):
        again, same, hits, n = self.stream_twice(faqs("en", 80) + faqs("zh", 80), model(E5), judge_top=int(os.environ.get("DEJA_JUDGE_TOP", "16")))
        self.assertGreaterEqual(again, 0.95 * same)
        self.assertGreaterEqual(hits, 0.95 * n)

    @unittest.skipUnless(model(E5) and os.environ.get("DEJA_JUDGE_MODEL_FILE"), "a long measurement: set DEJA_JUDGE_MODEL_FILE to a model of 1.5B or more")
    def test_the_faq_twice_with_a_language_model_of_the_engine_as_judge(self):
        """One wording drawn a question; DEJA_JUDGE_KNOBS holds more settings (`judge_yes=0.95 judge_top=3`), DEJA_JUDGE_WORDINGS how many are asked."""
        rig, self.fake = Rig(), FakeUpstream()
        self.rig = rig
        self.addCleanup(self.fake.close)
        self.addCleanup(rig.close)
        rig.redis()
        path = os.environ["DEJA_JUDGE_MODEL_FILE"]
        rig.engine(path, seconds=300)
        self.process = rig.gateway("--engine-url", f"http://127.0.0.1:{rig.engine_port}", "--upstream", self.fake.url, "--judge-model", os.path.basename(path)[:-5], "--redis",
                                   rig.redis_url, "--embed-model", model(E5), "--admin-key", "k", "--cache-redis-deadline-ms", "1000",
                                   "--cache-embed-deadline-ms", "5000")
        knobs = {"judge": "yes", "judge_per_min": "6000", "judge_band": "1"}
        knobs.update(x.split("=") for x in os.environ.get("DEJA_JUDGE_KNOBS", "").split())
        groups = faqs("en", 80) + faqs("zh", 80)
        entries = {g["id"]: self.seed(g["q"]) for g in groups}
        for name, value in knobs.items():
            fcall(rig, "deja_config_set", name, value)
        time.sleep(1)
        self.fake.finish = "length"                            # so that nothing more is stored: a second hit is the judge's doing
        draw = random.Random(1)
        stream = [(g["id"], draw.choice(g["same"])) for g in groups]
        draw.shuffle(stream)
        del stream[int(os.environ.get("DEJA_JUDGE_WORDINGS", "160")):]

        def idle(seconds=20):
            seen = [-1, time.time()]

            def quiet():
                if self.counted("deja_judged_total") != seen[0]:
                    seen[:] = [self.counted("deja_judged_total"), time.time()]
                return time.time() - seen[1] > seconds
            until(quiet, 7200)

        def once():
            told = {}
            for i in range(0, len(stream), 20):
                told.update({text: self.ask(text, model="m") for _, text in stream[i:i + 20]})
                idle()                                         # the judge's queue is bounded
                print(f"{len(told)} asked, {self.counted('deja_judged_total'):.0f} judged", flush=True)
            right = [text for group, text in stream if told[text]["x-deja-cache"] == "semantic" and told[text]["x-deja-entry"] == entries[group]]
            wrong = [(text, told[text]["x-deja-reason"]) for _, text in stream if told[text]["x-deja-cache"] == "semantic" and text not in right]
            print(f"of {len(stream)}: {len(right)} right, {len(wrong)} wrong {wrong}; with {knobs}", flush=True)
            return right, wrong
        first, _ = once()
        self.tell_marks(stream, entries, set(first))
        right, wrong = once()
        self.assertGreaterEqual(len(right), 0.4 * len(stream))
        self.assertLessEqual(len(wrong), 0.02 * len(stream), wrong)

    def tell_marks(self, stream, entries, first):
        """What other values of judge_yes would have led to, as far as the pairs judged by now tell (setting near_miss_text=yes)."""
        def cli(*words):
            return subprocess.run(["redis-cli", "-s", self.rig.redis_socket, *words], check=True, stdout=subprocess.PIPE, text=True).stdout
        best = {}
        for key in cli("--scan", "--pattern", "{deja}:r:*").split():
            flat = cli("HGETALL", key).split("\n")
            item = dict(zip(flat[::2], flat[1::2]))
            if "q" in item and "p" in item:
                best[item["q"]] = max(best.get(item["q"], (0, "")), (float(item["p"]), item["entry"]))
        for mark in (0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99):
            given = [best[text][1] == entries[group].replace("-", "") for group, text in stream if text not in first and best.get(text, (0,))[0] >= mark]
            print(f"judge_yes {mark}: {len(first) + sum(given)} right, {given.count(False)} wrong of {len(stream)}", flush=True)

    def test_what_the_judge_is_told_and_how_it_is_asked(self):
        groups = faqs("en", 1)
        self.begin(groups)
        self.seed(groups[0]["q"])
        self.ask(groups[0]["same"][1])
        until(lambda: self.oracle.asked, 5)
        a, b, doc, headers = self.oracle.asked[0]
        self.assertEqual((a, b), (groups[0]["q"], groups[0]["same"][1]))
        self.assertEqual((doc["model"], doc["max_tokens"], doc["logprobs"], headers["authorization"]), ("oracle-1", 1, True, "Bearer secret"))
        until(lambda: fcall(self.rig, "deja_review", "list", "WHAT", "approved").count(groups[0]["same"][1]) == 1, 3)
        for _ in range(3):
            self.ask(groups[0]["same"][1], max_tokens=9)       # other parameters: another partition, nothing near
        self.idle()
        self.assertEqual(len(self.oracle.asked), 1)
        self.assertEqual(self.counted('deja_judged_total{verdict="approve"}'), 1)
        stats = json.loads(fcall(self.rig, "deja_stats", "JSON"))
        self.assertEqual((stats["judged"], stats["approved"]), (1, 1))

    def test_a_person_decides_what_the_judge_cannot_and_can_undo_it(self):
        groups = faqs("en", 1)
        self.begin(groups)
        self.oracle.mode = "unsure"
        question, wording = groups[0]["q"], groups[0]["same"][1]
        entry = self.seed(question)
        fcall(self.rig, "deja_config_set", "near_miss_text", "yes")
        time.sleep(0.6)
        self.fake.finish = "length"                            # its own answer is not stored
        self.ask(wording)
        until(lambda: "unsure" in fcall(self.rig, "deja_review", "list"), 5)
        line = fcall(self.rig, "deja_review", "list")
        self.assertRegex(line, rf'^[0-9a-f]{{12}}  unsure \(judge says yes with 0\.50\)  "{re.escape(wording)}"  ~  "{re.escape(question)}"  0\.\d+ \S+  seen \d+ times  entry {entry}$')
        item = line.split()[0]

        def reused():
            return ask(self.rig.port, wording, headers={"Cache-Control": "only-if-cached"})[0] == 200
        self.assertEqual(fcall(self.rig, "deja_review", "approve", item, "BY", "ana"), f'{item}: approved  "{wording}"')
        self.assertTrue(until(reused, 2) < 1)
        self.assertEqual(fcall(self.rig, "deja_review", "list"), "nothing to review")
        self.assertIn("approved (judge says yes with 0.50) by ana", fcall(self.rig, "deja_review", "list", "WHAT", "approved"))
        self.assertIn("revoked", fcall(self.rig, "deja_review", "revoke", item))
        until(lambda: not reused(), 2)
        doc = json.loads(call(self.rig.port, "POST", "/admin/review", {"action": "veto", "id": item}, ADMIN)[2])
        self.assertEqual(doc, {"message": f'{item}: vetoed  "{wording}"'})
        listed = json.loads(call(self.rig.port, "GET", "/admin/review?what=vetoed", None, ADMIN)[2])
        self.assertEqual([(i["id"], i["state"], i["question"], i["stored"], i["by"]) for i in listed], [(item, "vetoed", wording, question, "admin")])
        for args, says in ((("approve", "nothing"), "there is no pair nothing"), (("appprove", item), "expected list, approve, veto, revoke, clear or quarantine"),
                           (("list", "WHAT", "all"), "WHAT may be todo, open"), (("list", "COUNT", "0"), "COUNT may be")):
            self.assertIn("ERR deja_review", fcall(self.rig, "deja_review", *args))
            self.assertIn(says, fcall(self.rig, "deja_review", *args))

    def seed_amounts(self, *amounts):
        return [self.seed(f"How do I pay {n} euros by card?") for n in amounts]

    def test_a_miss_shows_the_judge_as_many_as_the_knob_says_and_the_next_ones_when_it_comes_again(self):
        self.begin([], judge_top=4, top_k=16)
        self.seed_amounts(20, 30, 40, 50, 60, 70)
        self.idle()
        self.fake.finish, self.oracle.asked[:] = "length", []  # those were misses too
        for n in (4, 6, 6):
            self.assertEqual(self.ask("How do I pay 99 euros by card?")["x-deja-cache"], "miss")
            until(lambda n=n: len(self.oracle.asked) >= n, 5)
            self.idle()
            self.assertEqual(len({a for a, _, _, _ in self.oracle.asked}), n)
            self.assertEqual(len(self.oracle.asked), n)        # none twice

    def test_an_answer_given_to_other_words_is_judged_too_where_that_is_wished(self):
        asked = "How do I pay 30 euros by card?"
        self.begin([], judge_hits="no", guard_number="no", guard_replaced_word="no", threshold_en=0.01)
        self.seed_amounts(20)
        self.fake.finish = "length"
        self.assertEqual(self.ask(asked)["x-deja-reason"], "semantic:policy")
        self.idle()
        self.assertEqual(self.oracle.asked, [])
        fcall(self.rig, "deja_config_set", "judge_hits", "yes")
        until(lambda: (self.ask(asked), self.oracle.asked)[1], 5)
        until(lambda: self.ask(asked)["x-deja-reason"] == "veto", 5)
        self.assertEqual(len(self.oracle.asked), 1)

    def test_of_the_nearest_three_the_likeliest_is_approved(self):
        self.begin([], judge="no", judge_top=4, top_k=16)
        entries = dict(zip((20, 30, 40, 50), self.seed_amounts(20, 30, 40, 50)))
        likely = {20: 0.93, 30: 0.98, 40: 0.96, 50: 0.92}
        self.oracle.probability = lambda a, b: likely[int(re.search(r"\d+", a)[0])]
        self.fake.finish = "length"
        fcall(self.rig, "deja_config_set", "judge", "yes")
        until(lambda: (self.ask("How do I pay 99 euros by card?"), self.oracle.asked)[1], 5)
        self.idle()
        asked = [int(re.search(r"\d+", a)[0]) for a, _, _, _ in self.oracle.asked]
        self.assertEqual((len(asked), len(set(asked))), (3, 3))
        best = max(asked, key=likely.get)
        until(lambda: self.ask("How do I pay 99 euros by card?")["x-deja-reason"] == "semantic:wording", 5)
        self.assertEqual(self.ask("How do I pay 99 euros by card?")["x-deja-entry"], entries[best])
        self.assertEqual(self.counted('deja_judged_total{verdict="approve"}'), 1)

    def test_what_lies_beside_a_vetoed_text_is_still_shown_to_the_judge(self):
        groups = [{"id": "20", "q": "How do I pay 20 euros by card?", "same": ["How do I pay 21 euros by card abroad?"]}]
        self.begin(groups)
        entry, = self.seed_amounts(20)
        fcall(self.rig, "deja_wording", "veto", entry, "How do I pay 21 euros by card?", "person")
        self.fake.finish = "length"
        until(lambda: self.ask("How do I pay 21 euros by card?")["x-deja-reason"] == "veto", 5)
        self.idle()                                            # it may have been shown before the veto was known
        self.oracle.asked.clear()
        self.assertEqual(self.ask("How do I pay 21 euros by card?")["x-deja-reason"], "veto")
        self.idle()
        self.assertEqual(self.oracle.asked, [])                # that very text was judged
        self.assertEqual(self.ask(groups[0]["same"][0])["x-deja-reason"], "veto")
        until(lambda: self.ask(groups[0]["same"][0])["x-deja-reason"] == "semantic:wording", 5)
        self.assertEqual(self.ask("How do I pay 21 euros by card?")["x-deja-cache"], "miss")

    def test_the_pairs_of_a_question_are_listed_and_the_others_leave_when_one_is_approved(self):
        self.begin([], judge="no", near_miss_text="yes", near_miss_top=3, top_k=16)
        entries = self.seed_amounts(20, 30, 40, 50)
        self.fake.finish = "length"
        self.ask("How do I pay 99 euros by card?")

        def listed(text, what="todo"):
            return [x for x in fcall(self.rig, "deja_review", "list", "WHAT", what).splitlines() if text in x]

        def near(*which):
            rows = [x for i in which for x in ("", "1000", entries[i], "ab" * 16, "How do I pay 99 francs?", "0.9", "0.95", "verifier")]
            return fcall(self.rig, "deja_near", str(len(which)), *rows)
        until(lambda: len(listed("99 euros")) == 3, 5)
        near(0, 1, 2)
        item = listed("99 francs")[1].split()[0]
        fcall(self.rig, "deja_review", "approve", item)
        self.assertEqual((len(listed("99 francs")), len(listed("99 francs", "approved")), len(listed("99 euros"))), (0, 1, 3))
        self.assertEqual((near(0, 1, 2, 3), listed("99 francs")), ("1", []))   # only the approved pair is counted once more
        fcall(self.rig, "deja_review", "revoke", item)
        near(0, 1, 2, 3)
        self.assertEqual(len(listed("99 francs")), 3)          # what somebody decided on does not come again

    def test_near_misses_are_listed_bounded_and_without_text_unless_the_knob_says_so(self):
        self.begin(faqs("en", 1), judge="no", near_misses=5, stale_if_error_s=0)
        self.seed("How do I pay 20 euros by card?")
        for i in range(30, 42):
            self.ask(f"How do I pay {i} euros by card?", cache={"ttl": 1})
        until(lambda: len(fcall(self.rig, "deja_review", "list").splitlines()) == 5, 5)
        time.sleep(1.5)
        lines = fcall(self.rig, "deja_review", "list").splitlines()
        self.assertEqual(len(lines), 5)
        self.assertIn('"text not kept"', lines[0])             # its entry, where the text stood, has expired
        self.assertIn("guard:number", lines[0])
        self.assertIn("not kept any more", fcall(self.rig, "deja_review", "approve", lines[0].split()[0]))
        fcall(self.rig, "deja_config_set", "near_miss_text", "yes")
        time.sleep(1)
        self.ask("How do I pay 99 euros by card?", cache={"ttl": 1})
        self.ask("How do I pay 98 euros by card?", headers={"Cache-Control": "no-store"})
        until(lambda: '"How do I pay 99 euros by card?"' in fcall(self.rig, "deja_review", "list"), 3)
        time.sleep(1.2)
        self.assertNotIn(" 98 euros", fcall(self.rig, "deja_review", "list"))

    def test_a_judge_that_fails_or_hangs_harms_nobody_and_is_asked_again_later(self):
        groups = faqs("en", 6)
        self.begin(groups)
        for g in groups:
            self.seed(g["q"])
        for mode in ("error", "nonsense"):
            self.oracle.mode = mode
            before = self.counted('deja_judged_total{verdict="failed"}')
            self.ask(groups[0]["same"][1] + " " + mode)
            until(lambda b=before: self.counted('deja_judged_total{verdict="failed"}') > b, 5)
        self.oracle.mode = "hang"
        begin = time.time()
        for g in groups:
            self.ask(g["same"][0])
        self.assertLess(time.time() - begin, 2.5)
        self.oracle.mode = "truth"
        self.assertEqual(self.process.stop(), 0)               # while the judge hangs

    def test_the_engines_own_model_can_be_the_judge(self):
        """A tiny random model with a short window: what it says, refusals included, is worth nothing, and nothing breaks."""
        rig, self.fake = Rig(), FakeUpstream()
        self.rig = rig
        self.addCleanup(self.fake.close)
        self.addCleanup(rig.close)
        rig.redis()
        rig.engine(os.path.join(DATA, "tiny-llama-mixed.gguf"), extra=("--served-model-name", "judge-model"))
        rig.gateway("--engine-url", f"http://127.0.0.1:{rig.engine_port}", "--upstream", self.fake.url, "--judge-model", "judge-model", "--redis",
                    rig.redis_url, "--embed-model", TINY, "--admin-key", "k", "--cache-redis-deadline-ms", "1000", "--cache-embed-deadline-ms", "5000")
        for name, value in (("judge", "yes"), ("judge_per_min", "6000"), ("judge_band", "1"), ("judge_refused", "yes")):
            fcall(rig, "deja_config_set", name, value)
        group = faqs("en", 1)[0]
        self.assertEqual(ask(rig.port, group["q"], model="m")[0], 200)
        until(lambda: ask(rig.port, group["q"] + "?", model="m")[1]["x-deja-cache"] == "semantic", 5)
        for text in (*group["same"], *group["near"]):
            self.assertEqual(ask(rig.port, text, model="m")[0], 200)
        until(lambda: self.counted("deja_judged_total") >= 1, 20)
        self.assertEqual(ask(rig.port, "Is everything well?", model="m")[0], 200)
        self.assertEqual(call(rig.engine_port, "GET", "/ready")[0], 200)

    def test_a_judge_is_measured_on_labelled_pairs_and_its_table_is_used(self):
        groups = faqs("en", 6) + faqs("zh", 6)
        oracle = Oracle(groups)
        self.addCleanup(oracle.close)
        rig = Rig()
        self.addCleanup(rig.close)
        pairs, table = os.path.join(rig.folder, "pairs.jsonl"), os.path.join(rig.folder, "judge.table")
        with open(pairs, "w", encoding="utf8") as f:
            for g in groups:
                for same, texts in ((True, g["same"]), (False, g["near"])):
                    f.writelines(json.dumps({"a": g["q"], "b": t, "lang": "zh" if "zh" in g["id"] else "en", "same": same}) + "\n" for t in texts)
        r = subprocess.run([BIN, "judge", "--url", oracle.url, "--model", "oracle-1", "--pairs", pairs], stdout=subprocess.PIPE, text=True, check=True)
        lines = r.stdout.splitlines()
        self.assertEqual(sum(x.startswith("{") for x in lines), len(oracle.asked))
        self.assertIn("# en: 36 pairs, a same one above a different one in 1.000 of cases", lines)
        at = [float(v) for v in next(x for x in lines if x.startswith("en ")).split()[1:]]
        self.assertTrue(at[0] < 0.15 and at[10] > 0.85, at)
        with open(table, "w", encoding="utf8") as f:
            f.write("\n".join(x for x in lines if not x.startswith("{")) + "\n")
        fake = FakeUpstream()
        self.addCleanup(fake.close)
        rig.gateway("--upstream", fake.url, "--judge-table", table)
        with open(table, "a", encoding="utf8") as f:
            f.write("en 1 0\n")
        r = subprocess.run([BIN, "gateway", "--upstream", fake.url, "--port", "0", "--judge-table", table], stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, check=False, timeout=30)
        self.assertNotEqual(r.returncode, 0)
        self.assertIn("expected 11 numbers from 0 to 1 that never fall", r.stdout)
        for args, says in ((["--model", "m"], "--url, --model and --pairs are needed"),
                           (["--url", oracle.url, "--model", "m", "--pairs", "/nowhere"], "cannot read /nowhere")):
            r = subprocess.run([BIN, "judge", *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            self.assertEqual(r.returncode, 1)
            self.assertIn(says, r.stdout)

    def test_feedback_removes_a_wrong_answer_vetoes_the_pair_and_counts(self):
        groups = faqs("en", 2)
        self.begin(groups, judge="no")
        question, wording = groups[0]["q"], groups[0]["same"][1]
        entry = self.seed(question)
        fcall(self.rig, "deja_wording", "approve", entry, wording, "person")
        until(lambda: self.ask(wording, cache={"no-store": True})["x-deja-cache"] == "semantic", 15)
        self.assertIn("counted\n1", fcall(self.rig, "deja_feedback", entry, "right", wording))
        self.assertEqual(fcall(self.rig, "deja_feedback", entry, "wrong", wording, "BY", "ana").split(), ["deleted", "1", "vetoed", "1", "counted", "1"])
        self.assertEqual(self.ask(question)["x-deja-cache"], "miss")
        self.assertNotEqual(self.ask(wording, cache={"ttl": 1})["x-deja-cache"], "semantic")
        stats = json.loads(fcall(self.rig, "deja_stats", "JSON"))
        self.assertEqual((stats["checked"], stats["wrong"], stats["feedback"]), (2, 1, 2))
        self.assertIn("by ana", fcall(self.rig, "deja_review", "list", "WHAT", "vetoed"))
        other = self.seed(groups[1]["q"])
        doc = json.loads(call(self.rig.port, "POST", "/admin/feedback", {"entry": other, "verdict": "wrong"}, ADMIN)[2])
        self.assertEqual((doc["deleted"], doc["denied"], doc["counted"]), (1, 1, 0))
        for args, says in ((("x", "wrong"), "32 hex digits"), ((other, "bad"), "say wrong or right"), (("0" * 32, "wrong"), "there is no entry")):
            self.assertIn(says, fcall(self.rig, "deja_feedback", *args))


if __name__ == "__main__":
    unittest.main()
