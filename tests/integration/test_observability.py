"""Goal: what operators look at is there, moves when it should and is described: metrics, traces, the access log, the dashboard. Method: the
real gateway before a scripted upstream (and once before the real engine); names in docs and dashboard are compared with those in the
source and on the page of a run."""
import glob
import json
import os
import re
import socket
import threading
import time
import unittest

from tests.integration.fake_upstream import FakeUpstream
from tests.integration.live_rig import fcall, load_library, until
from tests.integration.rig import DATA, ROOT, Rig, ask, call, unique

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
NAME = r"(?:deja_|vllm:)[a-z0-9_]+"


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf8") as f:
        return f.read()


def families(page):
    return set(re.findall(r"^# TYPE (\S+)", page, re.M))


def in_source():
    """Names of metrics: literals of the program that are not names of functions in Redis."""
    functions = set()
    for path in glob.glob(os.path.join(ROOT, "lua", "*.lua")):
        functions |= set(re.findall(r"['\"](deja_[a-z_]+)['\"]", read(path)))
    names = {"deja_metrics_overflow_total", "deja_log_lines_dropped_total"}
    for room in ("base", "cache", "embeddings", "engine", "gateway"):
        for path in glob.glob(os.path.join(ROOT, room, "**", "*.c"), recursive=True):
            text = read(path)
            names |= set(re.findall(f'"({NAME})"', text)) - functions
            names |= set(re.findall(rf'\b(?:metrics_get|gauge|plain|counter|series)\([^;]*?"({NAME})"', text))
    return names


class Loading(threading.Thread):
    """A Redis that is about to read its data: every command gets the same error."""

    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.start()

    def run(self):
        while True:
            try:
                c, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(c,), daemon=True).start()

    @staticmethod
    def serve(c):
        with c:
            seen = b""
            while b"PING" not in seen:
                more = c.recv(1 << 16)
                if not more:
                    return
                seen += more
            c.sendall(b"-LOADING Redis is loading the dataset in memory\r\n" * (2 if b"FUNCTION" in seen else 1))
            c.settimeout(5)
            try:
                c.recv(1)
            except OSError:
                pass


class RedisAway(unittest.TestCase):
    def setUp(self):
        self.rig, self.up = Rig(), FakeUpstream()
        self.addCleanup(self.up.close)
        self.addCleanup(self.rig.close)

    def lines(self, process):
        return [line for line in process.tail(1 << 20).splitlines() if " redis " in line]

    def test_a_redis_that_stays_away_is_told_at_the_start_and_not_with_each_try(self):
        redis = self.rig.redis()
        gateway = self.rig.gateway("--upstream", self.up.url, "--redis", self.rig.redis_url)
        ask(self.rig.port, unique())
        links = sum("redis connected" in line for line in self.lines(gateway))
        for outages in (1, 2):
            redis.stop()
            time.sleep(4)
            lost = [line for line in self.lines(gateway) if "connection lost" in line]
            self.assertEqual(sum("tail:" not in line for line in lost), outages, lost)
            self.assertLessEqual(sum("tail:" in line for line in lost), 1, lost)
            self.assertFalse([line for line in self.lines(gateway) if "held back" in line])
            redis = self.rig.redis()
            until(lambda n=outages: sum("redis connected" in line for line in self.lines(gateway)) == links * (n + 1), 10)

    def test_a_redis_that_reads_its_data_is_no_error(self):
        fake = Loading()
        self.addCleanup(fake.listener.close)
        gateway = self.rig.gateway("--upstream", self.up.url, "--redis", f"redis://127.0.0.1:{fake.port}", ready=False)
        until(lambda: any("FUNCTION LOAD: LOADING" in line for line in self.lines(gateway)), 10)
        time.sleep(2.5)
        told = [line for line in self.lines(gateway) if "LOADING" in line]
        self.assertEqual(sorted(line.split()[1] for line in told), ["info", "warn", "warn"], told)     # the library, the link, the tail


