"""Goal: a prompt computed by a prefill engine is answered by a decode engine exactly as if it had computed it itself, whatever becomes of the
other engine on the way: dead, slow, of another kind, sending damaged bytes; and no tenant's blocks are found by another. Method: two real
engines, a relay between them that flips, cuts and stalls, and a gateway that routes; log-probabilities compared bit by bit."""
import json
import os
import signal
import socket
import threading
import time
import unittest

from tests.integration.live_rig import fcall, load_library, until
from tests.integration.rig import BIN, DATA, GATEWAY_KEY, SMOLLM2, Rig, block_tokens, call, free_port, is_ready, metric, model

CHAT = "/v1/chat/completions"
TINY = os.path.join(DATA, "tiny-llama-mixed.gguf")
KEY = {"x-deja-key": GATEWAY_KEY}


def words(seed, n=22):
    return " ".join(f"w{seed}x{k}" for k in range(n))


def engine(rig, role, path=TINY, *extra, key=GATEWAY_KEY, name=None):
    """(port, process), not waited for."""
    port = free_port()
    argv = [BIN, "engine", "--port", str(port), "--model", path, "--served-model-name", "t", "--threads", "1", "--no-warm-up",
            "--role", role, "--max-model-len", "384", *extra]
    return port, rig.add(f"{name or role}{port}", argv, {"DEJA_GATEWAY_KEY": key})


def pair(rig, path=TINY, prefill=(), decode=()):
    (a, pa), (b, pb) = engine(rig, "prefill", path, *prefill), engine(rig, "decode", path, "--kv-transfer-ms", "60000", *decode)
    for port, p in ((a, pa), (b, pb)):
        p.wait_for(lambda at=port: is_ready(at), 120)
    return a, b, pa, pb


def ask(port, text, salt="", prefill=None, held=0, headers=KEY, **more):
    """(what is said with its log-probabilities, cached tokens, prompt tokens)"""
    h = dict(headers, **({"x-deja-salt": salt} if salt else {}))
    if prefill:
        h["x-deja-prefill"] = f"http://127.0.0.1:{prefill} {held}"
    body = dict({"model": "t", "max_tokens": 8, "temperature": 0, "logprobs": True, "top_logprobs": 3,
                 "messages": [{"role": "user", "content": text}]}, **more)
    status, _, raw = call(port, "POST", CHAT, body, h, timeout=120)
    assert status == 200, raw
    answer = json.loads(raw)
    usage = answer["usage"]
    return answer["choices"][0], usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"]


def outcomes(port):
    """{outcome: how often}"""
    lines = call(port, "GET", "/metrics")[2].decode().splitlines()
    return {x.split('outcome="')[1].split('"')[0]: int(float(x.rsplit(" ", 1)[1])) for x in lines if x.startswith("deja_engine_kv_transfers_total{")}


