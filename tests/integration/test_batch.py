"""Goal: files and batches in OpenAI's forms: every line is answered exactly once, whatever dies meanwhile; what fails is told line by line;
tenants see their own. Method: real gateways on a real redis-server, a scripted upstream, short leases; the `openai` client where it is there."""
import json
import os
import random
import re
import signal
import subprocess
import threading
import time
import unittest

from tests.integration.fake_upstream import FakeUpstream
from tests.integration.live_rig import Resp, cli, fcall, load_library, until
from tests.integration.rig import Rig, call

BOUNDARY = "a7-boundary"
ENDED = ("completed", "failed", "expired", "cancelled")


def form(content, purpose="batch", name="in.jsonl", **more):
    """(body, headers) of an upload"""
    out = b""
    for k, v in dict({"purpose": purpose}, **more).items():
        out += f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n'.encode()
    if content is not None:
        out += (f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
                "Content-Type: application/octet-stream\r\n\r\n").encode() + content + b"\r\n"
    return out + f"--{BOUNDARY}--\r\n".encode(), {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}


def line(i, text=None, url="/v1/chat/completions", **body):
    body = body or {"messages": [{"role": "user", "content": text or f"question {i}"}], "temperature": 0}
    return {"custom_id": f"id-{i}", "method": "POST", "url": url, "body": dict({"model": "m"}, **body)}


def jsonl(lines):
    return "".join(x if isinstance(x, str) else json.dumps(x, ensure_ascii=False) + "\n" for x in lines).encode()


class BatchCase(unittest.TestCase):
    OPTIONS = ("--batch-lease-ms", "600", "--batch-backoff-ms", "50", "--cache-redis-deadline-ms", "2000")

    def setUp(self):
        self.rig, self.fake = Rig(), FakeUpstream()
        self.addCleanup(self.fake.close)
        self.addCleanup(self.rig.close)
        self.rig.redis()

    def gateway(self, *options, name="gateway"):
        p = self.rig.gateway("--upstream", self.fake.url, "--redis", self.rig.redis_url, *self.OPTIONS, *options, name=name)
        until(lambda: call(self.rig.port, "GET", "/v1/files")[0] in (200, 401), 10, "the store")
        return p

    def api(self, method, path, body=None, headers=None, port=None):
        status, _, text = call(port or self.rig.port, method, "/v1" + path, body, headers)
        return status, json.loads(text)

    def upload(self, lines, headers=None, **more):
        body, h = form(lines if isinstance(lines, bytes) else jsonl(lines), **more)
        status, doc = self.api("POST", "/files", body, dict(h, **(headers or {})))
        self.assertEqual(status, 200, doc)
        return doc["id"]

    def create(self, lines, endpoint="/v1/chat/completions", window="24h", headers=None):
        file = lines if isinstance(lines, str) else self.upload(lines, headers)
        status, doc = self.api("POST", "/batches", {"input_file_id": file, "endpoint": endpoint, "completion_window": window}, headers)
        self.assertEqual((status, doc["object"]), (200, "batch"), doc)
        return doc["id"]

    def batch(self, id_, headers=None, port=None):
        return self.api("GET", "/batches/" + id_, headers=headers, port=port)[1]

    def ended(self, id_, seconds=20, headers=None):
        until(lambda: self.batch(id_, headers)["status"] in ENDED, seconds, f"the end of {id_}: {self.batch(id_, headers)}")
        return self.batch(id_, headers)

    def content(self, file, headers=None):
        status, _, text = call(self.rig.port, "GET", f"/v1/files/{file}/content", headers=headers)
        self.assertEqual(status, 200, text)
        return [json.loads(x) for x in text.decode().splitlines()]

    def knob(self, name, value, *scope):
        version = re.match(r"\D*(\d+)", fcall(self.rig, "deja_config_set", name, str(value), *scope))[1]
        until(lambda: all(f"settings in force version={version} " in p.tail(400000) for p in self.rig.processes
                          if p.name.startswith("gateway") and p.popen.poll() is None), 5, f"{name} {value}")

    def metric(self, name, port=None):
        text = call(port or self.rig.port, "GET", "/metrics")[2].decode()
        return sum(float(x.split()[-1]) for x in text.splitlines() if x.startswith(name))

    def complete_once(self, b, n):
        self.assertEqual((b["status"], b["request_counts"]), ("completed", {"total": n, "completed": n, "failed": 0}))
        out = self.content(b["output_file_id"])
        self.assertEqual(sorted(x["custom_id"] for x in out), sorted(f"id-{i}" for i in range(n)))
        self.assertEqual(len({x["id"] for x in out}), n)
        return out


