"""Goal: more requests than an upstream takes wait fairly, or are refused before any work. Method: the real binary, a scripted upstream with
few slots; what is compared are counts and orders, times only as generous bounds."""
import concurrent.futures
import json
import os
import socket
import threading
import time
import unittest

from tests.integration.fake_upstream import FakeUpstream
from tests.integration.rig import Rig, call, metric, unique


class Queue(unittest.TestCase):
    def setUp(self):
        self.rig, self.up = Rig(), FakeUpstream()
        self.addCleanup(self.close)

    def close(self):
        self.up.close()
        self.rig.close()

    def start(self, slots, *options, keys=None):
        more = []
        if keys:
            path = os.path.join(self.rig.folder, "keys")
            with open(path, "w", encoding="utf8") as f:
                f.write(keys)
            more = ["--api-keys", path]
        self.rig.gateway("--upstream", f"{self.up.url} max_concurrency={slots}", *more, *options)

    def ask(self, text, headers=None, **fields):
        body = {"model": "m", "messages": [{"role": "user", "content": text}], "temperature": 0, **fields}
        return call(self.rig.port, "POST", "/v1/chat/completions", body, headers, 60)

    def metric(self, name, part=""):
        return metric(self.rig.port, name, part)

    def wait(self, name, value, part=""):
        end = time.time() + 20
        while self.metric(name, part) != value:
            self.assertLess(time.time(), end, f"{name} is {self.metric(name, part)}, not {value}")
            time.sleep(0.01)

    def test_calls_beyond_the_slots_wait_their_turn_and_say_how_long(self):
        self.start(1)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: self.ask(unique("[[slow:150]]"), stream=False), range(4)))
        self.assertEqual([a[0] for a in answers], [200] * 4)
        waits = sorted(int(a[1].get("x-deja-queue-ms", 0)) for a in answers)
        self.assertEqual(waits[0], 0)
        self.assertGreater(waits[3], 300)
        self.assertEqual(self.metric("deja_queue_working"), 0)

    def test_a_priority_that_is_none_is_refused_by_name(self):
        self.start(1)
        for path, body in (("/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "x"}]}),
                           ("/v1/embeddings", {"model": "m", "input": "x"}), ("/v1/moderations", {"input": "x"})):
            s, _, raw = call(self.rig.port, "POST", path, body, {"x-deja-priority": "high"})
            e = json.loads(raw)["error"]
            self.assertEqual((s, e["param"], e["message"]),
                             (400, "x-deja-priority", "header x-deja-priority: expected batch or online"), path)
        for said in ({"x-deja-priority": " Batch"}, {"x-deja-priority": "online"}, {"x-deja-priority": ""}, {"x-priority": "u=1"}):
            self.assertEqual(self.ask(unique(), said)[0], 200, said)

    def test_who_waits_too_long_is_refused_without_any_work(self):
        self.start(1, "--queue-wait-ms", "200")
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            first = pool.submit(self.ask, unique("[[slow:2000]] first"))
            self.wait("deja_queue_working", 1)
            status, headers, body = self.ask(unique("second"))
            self.assertEqual((status, json.loads(body)["error"]["code"]), (503, "queue_late"))
            self.assertGreaterEqual(int(headers["retry-after"]), 1)
            self.assertEqual(first.result()[0], 200)
        self.assertEqual(self.up.count("second"), 0)
        self.assertEqual(self.metric("deja_queue_refused_total", 'why="late"'), 1)

    def test_a_tenant_that_fills_the_queue_gives_way_to_another(self):
        self.start(1, "--queue-max", "3", keys="sk-flood flood\nsk-calm calm\n")
        flood, calm = {"Authorization": "Bearer sk-flood"}, {"Authorization": "Bearer sk-calm"}
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            running = pool.submit(self.ask, unique("[[slow:1500]]"), flood)
            self.wait("deja_queue_working", 1)
            waiting = []
            for n in range(3):
                waiting.append(pool.submit(self.ask, unique(), flood))
                self.wait("deja_queue_waiting", n + 1)
            self.assertEqual(self.ask(unique(), flood)[0], 429)
            self.assertEqual(self.ask(unique(), calm)[0], 200)
            statuses = sorted(f.result()[0] for f in waiting)
            self.assertEqual(statuses, [200, 200, 429])
            self.assertEqual(running.result()[0], 200)

    def test_a_client_that_leaves_the_queue_costs_nothing(self):
        self.start(1)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            running = pool.submit(self.ask, unique("[[slow:1500]]"))
            self.wait("deja_queue_working", 1)
            body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "left"}]}).encode()
            with socket.create_connection(("127.0.0.1", self.rig.port)) as s:
                s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
                self.wait("deja_queue_waiting", 1)
            # an answer that would be stored is finished for the cache; one nobody has begun is not
            self.wait("deja_queue_waiting", 0)
            self.assertEqual(running.result()[0], 200)
        self.assertEqual(self.ask(unique())[0], 200)
        self.assertEqual(self.up.count("left"), 0)

    def test_equal_requests_wait_as_one(self):
        self.start(1)
        same = unique("same")
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            running = pool.submit(self.ask, unique("[[slow:800]]"))
            self.wait("deja_queue_working", 1)
            rest = [pool.submit(self.ask, same, stream=bool(i % 2)) for i in range(10)]
            self.assertTrue(all(r.result()[0] == 200 for r in [running, *rest]))
        self.assertEqual(self.up.count(same), 1)

    def test_embeddings_wait_by_tenant_and_class_as_all_do(self):
        self.start(1, "--queue-batch-percent", "0", keys="sk-a a\nsk-b b\nsk-first first\nsk-jobs jobs class=batch\n")

        def embed(key, text, **headers):
            return call(self.rig.port, "POST", "/v1/embeddings", {"model": "m", "input": text}, {"Authorization": "Bearer " + key, **headers}, 60)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            jobs = [pool.submit(self.ask, unique("[[slow:1500]]"), {"Authorization": "Bearer sk-first"})]
            self.wait("deja_queue_working", 1)
            todo = [("sk-jobs", "jobs", {}), ("sk-a", "header", {"x-deja-priority": "batch"}), *(("sk-a", f"flood {i}", {}) for i in range(3)), ("sk-b", "calm 1", {})]
            for n, (key, text, headers) in enumerate(todo):
                jobs.append(pool.submit(embed, key, text, **headers))
                self.wait("deja_queue_waiting", n + 1)
            got = [j.result() for j in jobs]
        self.assertEqual([g[0] for g in got], [200] * 7)
        self.assertTrue(all(int(g[1].get("x-deja-queue-ms", 0)) > 0 for g in got[1:]))
        order = [c["json"]["input"] for c in self.up.calls if "input" in c["json"]]
        self.assertLess(order.index("calm 1"), order.index("flood 1"))
        self.assertEqual(set(order[4:]), {"jobs", "header"})

    def test_online_goes_before_batch_by_header_and_by_key(self):
        self.start(1, "--queue-batch-percent", "0", keys="sk-a a\nsk-jobs jobs class=batch\n")
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            futures = [pool.submit(self.ask, unique("[[slow:800]]"), {"Authorization": "Bearer sk-a"})]
            self.wait("deja_queue_working", 1)
            todo = [("jobs 1", {"Authorization": "Bearer sk-jobs"}), ("header", {"Authorization": "Bearer sk-a", "x-deja-priority": "batch"}),
                    ("online 1", {"Authorization": "Bearer sk-a"}), ("online 2", {"Authorization": "Bearer sk-a", "x-deja-priority": "online"})]
            for n, (text, headers) in enumerate(todo):
                futures.append(pool.submit(self.ask, unique(text), headers))
                self.wait("deja_queue_waiting", n + 1)
            self.assertTrue(all(f.result()[0] == 200 for f in futures))
        order = [c["text"].split()[0] for c in self.up.calls if c["method"] == "POST"][1:]
        self.assertEqual(order[:2], ["online", "online"])
        self.assertEqual(sorted(order[2:]), ["header", "jobs"])

    def test_twice_the_load_is_shared_by_weight_and_batch_keeps_its_share(self):
        """Tenants a, b, c of weight 1, 1, 2 and a flood of batch work, each with more clients than it can be served."""
        self.start(8, "--queue-batch-percent", "13", keys="sk-a a\nsk-b b\nsk-c c weight=2\nsk-d d class=batch\n")
        done, stop = {t: 0 for t in "abcd"}, threading.Event()
        lock = threading.Lock()

        def client(tenant):
            while not stop.is_set():
                status = self.ask(unique("[[slow:200]]"), {"Authorization": f"Bearer sk-{tenant}"}, max_tokens=8)[0]
                with lock:
                    done[tenant] += status == 200 and not stop.is_set()
        # enough of each that some always wait, whatever a client needs between two requests
        threads = [threading.Thread(target=client, args=(t,)) for t, n in (("a", 12), ("b", 12), ("c", 24), ("d", 12)) for _ in range(n)]
        for t in threads:
            t.start()
        end = time.time() + 40
        for n in (60, 220):  # those at the start, before everybody waits, do not count
            while sum(done.values()) < n and time.time() < end:
                time.sleep(0.02)
            if n == 60:
                with lock:
                    done.update(dict.fromkeys(done, 0))
        stop.set()
        for t in threads:
            t.join()
        online = done["a"] + done["b"] + done["c"]
        self.assertGreater(online, 150)
        for tenant, share in (("a", 0.25), ("b", 0.25), ("c", 0.5)):
            self.assertAlmostEqual(done[tenant] / online, share, delta=0.1 * share + 8 / online, msg=str(done))
        self.assertAlmostEqual(done["d"] / sum(done.values()), 0.125, delta=0.04, msg=str(done))

    def test_an_upstream_that_says_too_much_is_asked_less_and_nobody_is_lost(self):
        """It takes 4 at a time and answers 503 beyond; nobody told the gateway how many."""
        at_work, lock, handler = [0], threading.Lock(), self.up.server.RequestHandlerClass
        plain = handler.do_POST

        def limited(h):
            with lock:
                at_work[0] += 1
                too_much = at_work[0] > 4
            try:
                if too_much:
                    n = int(h.headers.get("content-length", 0))
                    h.rfile.read(n)
                    h.send_response(503)
                    h.send_header("content-length", "0")
                    h.end_headers()
                else:
                    plain(h)
            finally:
                with lock:
                    at_work[0] -= 1
        handler.do_POST = limited
        self.addCleanup(setattr, handler, "do_POST", plain)
        self.rig.gateway("--upstream", self.up.url, "--retry-budget-percent", "100", "--upstream-retries", "6", "--breaker-failures", "1000", "--breaker-error-percent", "0")
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            statuses = list(pool.map(lambda _: self.ask(unique("[[slow:60]]"))[0], range(160)))
        self.assertGreater(statuses[80:].count(200), 70)
        self.assertGreater(self.metric("deja_queue_seconds_count"), 0)
        self.assertTrue(1 <= self.metric("deja_upstream_slots") <= 12, self.metric("deja_upstream_slots"))
        self.assertEqual(self.metric("deja_queue_working"), 0)


if __name__ == "__main__":
    unittest.main()