def carried(port, n, held=0):
    """(blocks that come to this engine for a prompt of n tokens of which it has held, tokens it then has): all full ones but the last
    token's, as far as half of its host memory holds them."""
    size = block_tokens(port)
    most = int(metric(port, "deja_engine_host_blocks")) // 2
    blocks = min((n - 1) // size - held // size, most)
    return blocks, (held // size + blocks) * size


class Middle:
    """A relay before an engine that may spoil what comes back: flip (a byte's place), cut_at, stall_at (bytes passed)."""

    def __init__(self, to):
        self.to, self.flip, self.cut_at, self.stall_at, self.on_pass, self.passed = to, None, None, None, None, 0
        self.open, self.go = [], threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                a, _ = self.listener.accept()
                b = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                return
            self.open += [a, b]
            self.passed = 0
            threading.Thread(target=self.pump, args=(a, b, False), daemon=True).start()
            threading.Thread(target=self.pump, args=(b, a, True), daemon=True).start()

    def pump(self, a, b, back):
        try:
            while data := a.recv(4096):
                b.sendall(self.spoil(data, b) if back else data)
        except OSError:
            pass
        for s in (a, b):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def spoil(self, data, to):
        begin, self.passed = self.passed, self.passed + len(data)
        if self.stall_at is not None and self.passed > self.stall_at:
            if self.on_pass:
                self.on_pass()
            self.go.wait(60)
        if self.cut_at is not None and self.passed > self.cut_at:
            to.sendall(data[:max(0, self.cut_at - begin)])
            raise OSError("cut")
        if self.flip is not None and begin <= self.flip < self.passed:
            data = bytearray(data)
            data[self.flip - begin] ^= 0x10
        return bytes(data)

    def spoil_next(self, flip=None, cut_at=None, stall_at=None):
        self.flip, self.cut_at, self.stall_at, self.passed = flip, cut_at, stall_at, 0

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.go.set()
        self.listener.close()
        for s in self.open:
            s.close()


class Transfer(unittest.TestCase):
    """Two engines; the test plays the gateway."""

    @classmethod
    def setUpClass(cls):
        cls.rig = Rig()
        cls.a, cls.b, _, cls.pb = pair(cls.rig)

    @classmethod
    def tearDownClass(cls):
        cls.rig.close()

    def alone(self, text):
        """What the decode engine says when it computes everything."""
        choice, cached, n = ask(self.b, text, salt="alone " + text[:20])
        self.assertEqual(cached, 0)
        return choice, n

    def counted(self, before, outcome):
        after = outcomes(self.b)
        self.assertEqual(after.get(outcome, 0), before.get(outcome, 0) + 1, (before, after))

    def spoiled(self, middle, text, salt, **how):
        """A transfer that is spoilt on its way changes no answer: (outcomes before it, cached tokens, prompt tokens)."""
        middle.spoil_next(**how)
        want, _ = self.alone(text)
        before = outcomes(self.b)
        got, cached, n = ask(self.b, text, salt=salt, prefill=middle.port)
        self.assertEqual(got, want)
        return before, cached, n

    def test_a_transferred_prompt_is_answered_bit_by_bit_as_a_computed_one(self):
        text, before = words(1), outcomes(self.b)
        want, n = self.alone(text)
        got, cached, _ = ask(self.b, text, salt="one", prefill=self.a)
        self.assertEqual(got, want)
        self.assertEqual(cached, carried(self.b, n)[1])
        self.assertGreaterEqual(cached, 128)
        self.counted(before, "whole")
        for port, name in ((self.a, "sent"), (self.b, "received")):
            self.assertGreater(metric(port, f"deja_engine_kv_{name}_bytes_total"), 0)
        # what the decode engine has of it need not come again
        blocks = metric(self.a, "deja_engine_kv_exported_blocks_total")
        _, _, n = ask(self.b, text + " more " + words(2, 8), salt="one", prefill=self.a, held=cached - 32)
        self.assertEqual(metric(self.a, "deja_engine_kv_exported_blocks_total") - blocks, carried(self.b, n, cached - 32)[0])

    def test_damaged_bytes_cost_time_and_not_the_answer(self):
        seen = {}
        with Middle(self.a) as m:
            for i, place in enumerate((4500, 7000, 9000, 11000)):
                before, _, _ = self.spoiled(m, words(10 + i), "two", flip=place)
                after = outcomes(self.b)
                new = [k for k in after if after[k] > before.get(k, 0)]
                self.assertEqual(len(new), 1)
                seen[new[0]] = seen.get(new[0], 0) + 1
        self.assertGreaterEqual(seen.get("damaged", 0), 2, seen)  # a flip in HTTP's own framing is a cut
        self.assertNotIn("whole", seen)

    def test_a_transfer_that_is_cut_is_finished_here(self):
        with Middle(self.a) as m:
            for i, place in enumerate((0, 300, 5000, 9000)):
                before, cached, n = self.spoiled(m, words(20 + i), "three", cut_at=place)
                self.assertLess(cached, carried(self.b, n)[1])
                self.counted(before, "cut")

    def test_an_engine_that_falls_silent_is_waited_for_only_so_long(self):
        impatient, p = engine(self.rig, "decode", TINY, "--kv-transfer-ms", "500", name="impatient")
        p.wait_for(lambda: is_ready(impatient), 120)
        with Middle(self.a) as m:
            m.spoil_next(stall_at=100)
            want, _ = self.alone(words(30))
            self.assertEqual(ask(impatient, words(30), salt="four", prefill=m.port)[0], want)
            self.assertEqual(outcomes(impatient), {"timeout": 1})
        p.stop()

    def test_nobody_there_is_no_failure(self):
        text, before = words(40), outcomes(self.b)
        want, _ = self.alone(text)
        self.assertEqual(ask(self.b, text, salt="five", prefill=free_port())[0], want)
        self.counted(before, "unreachable")

    def test_a_client_that_leaves_stops_the_other_engine_too(self):
        with Middle(self.a) as m:
            m.spoil_next(stall_at=6000)
            before = outcomes(self.b)
            body = json.dumps({"model": "t", "max_tokens": 4, "messages": [{"role": "user", "content": words(45)}]})
            s = socket.create_connection(("127.0.0.1", self.b))
            s.sendall((f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\nx-deja-key: {GATEWAY_KEY}\r\n"
                       f"x-deja-prefill: http://127.0.0.1:{m.port} 0\r\n\r\n{body}").encode())
            until(lambda: m.passed > 6000, 60, "the transfer")
            s.close()
            until(lambda: outcomes(self.b).get("cancelled", 0) > before.get("cancelled", 0), 20, "the end of the transfer")
        self.assertEqual(call(self.b, "GET", "/ready")[0], 200)

    def test_blocks_of_one_tenant_are_never_found_for_another(self):
        text = words(50)
        want, _ = self.alone(text)

        def hits():
            return metric(self.a, "vllm:prefix_cache_hits_total") + metric(self.a, "vllm:external_prefix_cache_hits_total")
        self.assertEqual(ask(self.b, text, salt="tenant a", prefill=self.a)[0], want)
        before = hits()
        self.assertEqual(ask(self.b, text, salt="tenant b", prefill=self.a)[0], want)
        self.assertEqual(hits(), before)                      # computed anew there
        self.assertEqual(ask(self.b, text, salt="tenant c")[1], 0)  # and nothing of either is found here
        self.assertGreater(ask(self.b, text, salt="tenant a")[1], 0)
        # the same prompt again from there: now it is the tenant's own
        ask(self.b, text + " " + words(51, 8), salt="tenant a", prefill=self.a)
        self.assertGreater(hits(), before)

    def test_a_client_can_neither_ask_for_blocks_nor_name_an_engine(self):
        for headers in ({}, {"x-deja-key": "guess"}):
            status, _, raw = call(self.a, "POST", "/deja/kv-blocks", b"x" * 5000, headers)
            self.assertEqual((status, json.loads(raw)["error"]["code"]), (403, "key"))
        before = outcomes(self.b)
        ask(self.b, words(60), prefill=self.a, headers={})
        ask(self.b, words(60), prefill=self.a, headers={"x-deja-key": "guess"})
        self.assertEqual(outcomes(self.b), before)

    def test_foreign_bytes_are_refused_and_harm_nobody(self):
        for body in (b"", b"x", b"dejakv\r\n" + bytes(5000), os.urandom(9000)):
            status, _, raw = call(self.a, "POST", "/deja/kv-blocks", body, KEY)
            self.assertEqual((status, json.loads(raw)["error"]["code"]), (400, "malformed"), raw)
        self.assertEqual(call(self.b, "POST", "/deja/kv-blocks", b"x", KEY)[0], 403)    # a decode engine computes for itself
        self.assertEqual(call(self.a, "GET", "/ready")[0], 200)

    def test_an_engine_of_another_kind_is_refused_with_the_reason(self):
        others = {"another model file": engine(self.rig, "prefill", os.path.join(DATA, "tiny-llama-f32.gguf"), name="model"),
                  "kv_cache_dtype": engine(self.rig, "prefill", TINY, "--kv-cache-dtype", "int8", name="type"),
                  "block_size": engine(self.rig, "prefill", TINY, "--block-size", "8", name="block"),
                  "gateway_key": engine(self.rig, "prefill", TINY, key="another secret", name="key")}
        for i, (word, (port, p)) in enumerate(others.items()):
            with self.subTest(word):
                p.wait_for(lambda at=port: is_ready(at), 120)
                if word == "block_size" and block_tokens(port) == block_tokens(self.b):
                    self.skipTest("blocks have one size only in the rare build")
                text = words(70 + i)
                want, _ = self.alone(text)
                before = outcomes(self.b)
                got, cached, _ = ask(self.b, text, salt="six" + word, prefill=port)
                self.assertEqual((got, cached), (want, 0))
                self.counted(before, "refused")
                self.assertIn(word, p.tail(40000))
                self.assertEqual(metric(port, "deja_engine_kv_refusals_total"), 1)
            p.stop()

    def test_an_engine_killed_in_the_middle_of_a_transfer_costs_nobody_an_answer(self):
        for i in range(6):                                    # until one was killed before all of it was on its way
            port, p = engine(self.rig, "prefill", TINY, "--max-num-batched-tokens", "16", name="victim")
            p.wait_for(lambda at=port: is_ready(at), 120)
            text = words(80 + i, 26)
            want, _ = self.alone(text)
            before = outcomes(self.b)
            with Middle(port) as m:
                m.on_pass = lambda victim=p: victim.kill(signal.SIGKILL)
                m.spoil_next(stall_at=3000)
                m.go.set()                                    # goes on once it is dead
                self.assertEqual(ask(self.b, text, salt=f"seven {i}", prefill=m.port)[0], want)
            self.assertEqual(p.popen.wait(30), -signal.SIGKILL)
            self.assertEqual(sum(outcomes(self.b).values()), sum(before.values()) + 1)
            if outcomes(self.b).get("cut", 0) > before.get("cut", 0):
                return
        self.fail("every transfer was over before its engine died")


class Adapters(unittest.TestCase):
    def test_blocks_of_an_adapter_are_its_own_and_one_nobody_has_is_refused(self):
        base, a, b = (os.path.join(DATA, f"tiny-{x}.gguf") for x in ("llama-f32", "lora-a", "lora-b"))
        with Rig() as rig:
            pre, dec, p, _ = pair(rig, base, ("--lora", f"one={a}:4"), ("--lora", f"two={b}:-6", "--lora", f"one={a}:4"))
            for name in ("one", "t"):
                want = ask(dec, words(1), salt="alone", model=name)[0]
                got, cached, n = ask(dec, words(1), salt="x", prefill=pre, model=name)
                self.assertEqual((got, cached), (want, carried(dec, n)[1]))
            self.assertEqual(ask(dec, words(1), salt="x", prefill=pre, model="two")[1], 0)
            self.assertEqual(outcomes(dec), {"whole": 2, "refused": 1})
            self.assertIn("lora", p.tail(40000))


class Real(unittest.TestCase):
    @unittest.skipUnless(model(SMOLLM2), "needs SmolLM2")
    def test_a_real_model_says_the_same_bit_by_bit(self):
        with Rig() as rig:
            pre, dec, _, _ = pair(rig, model(SMOLLM2))
            text = "Name three capitals of Europe."
            want = ask(dec, text, salt="alone", max_tokens=6)
            got, cached, n = ask(dec, text, salt="x", prefill=pre, max_tokens=6)
            self.assertEqual(got, want[0])
            self.assertEqual((cached, outcomes(dec)), (carried(dec, n)[1], {"whole": 1}))
            self.assertGreaterEqual(cached, 32)


class Routed(unittest.TestCase):
    def start(self, rig, roles):
        rig.redis()
        self.engines = [engine(rig, r, TINY, "--kv-transfer-ms", "3000") for r in roles]
        for port, p in self.engines:
            p.wait_for(lambda at=port: is_ready(at), 120)
        urls = [x for port, _ in self.engines for x in ("--engine-url", f"http://127.0.0.1:{port}")]
        rig.gateway(*urls, "--redis", rig.redis_url, "--probe-ms", "300")
        until(lambda: metric(rig.port, "deja_route_engines") == len(roles), 60, "following all engines")
        load_library(rig)
        fcall(rig, "deja_config_set", "route_prefill_tokens", "64")
        until(lambda: "prefill=" in self.say(rig, words(time.time_ns() % 1000))[1], 30, "the knob")

    def post(self, rig, text):
        body = {"model": "t", "max_tokens": 4, "temperature": 0, "messages": [{"role": "user", "content": text}]}
        return call(rig.port, "POST", CHAT, body, {"Cache-Control": "no-store, no-cache"})

    def say(self, rig, text):
        """(text, x-deja-route)"""
        status, h, raw = self.post(rig, text)
        self.assertEqual(status, 200, raw)
        return json.loads(raw)["choices"][0]["message"]["content"], h.get("x-deja-route", "")

    def test_prompts_go_over_a_prefill_engine_and_no_request_fails_when_it_dies_or_hangs(self):
        with Rig() as rig:
            self.start(rig, ("prefill", "decode"))
            (a, pa), (b, _) = self.engines
            said, route = self.say(rig, words(1))
            self.assertIn("target=1", route)
            self.assertIn("prefill=0", route)
            until(lambda: self.say(rig, words(time.time_ns() % 1000)) and outcomes(b).get("whole", 0) > 1, 60, "whole transfers")
            self.assertGreater(metric(rig.port, "deja_route_prefills_total"), 0)
            self.assertNotIn("prefill=", self.say(rig, words(1))[1])      # it has it now
            self.assertNotIn("prefill=", self.say(rig, "short")[1])
            self.assertEqual(self.say(rig, words(1))[0], said)
            # a client's own word counts for nothing
            total = sum(outcomes(b).values())
            call(rig.port, "POST", CHAT, {"model": "t", "max_tokens": 2, "messages": [{"role": "user", "content": "hey"}]},
                 {"x-deja-prefill": f"http://127.0.0.1:{a} 0"})
            self.assertEqual(sum(outcomes(b).values()), total)
            pa.kill(signal.SIGSTOP)
            for i in range(3):
                self.say(rig, words(10 + i))
            until(lambda: "prefill=" not in self.say(rig, words(time.time_ns() % 1000))[1], 60, "noticing that it hangs")
            pa.kill(signal.SIGKILL)
            for i in range(4):
                self.assertNotIn("prefill=", self.say(rig, words(30 + i))[1])

    def test_killed_under_load_it_costs_nobody_an_answer_and_the_last_one_left_does_it_all(self):
        with Rig() as rig:
            self.start(rig, ("prefill", "decode", "prefill"))
            (_, pa), (b, pb), _ = self.engines
            failures, n = [], [0]

            def client(k):
                for i in range(12):
                    try:
                        self.say(rig, words(1000 + 100 * k + i))
                    except AssertionError as e:
                        failures.append(e)
                    n[0] += 1
            threads = [threading.Thread(target=client, args=(k,)) for k in range(3)]
            for t in threads:
                t.start()
            until(lambda: n[0] > 4, 60, "load")
            pa.kill(signal.SIGKILL)
            for t in threads:
                t.join(120)
            self.assertEqual(failures, [])
            self.assertGreater(sum(outcomes(b).values()), 10)
            pb.kill(signal.SIGKILL)                                      # only a prefill engine is left
            until(lambda: self.reaches(rig, "target=2"), 60, "the other engine")

    def reaches(self, rig, target):
        status, h, _ = self.post(rig, words(time.time_ns() % 1000))
        return status == 200 and target in h.get("x-deja-route", "")


if __name__ == "__main__":
    unittest.main()