class Batches(BatchCase):
    def test_lines_are_answered_through_the_caches_and_the_results_are_files(self):
        self.gateway()
        lines = [line(i, f"question {i % 6} 你好") for i in range(12)]
        file = self.upload(lines)
        self.assertEqual(call(self.rig.port, "GET", f"/v1/files/{file}/content")[2], jsonl(lines))
        b = self.ended(self.create(file))
        out = self.complete_once(b, 12)
        self.assertEqual(self.fake.count(), 6)                         # equal lines share one call or one answer
        for x in out:
            self.assertEqual((x["error"], x["response"]["status_code"], x["response"]["body"]["object"]), (None, 200, "chat.completion"))
            self.assertTrue(x["response"]["request_id"])
        self.assertEqual(call(self.rig.port, "POST", "/v1/chat/completions", lines[3]["body"])[1]["x-deja-cache"], "exact")
        self.complete_once(self.ended(self.create(file)), 12)
        self.assertEqual(self.fake.count(), 6)                         # all from the cache now
        self.assertIsNone(b["error_file_id"])
        for at in ("created_at", "in_progress_at", "finalizing_at", "completed_at", "expires_at"):
            self.assertGreater(b[at], 1600000000)
        until(lambda: (self.metric("deja_batch_queue"), self.metric("deja_batches_active")) == (0, 0), 5)
        self.assertEqual((self.metric('deja_batch_lines_total{result="good"}'), self.metric("deja_batch_running")), (24, 0))
        listed = self.api("GET", "/batches?limit=1")[1]
        self.assertEqual((len(listed["data"]), listed["has_more"]), (1, True))
        second = self.api("GET", f"/batches?limit=1&after={listed['last_id']}")[1]
        self.assertEqual((second["data"][0]["id"], second["has_more"]), (b["id"], False))

    def test_completions_and_embeddings_and_large_files_pass_too(self):
        self.gateway()
        one = [line(i, url="/v1/completions", prompt=f"p {i}") for i in range(3)]
        self.complete_once(self.ended(self.create(one, "/v1/completions")), 3)
        two = [line(i, url="/v1/embeddings", input="x" * 40000 + str(i)) for i in range(20)]   # several chunks
        out = self.complete_once(self.ended(self.create(two, "/v1/embeddings")), 20)
        self.assertIsInstance(out[0]["response"]["body"]["data"][0]["embedding"][0], float)
        three = [line(i, "[[pad:90000]]" + str(i)) for i in range(4)]                          # answers read on a worker
        out = self.complete_once(self.ended(self.create(three)), 4)
        self.assertEqual(len(out[0]["response"]["body"]["choices"][0]["message"]["content"]), 90000)
        self.complete_once(self.ended(self.create([line(0, "[[pad:3000000]]")])), 1)
        b = self.ended(self.create([line(0, "[[pad:9000000]]")]))
        self.assertEqual(self.content(b["error_file_id"])[0]["error"]["code"], "answer_too_large")

    def test_batches_go_through_the_other_doors_too(self):
        self.gateway()
        one = [line(i, url="/v1/responses", input=f"door {i}", temperature=0) for i in range(3)]
        out = self.complete_once(self.ended(self.create(one, "/v1/responses")), 3)
        self.assertEqual({x["response"]["body"]["object"] for x in out}, {"response"})
        two = [line(i, url="/v1/messages", messages=[{"role": "user", "content": f"door {i}"}], temperature=0, max_tokens=9) for i in range(3)]
        out = self.complete_once(self.ended(self.create(two, "/v1/messages")), 3)
        self.assertEqual({x["response"]["body"]["type"] for x in out}, {"message"})
        bad = self.ended(self.create([line(0, url="/v1/responses", input="x", background=True)], "/v1/responses"))
        self.assertEqual(bad["request_counts"]["failed"], 1, bad)

    def test_a_gateway_killed_in_the_middle_loses_nothing_and_repeats_nothing(self):
        p = self.gateway("--coalesce-max", "0")
        b = self.create([line(i, f"[[slow:60]] {i}") for i in range(60)])
        until(lambda: self.batch(b)["request_counts"]["completed"] >= 8, 20)
        p.kill(signal.SIGKILL)
        p.popen.wait()
        done = self.fake.count()
        self.assertLess(done, 60)
        self.gateway(name="gateway-again")
        self.complete_once(self.ended(b), 60)
        self.assertLess(self.fake.count(), 60 + 30)                    # what was under way is asked again, not all
        self.assertGreaterEqual(self.metric('deja_batch_lines_total{result="taken_over"}'), 1)

    def test_a_gateway_that_is_stopped_lets_its_lines_end(self):
        p = self.gateway("--coalesce-max", "0", "--batch-lease-ms", "60000")
        b = self.create([line(i, f"[[slow:150]] {i}") for i in range(24)])
        until(lambda: self.fake.count() >= 4, 10)
        self.assertEqual(p.stop(), 0)
        self.gateway(name="gateway-again")
        self.complete_once(self.ended(b), 24)
        self.assertEqual(self.fake.count(), 24)

    def test_limits_of_the_tenant_hold_for_its_batches(self):
        self.gateway()
        self.knob("limit_concurrency", 3, "IN", "tenant:public")
        self.complete_once(self.ended(self.create([line(i, f"[[slow:20]] {i}") for i in range(9)]), 40), 9)
        self.assertGreater(self.metric('deja_batch_lines_total{result="waited"}'), 0)
        self.knob("limit_tokens_per_min", 100, "IN", "tenant:public")    # less than one request: waiting would be no use
        b = self.ended(self.create([line(0, messages=[{"role": "user", "content": "new"}], max_tokens=5000)]))
        self.assertEqual((b["status"], b["request_counts"]["failed"]), ("completed", 1))
        self.assertEqual(self.content(b["error_file_id"])[0]["response"]["status_code"], 429)

    def test_a_gateway_killed_while_it_reads_the_input_is_replaced(self):
        self.gateway()
        self.knob("batch_concurrency", 0)
        b = self.create([line(i) for i in range(5)])
        # another gateway has taken the validation, put some of the lines, and died
        taken = cli(self.rig, "FCALL", "deja_batch_take", "1", "{deja}:config", "dead", "1", "300")
        self.assertIn("validate", taken)
        self.assertEqual(fcall(self.rig, "deja_batch_queue", b, "dead", "0", "0", "0", "10"), "1")
        self.knob("batch_concurrency", 8)
        self.complete_once(self.ended(b), 5)
        self.assertEqual(fcall(self.rig, "deja_batch_queue", b, "dead", "1", "0", "0", "10"), "0")   # too late to speak

    def test_two_gateways_share_the_work(self):
        lease = ("--batch-lease-ms", "60000")                          # nobody is taken for dead on a busy machine
        self.gateway(*lease)
        first = self.rig.port
        self.gateway(*lease, name="gateway-2")
        b = self.create([line(i, f"[[slow:100]] {i}") for i in range(100)])
        self.complete_once(self.ended(b), 100)
        self.assertEqual(self.batch(b, port=first)["status"], "completed")
        good = [self.metric('deja_batch_lines_total{result="good"}', port) for port in (first, self.rig.port)]
        self.assertEqual(sum(good), 100)
        self.assertTrue(min(good) > 0, good)
        self.assertEqual(self.fake.count(), 100)

    def test_a_result_told_twice_changes_nothing(self):
        self.gateway()
        self.knob("batch_concurrency", 0)
        b = self.create([line(i) for i in range(2)])
        self.knob("batch_concurrency", 1)
        until(lambda: self.batch(b)["status"] == "in_progress" or self.batch(b)["status"] in ENDED, 5)
        self.complete_once(self.ended(b), 2)
        before = self.batch(b)
        self.assertEqual(fcall(self.rig, "deja_batch_done", b, "1-1", "0", "out", '{"custom_id":"id-0"}', ""), "0")
        self.assertEqual(fcall(self.rig, "deja_batch_retry", b, "1-1", "1", "0", "0"), "0")
        self.assertEqual(self.batch(b), before)
        self.complete_once(before, 2)

    def test_cancel_lets_running_lines_end_and_starts_no_other(self):
        self.gateway()
        self.knob("batch_concurrency", 2)
        b = self.create([line(i, f"[[slow:300]] {i}") for i in range(30)])
        until(lambda: self.batch(b)["request_counts"]["completed"] >= 2, 10)
        self.assertRegex(fcall(self.rig, "deja_batches"), rf"(?s)batches at work: 1, lines to do: \d+.*{b}, tenant public, in_progress, \d+ of 30 done, \d at work")
        status, doc = self.api("POST", f"/batches/{b}/cancel")
        self.assertEqual((status, doc["status"]), (200, "cancelling"))
        self.assertGreater(doc["cancelling_at"], 0)
        asked = self.fake.count()
        end = self.ended(b)
        self.assertEqual(end["status"], "cancelled")
        self.assertLessEqual(self.fake.count(), asked + 2)
        n = end["request_counts"]["completed"]
        self.assertEqual((len(self.content(end["output_file_id"])), end["request_counts"]["total"]), (n, 30))
        self.assertLess(n, 10)
        self.assertEqual(self.api("POST", f"/batches/{b}/cancel")[1]["status"], "cancelled")
        self.knob("batch_concurrency", 0)
        held = self.create([line(1)])
        self.assertEqual(self.api("POST", f"/batches/{held}/cancel")[1]["status"], "cancelled")    # nothing had begun
        self.assertEqual(cli(self.rig, "KEYS", "{deja}:batch:*:work"), "")

    def test_lines_that_are_no_requests_fail_the_batch_with_their_numbers(self):
        self.gateway()
        lines = [line(0), "\n", "{broken\n", line(0), {"custom_id": "x"}, line(4, url="/v1/embeddings"), line(5, stream=True)]
        b = self.ended(self.create(lines))
        self.assertEqual((b["status"], b["output_file_id"], b["request_counts"]["total"]), ("failed", None, 0))
        self.assertEqual(b["errors"]["object"], "list")
        self.assertEqual([(e["line"], e["code"], e["param"]) for e in b["errors"]["data"]],
                         [(3, "invalid_json_line", None), (4, "duplicate_custom_id", "custom_id"), (5, "missing_required_parameter", "method"),
                          (6, "invalid_url", "url"), (7, "unsupported_parameter", "body.stream")])
        self.assertEqual(self.ended(self.create(["\n"]))["errors"]["data"][0]["code"], "empty_file")
        self.assertEqual(self.fake.count(), 0)
        status, doc = self.api("POST", f"/batches/{b['id']}/cancel")
        self.assertEqual((status, doc["error"]["code"]), (409, "batch_ended"))

    def test_what_fails_is_tried_again_and_then_told_in_the_error_file(self):
        self.gateway("--batch-tries", "3", "--upstream-retries", "0", "--breaker-failures", "1000", "--breaker-error-percent", "0")
        lines = [line(0), line(1, "[[status:500]][[after:]] a"), line(2, "[[once:status]] b"), line(3, "[[status:400]][[after:]] c"), line(4, "[[cut]] d"),
                 line(5, "[[html]] e"), line(6)]
        b = self.ended(self.create(lines))
        self.assertEqual((b["status"], b["request_counts"]), ("completed", {"total": 7, "completed": 3, "failed": 4}))
        self.assertEqual(sorted(x["custom_id"] for x in self.content(b["output_file_id"])), ["id-0", "id-2", "id-6"])
        bad = {x["custom_id"]: x for x in self.content(b["error_file_id"])}
        self.assertEqual(sorted(bad), ["id-1", "id-3", "id-4", "id-5"])
        self.assertEqual((bad["id-1"]["response"]["status_code"], bad["id-1"]["response"]["body"]["error"]["message"]), (500, "as asked"))
        self.assertEqual((bad["id-3"]["response"]["status_code"], bad["id-3"]["error"]), (400, None))
        self.assertEqual(bad["id-4"]["response"]["status_code"], 502)
        self.assertEqual([self.fake.count(f"]] {c}") for c in "abcde"], [3, 2, 1, 3, 3])
        self.assertGreaterEqual(self.metric('deja_batch_lines_total{result="retried"}'), 6)
        self.assertEqual(self.metric('deja_batch_lines_total{result="dead"}'), 3)
        self.assertGreaterEqual(self.metric('deja_batch_lines_total{result="waited"}'), 1)

    def test_a_batch_out_of_time_says_so_for_each_line_left(self):
        self.gateway()
        self.knob("batch_concurrency", 1)
        b = self.create([line(i, f"[[slow:400]] {i}") for i in range(20)], window="2s")
        end = self.ended(b)
        self.assertEqual(end["status"], "expired")
        counts = end["request_counts"]
        self.assertEqual(counts["completed"] + counts["failed"], 20)
        self.assertGreater(counts["failed"], 5)
        bad = self.content(end["error_file_id"])
        self.assertEqual({x["error"]["code"] for x in bad}, {"batch_expired"})
        out = self.content(end["output_file_id"])
        self.assertEqual(sorted(x["custom_id"] for x in out + bad), sorted(f"id-{i}" for i in range(20)))

    def test_batches_go_behind_clients(self):
        self.gateway("--engine-url", self.fake.url)
        e = self.create([line(0, url="/v1/embeddings", input="hello")], "/v1/embeddings")
        self.complete_once(self.ended(e), 1)
        self.assertEqual(self.fake.last()["headers"]["x-deja-priority"], "batch")
        b = self.create([line(0, "[[slow:800]] shared")])
        until(lambda: self.fake.count("shared") == 1, 5)
        self.assertEqual(self.fake.last()["headers"]["x-deja-priority"], "batch")
        body = line(0, "[[slow:800]] shared")["body"]
        results = []
        askers = [threading.Thread(target=lambda: results.append(call(self.rig.port, "POST", "/v1/chat/completions", body)))
                  for _ in range(3)]
        for t in askers:
            t.start()
        for t in askers:
            t.join()
        self.assertEqual([r[0] for r in results], [200] * 3)
        self.assertLessEqual(self.fake.count("shared"), 2)             # clients wait for a client's call, not for a batch's
        self.assertEqual(self.ended(b)["status"], "completed")

    def test_a_line_that_shares_a_clients_call_neither_takes_nor_hinders_its_fallback(self):
        small = FakeUpstream()
        self.addCleanup(small.close)
        self.rig.gateway("--upstream", self.fake.url + " models=big", "--upstream", small.url + " models=small", "--fallback", "big=small", "--redis",
                         self.rig.redis_url, *self.OPTIONS, "--upstream-retries", "0", "--breaker-failures", "1000", "--breaker-error-percent", "0")
        until(lambda: call(self.rig.port, "GET", "/v1/files")[0] == 200, 10, "the store")
        for status in ("500", "503"):
            self.fake.fail, self.fake.hold = status, 1.5
            text = f"shared by both {status}"
            body = {"messages": [{"role": "user", "content": text}], "temperature": 0, "model": "big"}
            got = []
            asker = threading.Thread(target=lambda b=body, g=got: g.append(call(self.rig.port, "POST", "/v1/chat/completions", b)))
            asker.start()
            until(lambda t=text: self.fake.count(t) == 1, 5)
            b = self.create([line(0, **body)])
            until(lambda: self.metric("deja_batch_running") == 1, 5)
            self.assertEqual(self.fake.count(text), 1)
            asker.join()
            self.assertEqual((got[0][0], got[0][1].get("x-deja-served-by")), (200, "fallback; model=small"))
            self.fake.fail, self.fake.hold = None, 0
            self.assertEqual(self.complete_once(self.ended(b), 1)[0]["response"]["body"]["model"], "big")
            self.assertGreaterEqual(self.fake.count(text), 2)

    def test_outside_its_window_only_the_least_share_runs(self):
        now = time.gmtime(time.time() + 7200)
        window = f"{now.tm_hour:02d}:00-{(now.tm_hour + 1) % 24:02d}:00"
        self.gateway("--batch-window", window)
        b = self.create([line(i, f"[[slow:60]] {i}") for i in range(8)])
        most = 0
        until(lambda: self.fake.count() > 0, 5)
        while self.batch(b)["status"] not in ENDED:
            most = max(most, self.metric("deja_batch_running"))
        self.assertEqual(most, 1)
        self.complete_once(self.batch(b), 8)

    def test_redis_away_for_a_while_delays_and_loses_nothing(self):
        self.gateway()
        b = self.create([line(i, f"[[slow:50]] {i}") for i in range(30)])
        until(lambda: self.batch(b)["request_counts"]["completed"] >= 3, 10)
        redis = self.rig.processes[0]
        redis.kill(signal.SIGKILL)
        redis.popen.wait()
        os.unlink(self.rig.redis_socket)
        self.assertEqual(self.api("GET", "/batches/" + b)[0], 503)
        redis.start().wait_for(lambda: os.path.exists(self.rig.redis_socket), 10)
        until(lambda: self.api("GET", "/batches/" + b)[0] == 200, 10)
        self.complete_once(self.ended(b), 30)

    def test_a_result_that_redis_refuses_is_offered_less_and_less_often_and_not_lost(self):
        p = self.gateway()
        b = self.create([line(0, "[[slow:1500]] refused")])
        until(lambda: self.fake.count("refused"), 10, "the call")
        subprocess.run(["redis-cli", "-s", self.rig.redis_socket, "CONFIG", "SET", "maxmemory", "1"], check=True, stdout=subprocess.PIPE)
        refused = lambda: self.metric("deja_batch_results_refused_total")
        until(lambda: refused() >= 1, 10, "the first refusal")
        time.sleep(5)                                                           # every half second would be ten
        self.assertLessEqual(refused(), 6)
        self.assertRegex(p.tail(1 << 20), rf"batches: Redis did not take the result of line 1 of {b}, again in \d+ ms: OOM")
        subprocess.run(["redis-cli", "-s", self.rig.redis_socket, "CONFIG", "SET", "maxmemory", "0"], check=True, stdout=subprocess.PIPE)
        self.complete_once(self.ended(b, 40), 1)
        self.assertEqual(self.fake.count("refused"), 1)