class Watched(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig, cls.up = Rig(), FakeUpstream()
        try:
            cls.rig.redis()
            load_library(cls.rig)
            cls.gateway = cls.rig.gateway("--upstream", cls.up.url, "--redis", cls.rig.redis_url, "--access-log-format", "json",
                                          "--trace-header", "--trace-sample-percent", "0")
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.up.close()
        cls.rig.close()

    def ask(self, text, headers=None, path="/v1/chat/completions", **fields):
        body = {"model": "m", "messages": [{"role": "user", "content": text}], "temperature": 0, **fields}
        return call(self.rig.port, "POST", path, body, headers)

    def page(self):
        return call(self.rig.port, "GET", "/metrics")[2].decode()

    def metric(self, name, part=""):
        return sum(float(x.rsplit(" ", 1)[1]) for x in self.page().splitlines()
                   if x.split(" ")[0].split("{")[0] == name and part in x)

    def line_of(self, request_id):
        """Its access line; it is written just after the reply."""
        end = time.time() + 20
        while time.time() < end:
            for x in self.gateway.tail(400000).splitlines():
                if request_id in x and '"event":"request"' in x:
                    return json.loads(x)
            time.sleep(0.02)
        self.fail(f"no access line of {request_id}")


class Traces(Watched):
    def test_a_trace_goes_on_to_the_upstream_under_a_span_of_our_own(self):
        s, h, _ = self.ask(unique(), {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "a=1,b=2"})
        got = self.up.last()["headers"]
        self.assertEqual((s, h["x-deja-trace"], got["tracestate"]), (200, TRACE, "a=1,b=2"))
        parts = got["traceparent"].split("-")
        self.assertEqual((parts[0], parts[1], parts[3]), ("00", TRACE, "01"))
        self.assertNotIn(parts[2], (SPAN, "0" * 16))
        self.assertEqual(h["x-request-id"], f"req-{TRACE[:8]}{parts[2]}")   # the id names both
        self.assertEqual(self.line_of(h["x-request-id"])["trace"], TRACE)

    def test_a_malformed_parent_begins_a_new_trace_without_its_state(self):
        for bad in (f"00-{TRACE.upper()}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01", "ff-" + f"{TRACE}-{SPAN}-01", "x"):
            h = self.ask(unique(), {"traceparent": bad, "tracestate": "a=1"})[1]
            got = self.up.last()["headers"]
            self.assertRegex(got["traceparent"], r"^00-[0-9a-f]{32}-[0-9a-f]{16}-00$")
            self.assertNotIn(TRACE, got["traceparent"])
            self.assertNotIn("tracestate", got)
            self.assertEqual(got["traceparent"].split("-")[1], h["x-deja-trace"])

    def test_other_addresses_and_doors_are_traced_too(self):
        for path, body in (("/v1/audio/speech", {"input": "x"}), ("/v1/messages", {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": unique()}]}),
                           ("/v1/embeddings", {"model": "m", "input": unique()})):
            s, h, _ = call(self.rig.port, "POST", path, body, {"traceparent": f"00-{TRACE}-{SPAN}-00"})
            self.assertEqual((s, h["x-deja-trace"]), (200, TRACE), path)
            self.assertRegex(self.up.last()["headers"]["traceparent"], f"^00-{TRACE}-(?!{SPAN})[0-9a-f]{{16}}-00$")

    def test_equal_traces_do_not_make_equal_request_ids(self):
        ids = {self.ask("the same", {"traceparent": f"00-{TRACE}-{SPAN}-01"})[1]["x-request-id"] for _ in range(3)}
        self.assertEqual(len(ids), 3)


class Counted(Watched):
    def test_first_byte_and_stages_are_counted_by_what_the_cache_did(self):
        q = unique()
        names = [("deja_ttft_seconds_count", f'route="chat",result="{r}"') for r in ("miss", "exact")]
        names += [("deja_stage_seconds_count", f'stage="{s}"') for s in ("read", "key", "find_exact", "upstream", "upstream_first_byte")]
        before = [self.metric(*n) for n in names]
        self.ask("[[slow:60]]" + q)
        self.ask("[[slow:60]]" + q)
        after = [self.metric(*n) for n in names]
        self.assertEqual([b - a for a, b in zip(before, after)], [1, 1, 2, 2, 2, 1, 1])
        self.assertGreaterEqual(self.metric("deja_ttft_seconds_sum", 'route="chat",result="miss"'), 0.06)
        self.assertGreaterEqual(self.metric("deja_stage_seconds_sum", 'stage="upstream_first_byte"'), 0.06)

    def test_a_stream_has_a_first_byte_before_its_end_and_a_time_per_token(self):
        before = self.metric("deja_tpot_seconds_count", 'result="miss"')
        h = self.ask("[[drip:40]][[chunks:6]]" + unique(), stream=True)[1]
        line = self.line_of(h["x-request-id"])
        self.assertEqual(self.metric("deja_tpot_seconds_count", 'result="miss"') - before, 1)
        self.assertLess(line["ttft_ms"], line["ms"] - 100)             # seven pauses of 40 ms follow the first chunk
        self.assertGreater(self.metric("deja_tpot_seconds_sum", 'result="miss"'), 0.02)

    def test_tokens_and_money_are_counted_by_model_as_paid_and_as_saved(self):
        for knob, price in (("price_prompt", "500000"), ("price_completion", "1000000")):
            fcall(self.rig, "deja_config_set", knob, price)
        end, paid, cost = time.time() + 20, 0, 0
        while cost != 5.5:                                             # both prices are in force
            self.assertLess(time.time(), end, "the prices never came into force")
            self.ask(unique(), model="dear")
            now = self.metric("deja_money_total", 'model="dear",from="upstream"')
            cost, paid = now - paid, now
        before = {f: self.metric("deja_money_total", f'model="dear",from="{f}"') for f in ("upstream", "cache")}
        q = unique()
        self.ask(q, model="dear")
        self.ask(q, model="dear")
        for f in before:                                               # 5 prompt tokens, 3 of the answer at twice the price
            self.assertEqual(self.metric("deja_money_total", f'model="dear",from="{f}"') - before[f], 5.5)
        self.assertEqual(self.metric("deja_tokens_total", 'model="dear",from="cache",kind="completion"'), 3)
        paid, tokens = self.metric("deja_money_total", 'model="dear",from="upstream"'), self.metric("deja_tokens_total", 'model="dear"')
        self.assertAlmostEqual(self.metric("deja_money_per_1k_tokens", 'model="dear"'), 1000 * paid / tokens, 6)

    def test_an_access_line_is_one_json_object_with_the_facts_of_the_request(self):
        q = unique("secretword \" \\ 你好")
        for i, cache in enumerate(("miss", "exact")):
            self.ask(q, {"X-Request-Id": f"line-{i}"}, model='m"odd\\')
            line = self.line_of(f"line-{i}")
            self.assertEqual((line["room"], line["level"], line["event"], line["id"]), ("gateway", "info", "request", f"line-{i}"))
            self.assertEqual((line["route"], line["status"], line["cache"], line["model"], line["stream"]), ("chat", 200, cache, 'm"odd\\', False))
            self.assertEqual((line["prompt_tokens"], line["completion_tokens"]), (5, 3))
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertRegex(line["trace"], r"^[0-9a-f]{32}$")
            self.assertLessEqual(line["ttft_ms"], line["ms"])
        self.assertNotIn("secretword", self.gateway.tail(400000))


class Described(Watched):
    """Docs and dashboard against the program."""

    def labels(self, page, into):
        for name, inside in re.findall(r"^([a-z_:0-9]+)(?:\{(.*)\})? ", page, re.M):
            into.setdefault(re.sub("_(bucket|sum|count)$", "", name), set()).update(re.findall(r'(\w+)="', inside))

    def test_the_list_of_metrics_is_complete_and_has_none_that_are_gone(self):
        listed = set(re.findall(f"`({NAME})`", read("docs", "observability.md")))
        self.assertEqual(listed ^ in_source(), set())

    def test_the_board_asks_for_metrics_and_labels_that_exist(self):
        board = json.loads(read("docs", "grafana", "deja.json"))
        panels = [p for p in board["panels"] if p["type"] != "row"]
        self.assertEqual((board["schemaVersion"], len({p["id"] for p in board["panels"]})), (39, len(board["panels"])))
        self.assertIn("datasource", [v["name"] for v in board["templating"]["list"] if v["type"] == "datasource"])
        q, seen, source = unique(), {}, in_source()
        self.ask(q), self.ask(q), self.ask(unique(), stream=True)
        pages = self.page()
        with Rig() as rig:
            rig.engine(os.path.join(DATA, "tiny-llama-mixed.gguf"), extra=("--served-model-name", "t"))
            pages += call(rig.engine_port, "GET", "/metrics")[2].decode()
        self.labels(pages, seen)
        self.assertEqual(families(pages) - source, set())
        for p in panels:
            self.assertEqual(p["datasource"]["uid"], "${datasource}", p["title"])
            for t in p["targets"]:
                names = {re.sub("_(bucket|sum|count)$", "", n) if n not in source else n for n in re.findall(NAME, t["expr"])}
                self.assertTrue(names and names <= source, f'{p["title"]}: {names - source}')
                asked = set(re.findall(r'(\w+)=~?"', t["expr"])) | set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", t["expr"]))))
                asked |= set(re.findall(r"\{\{(\w+)\}\}", t["legendFormat"]))
                known = {"job", "instance", "le"}.union(*(seen.get(n, asked) for n in names))
                self.assertLessEqual(asked, known, f'{p["title"]}: {t["expr"]}')
        cells = [(x, y) for p in board["panels"] for x in range(p["gridPos"]["x"], p["gridPos"]["x"] + p["gridPos"]["w"])
                 for y in range(p["gridPos"]["y"], p["gridPos"]["y"] + p["gridPos"]["h"])]
        self.assertEqual(len(cells), len(set(cells)), "panels lie over each other")


if __name__ == "__main__":
    unittest.main()