class Files(BatchCase):
    def test_files_are_listed_kept_apart_and_removed(self):
        keys = os.path.join(self.rig.folder, "keys.txt")
        with open(keys, "w", encoding="utf8") as f:
            f.write("key-a-123456789 alice\nkey-b-123456789 bob\n")
        self.gateway("--api-keys", keys)
        alice, bob = ({"Authorization": f"Bearer key-{x}-123456789"} for x in "ab")
        lines = [line(0)]
        one, two = self.upload(lines, alice), self.upload(lines, alice, name='b "2".jsonl', **{"expires_after[anchor]": "created_at",
                                                                                         "expires_after[seconds]": "3600"})
        status, doc = self.api("GET", "/files", headers=alice)
        self.assertEqual((status, [f["id"] for f in doc["data"]]), (200, [two, one]))
        self.assertEqual(doc["data"][0]["expires_at"] - doc["data"][0]["created_at"], 3600)
        self.assertEqual([f["id"] for f in self.api("GET", "/files?order=asc&limit=1", headers=alice)[1]["data"]], [one])
        self.assertEqual([f["id"] for f in self.api("GET", f"/files?after={two}", headers=alice)[1]["data"]], [one])
        b = self.create(one, headers=alice)
        self.assertEqual(self.ended(b, headers=alice)["status"], "completed")
        out = self.batch(b, alice)["output_file_id"]
        self.assertEqual(self.api("GET", "/files?purpose=batch_output", headers=alice)[1]["data"][0]["id"], out)
        # bob sees nothing of it
        self.assertEqual(self.api("GET", "/files", headers=bob)[1]["data"], [])
        self.assertEqual(self.api("GET", "/batches", headers=bob)[1]["data"], [])
        for method, path in (("GET", f"/files/{one}"), ("GET", f"/files/{out}/content"), ("DELETE", f"/files/{one}"), ("GET", f"/batches/{b}"),
                             ("POST", f"/batches/{b}/cancel")):
            self.assertEqual(self.api(method, path, headers=bob)[0], 404, path)
        status, doc = self.api("POST", "/batches", {"input_file_id": one, "endpoint": "/v1/chat/completions", "completion_window": "24h"}, bob)
        self.assertEqual((status, doc["error"]["param"]), (404, "input_file_id"))
        self.assertEqual(self.api("GET", "/files")[0], 401)
        # removal
        self.assertEqual(self.api("DELETE", f"/files/{one}", headers=alice)[1], {"id": one, "object": "file", "deleted": True})
        self.assertEqual(self.api("GET", f"/files/{one}", headers=alice)[0], 404)
        for f in (two, out):
            self.api("DELETE", f"/files/{f}", headers=alice)
        self.assertEqual((cli(self.rig, "KEYS", "{deja}:file:*"), cli(self.rig, "HGETALL", "{deja}:files:used")), ("", ""))

    def test_an_input_deleted_meanwhile_is_read_to_the_end_and_then_gone(self):
        self.gateway()
        file = self.upload([line(i, f"[[slow:50]] {i}") for i in range(30)])
        b = self.create(file)
        until(lambda: self.batch(b)["request_counts"]["completed"] >= 1, 10)
        self.assertTrue(self.api("DELETE", f"/files/{file}")[1]["deleted"])
        self.assertEqual(self.api("GET", f"/files/{file}")[0], 404)
        self.complete_once(self.ended(b), 30)
        self.assertEqual(cli(self.rig, "KEYS", f"{{deja}}:file:{file}*"), "")

    def test_uploads_are_bounded_and_broken_ones_are_refused(self):
        self.gateway("--max-body", "4096", "--file-bytes-max", "100000", "--files-bytes-max", "150000")
        big = b"x" * 90000 + b"\n"
        first = self.upload(big)
        for body, status, what in ((form(big), 413, "file_quota_exceeded"), (form(b"x" * 400000), 413, "body_too_large"), (form(b"x", purpose="fine-tune"), 400, "purpose"),
                                   (form(None), 400, "no such part"), (form(b"x", **{"expires_after[seconds]": "5"}), 400, "3600"),
                                   ((b"junk", form(b"")[1]), 400, "does not begin"), ((form(b"x")[0][:-9], form(b"")[1]), 400, "closing boundary"),
                                   ((b"{}", {}), 415, "multipart/form-data")):
            got, _, text = call(self.rig.port, "POST", "/v1/files", *body)
            self.assertEqual((got, what in text.decode()), (status, True), text)
        self.assertEqual(cli(self.rig, "HGET", "{deja}:files:used", "public"), "90001")
        self.api("DELETE", f"/files/{first}")
        got, _, text = call(self.rig.port, "POST", "/v1/files", *form(b"x" * 100001))
        self.assertEqual((got, b"file: it is over 100000 bytes" in text), (413, True), text)
        self.upload(big)
        self.assertEqual(call(self.rig.port, "POST", "/v1/chat/completions", b"x" * 5000)[0], 413)   # others keep the bound of all bodies
        self.assertEqual([self.api("GET", p)[0] for p in ("/files/none", "/files/none/content", "/files/a%2Fb", "/batches/none")], [404] * 4)
        self.assertEqual([call(self.rig.port, m, "/v1" + p)[0] for m, p in (("PUT", "/files"), ("POST", "/files/x"), ("DELETE", "/batches/x"))],
                         [405] * 3)

    def test_orders_that_are_not_right_say_what_would_be(self):
        self.gateway()
        file = self.upload([line(0)])
        good = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        for change, param in (({"input_file_id": 7}, "input_file_id"), ({"endpoint": "/v1/moderations"}, "endpoint"),
                              ({"completion_window": "8d"}, "completion_window"), ({"metadata": {"a": 1}}, "metadata"),
                              ({"output_expires_after": {"anchor": "created_at", "seconds": 1}}, "output_expires_after")):
            status, doc = self.api("POST", "/batches", dict(good, **change))
            self.assertEqual((status, doc["error"]["param"]), (400, param), doc)
        self.assertEqual(self.api("GET", "/batches?limit=0")[0], 400)
        self.assertEqual(self.api("GET", "/batches?after=batch_x")[0], 400)

    def test_results_count_against_the_tenant_and_stop_where_there_is_no_room(self):
        self.gateway("--files-bytes-max", "4000")
        b = self.ended(self.create([line(i, f"[[pad:600]] {i}") for i in range(8)]))
        counts = b["request_counts"]
        self.assertEqual((b["status"], counts["completed"] + counts["failed"]), ("completed", 8))
        self.assertTrue(0 < counts["completed"] < 8, counts)
        self.assertEqual({x["error"]["code"] for x in self.content(b["error_file_id"])}, {"file_quota_exceeded"})

    def test_without_redis_the_reason_is_told_and_it_can_be_left_to_the_upstream(self):
        self.rig.gateway("--upstream", self.fake.url)
        for method, path in (("GET", "/files"), ("GET", "/batches"), ("POST", "/batches")):
            status, doc = self.api(method, path)
            self.assertEqual((status, doc["error"]["code"]), (503, "no_redis"))
            self.assertIn("--redis", doc["error"]["message"])
        self.rig.gateway("--upstream", self.fake.url, "--batch-api", "no", name="gateway-2")
        self.assertEqual(call(self.rig.port, "GET", "/v1/files")[0], 200)
        self.assertEqual(self.fake.last()["path"], "/v1/files")


class Functions(unittest.TestCase):
    """The Functions alone, called by simulated gateways that die, repeat themselves and come too late."""

    def setUp(self):
        self.rig = Rig()
        self.addCleanup(self.rig.close)
        self.rig.redis()
        load_library(self.rig)
        self.redis = Resp(self.rig.redis_socket)
        self.addCleanup(self.redis.close)

    def call(self, name, *args):
        reply = self.redis("FCALL", "deja_" + name, 1, "{deja}:config", *args)
        self.assertFalse(isinstance(reply, str) and reply.startswith("ERR"), reply)
        return reply

    def begin(self, id_, n, window_s=86400, file=None):
        file = file or "file-" + id_
        text = "".join(f"line-{i:05d}\n" for i in range(n))
        self.redis("SET", f"{{deja}}:file:{file}:0", text, "EX", 3600)
        self.call("file_add", file, "t", "in.jsonl", "batch", len(text), 1, 0, 10**9, 100)
        doc = json.loads(self.call("batch_create", id_, "t", file, "/v1/embeddings", "24h", window_s, "", "file-o" + id_, "file-e" + id_, "", 0,
                                   10**9, 100))
        self.assertEqual(doc["status"], "validating")
        item = self.call("batch_take", "v", 1, 60000)[2]
        self.assertEqual(item, ["validate", id_, file, 1, "/v1/embeddings"])
        spans = [x for i in range(n) for x in (11 * i, 10)]
        self.assertEqual(self.call("batch_queue", id_, "v", 0, 0, *spans), 1)
        self.assertEqual(self.call("batch_queue", id_, "v", 0, 0, *spans), 1)      # the reply was lost: nothing is doubled
        self.assertEqual(self.call("batch_begin", id_, "v", ""), 1)
        return file

    def state(self, id_):
        return json.loads(self.call("batch_get", id_, "t"))

    def lines_of(self, file):
        doc = self.call("file_get", file, "t")
        if doc[0] == "NO":
            return []
        text = "".join(self.redis("GET", f"{{deja}}:file:{file}:{i}") for i in range(doc[1]))
        self.assertEqual(len(text), json.loads(doc[0])["bytes"])
        return text.splitlines()

    def work(self, rng, id_, cancel_at=-1):
        """Steps until the batch has ended; what every line was last said to be is not asked: only that it came once."""
        held, steps = [], 0
        while self.state(id_)["status"] not in ENDED:
            steps += 1
            self.assertLess(steps, 4000, self.state(id_))
            if steps == cancel_at:
                self.call("batch_cancel", id_, "t")
            dice = rng.random()
            if dice < 0.4:
                who = f"g{rng.randrange(3)}"
                lease = rng.choice((0, 1, 10000))                       # 0: everybody else is taken for dead
                held += [(who, item) for item in self.call("batch_take", who, rng.randrange(1, 8), lease)[2:]]
            elif held:
                who, item = rng.choice(held)
                self.assertEqual(item[11], f"line-{int(item[6]):05d}")
                if dice < 0.5:
                    held = [h for h in held if h[0] != who]              # dies with all it has
                elif dice < 0.6:
                    self.call("batch_renew", who, 1000, item[1], item[5])
                elif dice < 0.75:
                    self.call("batch_retry", id_, item[5], rng.randrange(2), rng.choice((0, 1)), rng.choice((0, 0, 2)))
                else:
                    kind = "late" if item[10] else rng.choice(("out", "out", "bad"))
                    self.call("batch_done", id_, item[5], item[6], kind, f"{item[6]} {rng.random()}\n", "")
                    if rng.random() < 0.7:
                        held.remove((who, item))                         # else it will say so again
        return held

    def test_gateways_that_die_and_repeat_themselves_leave_each_line_once(self):
        for seed in range(8):
            rng, id_, n = random.Random(seed), f"b{seed}", 40
            file = self.begin(id_, n)
            held = self.work(rng, id_)
            end = self.state(id_)
            for _, item in held:                                         # the dead come back
                self.assertEqual(self.call("batch_done", id_, item[5], item[6], "out", "again\n", ""), 0)
                self.assertEqual(self.call("batch_retry", id_, item[5], 1, 0, 0), 0)
            out, bad = self.lines_of("file-o" + id_), self.lines_of("file-e" + id_)
            self.assertEqual(sorted(int(x.split()[0]) for x in out + bad), list(range(n)), f"seed {seed}")
            self.assertEqual(end["request_counts"], {"total": n, "completed": len(out), "failed": len(bad)}, f"seed {seed}")
            self.assertEqual((end["status"], self.state(id_)), ("completed", end), f"seed {seed}")
            self.assertEqual(json.loads(self.call("file_delete", file, "t"))["deleted"], True)

    def test_a_cancelled_batch_ends_and_keeps_what_was_done(self):
        for seed in range(8):
            rng, id_ = random.Random(100 + seed), f"c{seed}"
            self.begin(id_, 40)
            self.work(rng, id_, cancel_at=rng.randrange(1, 60))
            end = self.state(id_)
            out, bad = self.lines_of("file-o" + id_), self.lines_of("file-e" + id_)
            numbers = [int(x.split()[0]) for x in out + bad]
            self.assertEqual(len(numbers), len(set(numbers)), f"seed {seed}")
            self.assertEqual((end["request_counts"]["completed"], end["request_counts"]["failed"]), (len(out), len(bad)), f"seed {seed}")
            self.assertIn(end["status"], ("cancelled", "completed"))
        self.assertEqual(self.redis("KEYS", "{deja}:batch:*:*"), [])
        self.assertEqual(self.redis("ZCARD", "{deja}:batches:active"), 0)
        self.assertEqual((self.redis("GET", "{deja}:batches:lines"), self.redis("GET", "{deja}:batches:open")), ("0", "0"))

    def test_tenants_take_turns_whatever_the_size_of_their_batches(self):
        self.begin("big", 40)
        text = "line-00000\n" * 3
        self.redis("SET", "{deja}:file:file-s:0", text)
        self.call("file_add", "file-s", "u", "in.jsonl", "batch", len(text), 1, 0, 10**9, 100)
        self.call("batch_create", "small", "u", "file-s", "/v1/embeddings", "24h", 86400, "", "o", "e", "", 0, 10**9, 100)
        self.assertIn("validate", [x[0] for x in self.call("batch_take", "v", 4, 60000)[2:]])
        self.call("batch_queue", "small", "v", 0, 0, 0, 10, 11, 10, 22, 10)
        self.call("batch_begin", "small", "v", "")
        taken = []
        for _ in range(6):
            taken += [item[1] for item in self.call("batch_take", "g", 1, 60000)[2:]]
        self.assertEqual(sorted(taken), ["big"] * 3 + ["small"] * 3)


CLIENT = r"""
import io, json, sys, time, openai
c = openai.OpenAI(base_url=sys.argv[1], api_key="k", max_retries=0, timeout=30)
lines = [{"custom_id": f"id-{i}", "method": "POST", "url": "/v1/chat/completions",
          "body": {"model": "m", "messages": [{"role": "user", "content": f"question {i}"}]}} for i in range(5)]
f = c.files.create(file=("in.jsonl", io.BytesIO("\n".join(map(json.dumps, lines)).encode())), purpose="batch")
assert f.purpose == "batch" and f.id in [x.id for x in c.files.list()], f
assert c.files.retrieve(f.id).bytes == f.bytes
b = c.batches.create(input_file_id=f.id, endpoint="/v1/chat/completions", completion_window="24h", metadata={"job": "nightly"})
end = time.time() + 20
while b.status not in ("completed", "failed") and time.time() < end:
    time.sleep(0.05)
    b = c.batches.retrieve(b.id)
assert (b.status, b.request_counts.completed, b.metadata) == ("completed", 5, {"job": "nightly"}), b
out = [json.loads(x) for x in c.files.content(b.output_file_id).text.splitlines()]
assert sorted(x["custom_id"] for x in out) == [f"id-{i}" for i in range(5)], out
assert [x.id for x in c.batches.list(limit=10)] == [b.id]
try:
    c.batches.cancel(b.id)
    raise SystemExit("an ended batch was cancelled")
except openai.ConflictError as e:
    assert e.code == "batch_ended", e
bad = c.files.create(file=("bad.jsonl", b"{}\n"), purpose="batch")
b = c.batches.create(input_file_id=bad.id, endpoint="/v1/chat/completions", completion_window="24h")
while b.status == "validating" and time.time() < end:
    time.sleep(0.05)
    b = c.batches.retrieve(b.id)
assert b.status == "failed" and b.errors.data[0].line == 1 and b.errors.data[0].code == "missing_required_parameter", b
assert c.files.delete(f.id).deleted
try:
    c.files.content(f.id)
    raise SystemExit("a deleted file was read")
except openai.NotFoundError:
    print("well")
"""


class Client(BatchCase):
    def test_the_openai_client_works_unchanged(self):
        python = os.path.join(os.environ.get("DEJA_VENV", "/nonexistent"), "bin", "python")
        if not os.path.exists(python):
            self.skipTest("the openai package is not importable (set DEJA_VENV to an environment that has it)")
        self.gateway()
        r = subprocess.run([python, "-c", CLIENT, f"http://127.0.0.1:{self.rig.port}/v1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           text=True, timeout=60, check=False)
        self.assertEqual((r.returncode, r.stdout.strip()), (0, "well"), r.stdout)


if __name__ == "__main__":
    unittest.main()
