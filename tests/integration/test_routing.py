"""Goal: prompts that begin alike go where their beginning is held, no target is piled up on, and an engine that dies or is started anew is
not routed to for what it no longer holds. Method: three engines of ours with small KV pools behind one gateway; cached_tokens of
the usage tell what was found; kill -9 and a restart under requests."""
import json
import os
import random
import signal
import threading
import time
import unittest

from tests.integration.fake_upstream import FakeUpstream
from tests.integration.live_rig import Resp, fcall, load_library, until
from tests.integration.rig import BIN, DATA, GATEWAY_KEY, Rig, call, free_port, is_ready

CHAT = "/v1/chat/completions"
MODEL = os.path.join(DATA, "tiny-llama-mixed.gguf")
HEADS = 24
WORDS = "river stone window copper garden letter morning silver thunder velvet market candle".split()


def metric(port, name):
    for line in call(port, "GET", "/metrics")[2].decode().splitlines():
        if line.startswith(name + " "):
            return float(line.split()[1])
    return None


class Fleet:
    """Engines by their numbers; the gateway is told all of them."""

    def __init__(self, rig, n, *extra, model=MODEL):
        self.rig, self.model, self.extra, self.ports, self.processes = rig, model, extra, [free_port() for _ in range(n)], [None] * n
        for i in range(n):
            self.start(i, wait=False)
        for i in range(n):
            self.wait(i)

    def start(self, i, wait=True):
        argv = [BIN, "engine", "--port", str(self.ports[i]), "--model", self.model, "--served-model-name", "t", "--threads", "1", *self.extra]
        self.processes[i] = self.rig.add(f"engine{i}", argv, {"DEJA_GATEWAY_KEY": GATEWAY_KEY})
        if wait:
            self.wait(i)

    def wait(self, i):
        self.processes[i].wait_for(lambda: is_ready(self.ports[i]), 120)

    def gateway(self, *extra):
        urls = [x for p in self.ports for x in ("--engine-url", f"http://127.0.0.1:{p}")]
        self.rig.gateway(*urls, "--probe-ms", "300", *extra)
        until(lambda: metric(self.rig.port, "deja_route_engines") == len(self.ports), 60, "following all engines")


def prompt(head, turn):
    r = random.Random(head)
    return f"Instruction {head}: " + " ".join(r.choice(WORDS) for _ in range(60)) + f". Question {turn}?"


def ask(port, text, key=None, **more):
    body = dict({"model": "t", "max_tokens": 2, "temperature": 0, "messages": [{"role": "user", "content": text}]}, **more)
    headers = {"Cache-Control": "no-store, no-cache"}
    if key:
        headers["Authorization"] = "Bearer " + key
    status, h, raw = call(port, "POST", CHAT, body, headers)
    usage = json.loads(raw)["usage"] if status == 200 else {}
    return status, h, usage.get("prompt_tokens_details", {}).get("cached_tokens", 0), usage.get("prompt_tokens", 0)


def hit_rate(port, rounds, seed=3, targets=None):
    order, cached, total = random.Random(seed), 0, 0
    for turn in range(rounds):
        heads = list(range(HEADS))
        order.shuffle(heads)
        for head in heads:
            status, h, had, of = ask(port, prompt(head, f"{seed} {turn}"))
            assert status == 200
            if targets is not None:
                targets[field(h, "target")] = targets.get(field(h, "target"), 0) + 1
            cached, total = cached + had, total + of
    return cached / total


def field(headers, name):
    return dict(x.split("=") for x in headers["x-deja-route"].split())[name]


class Routing(unittest.TestCase):
    def test_beginnings_go_where_they_are_held_and_everybody_gets_some(self):
        with Rig() as rig:
            rig.redis()
            # each keeps nine or so of the beginnings, three of them together all
            fleet = Fleet(rig, 3, "--kv-bytes", "1500K", "--swap-space", "0", "--max-num-seqs", "2")
            fleet.gateway("--redis", rig.redis_url)
            load_library(rig)
            status, h, _, of = ask(rig.port, prompt(0, 0))
            self.assertEqual((status, field(h, "held"), field(h, "by")), (200, "0", "events"))
            first = field(h, "target")
            status, h, had, _ = ask(rig.port, prompt(0, 1))
            self.assertEqual(field(h, "target"), first)
            self.assertGreaterEqual(int(field(h, "held")), had - 16)
            self.assertGreater(had, of // 2)
            targets = {}
            fcall(rig, "deja_config_set", "route_prefix", "no")
            until(lambda: "x-deja-route" not in ask(rig.port, prompt(0, 2))[1], 10, "the knob")
            hit_rate(rig.port, 1)
            blind = hit_rate(rig.port, 2, seed=5)
            fcall(rig, "deja_config_set", "route_prefix", "yes")
            until(lambda: "x-deja-route" in ask(rig.port, prompt(0, 3))[1], 10, "the knob")
            hit_rate(rig.port, 1)
            targets.clear()
            seeing = hit_rate(rig.port, 2, seed=4, targets=targets)
            self.assertGreaterEqual(seeing, 2 * blind)
            self.assertLess(max(targets.values()), 2 * HEADS * 0.6, targets)
            self.assertEqual(len(targets), 3)
            promised, over = metric(rig.port, "deja_route_promised_tokens_total"), metric(rig.port, "deja_route_overclaim_tokens_total")
            self.assertGreater(promised, 0)
            self.assertLess(over, 0.05 * promised)

    def test_an_engine_that_was_killed_is_not_routed_to_and_no_request_fails(self):
        with Rig() as rig:
            fleet = Fleet(rig, 3)
            fleet.gateway("--breaker-open-ms", "200")
            _, h, _, _ = ask(rig.port, prompt(0, 0))
            victim = int(field(h, "target"))
            self.assertEqual(int(field(ask(rig.port, prompt(0, 1))[1], "target")), victim)
            answers, stop = [], threading.Event()

            def client(n):
                turn = 0
                while not stop.is_set():
                    turn += 1
                    answers.append(ask(rig.port, prompt(turn % 3, f"{n} {turn}"))[:2])

            threads = [threading.Thread(target=client, args=(i,)) for i in range(3)]
            for t in threads:
                t.start()
            until(lambda: len(answers) > 20, 30, "traffic")
            fleet.processes[victim].kill()
            until(lambda: metric(rig.port, "deja_route_engines") == 2, 10, "noticing")
            before = len(answers)
            until(lambda: len(answers) > before + 20, 30, "traffic without it")
            after = list(answers[before + 3:])                # those begun after it was noticed
            fleet.start(victim)
            until(lambda: metric(rig.port, "deja_route_engines") == 3, 20, "its return")
            stop.set()
            for t in threads:
                t.join()
            self.assertEqual({a[0] for a in answers}, {200})
            self.assertTrue(all(int(field(a[1], "target")) != victim for a in after))
            # it came back empty: whatever it held before is forgotten, here too
            for turn in range(6):
                _, h, had, _ = ask(rig.port, prompt(40 + turn, 0))
                self.assertLessEqual(int(field(h, "held")), had + 16)
            for p in fleet.processes:
                p.kill()
            until(lambda: metric(rig.port, "deja_route_engines") == 0, 10, "noticing")
            down = {call(rig.port, "POST", CHAT, {"model": "t", "messages": [{"role": "user", "content": str(turn)}]})[0] for turn in range(3)}
            self.assertLessEqual(down, {502, 503})            # the model is not unknown, it is away

    def test_tenants_have_chains_of_their_own(self):
        with Rig() as rig:
            keys = os.path.join(rig.folder, "keys")
            with open(keys, "w", encoding="utf8") as f:
                f.write("sk-a tenant-a\nsk-b tenant-b\n")
            Fleet(rig, 2).gateway("--api-keys", keys)
            ask(rig.port, prompt(0, 0), "sk-a")
            _, h, had, _ = ask(rig.port, prompt(0, 1), "sk-b")
            self.assertEqual((field(h, "held"), had), ("0", 0))
            _, h, had, _ = ask(rig.port, prompt(0, 2), "sk-a")
            self.assertGreater(int(field(h, "held")), 100)
            self.assertGreaterEqual(had, int(field(h, "held")))

    def test_long_prompts_tools_and_completions_find_their_blocks_too(self):
        tools = [{"type": "function", "function": {"name": "look", "description": "looks about", "parameters": {"type": "object", "properties": {}}}}]
        with Rig() as rig:
            fleet = Fleet(rig, 2, "--lora", "b=" + os.path.join(DATA, "tiny-lora-a.gguf"), model=os.path.join(DATA, "tiny-llama-f32.gguf"))
            fleet.gateway()
            for more in ({"model": "b"}, {"tools": tools}, {"tools": tools, "tool_choice": "none"}, {"padding": "x" * 20000}):
                ask(rig.port, prompt(7, 0)[:150], **more)
                _, h, had, _ = ask(rig.port, prompt(7, 0)[:150], **more)
                self.assertGreater(int(field(h, "held")), 0, more.keys())
                self.assertLess(abs(int(field(h, "held")) - had), 17, more.keys())
            for _ in range(2):
                status, h, _ = call(rig.port, "POST", "/v1/completions", {"model": "t", "prompt": prompt(8, 0), "max_tokens": 1, "temperature": 0},
                                    {"Cache-Control": "no-store, no-cache"})
            self.assertEqual(status, 200)
            self.assertGreater(int(field(h, "held")), 100)

    def test_servers_of_unknown_tokenizers_are_chosen_by_what_was_sent_there(self):
        with Rig() as rig:
            a, b = FakeUpstream(), FakeUpstream()
            rig.gateway("--upstream", a.url, "--upstream", b.url)
            long = [{"role": "system", "content": "rules " * 300}, {"role": "user", "content": "one"}]
            other = [{"role": "system", "content": "laws " * 300}, {"role": "user", "content": "one"}]
            first = ask(rig.port, "", messages=long)[1]
            second = ask(rig.port, "", messages=other)[1]
            self.assertEqual((field(first, "held"), field(first, "by")), ("0", "history"))
            self.assertNotEqual(field(first, "target"), field(second, "target"))
            for turn in range(4):
                h = ask(rig.port, "", messages=long + [{"role": "user", "content": str(turn)}])[1]
                self.assertEqual(field(h, "target"), field(first, "target"))
                self.assertGreater(int(field(h, "held")), 300)
            self.assertEqual(field(ask(rig.port, "", messages=other)[1], "target"), field(second, "target"))
            a.close()
            b.close()

    def test_a_server_that_was_away_is_not_said_to_hold_what_it_was_sent_before(self):
        with Rig() as rig:
            a, b = FakeUpstream(), FakeUpstream()
            rig.gateway("--upstream", a.url, "--upstream", b.url, "--breaker-open-ms", "100", "--probe-ms", "100")
            texts = [[{"role": "system", "content": f"rules {i} " * 300}, {"role": "user", "content": "one"}] for i in range(8)]
            asked = {i: field(ask(rig.port, "", messages=m)[1], "target") for i, m in enumerate(texts)}
            mine = [i for i, target in asked.items() if target == "0"]
            self.assertGreaterEqual(len(mine), 2)
            again = ask(rig.port, "", messages=texts[mine[0]])[1]
            self.assertGreater(int(field(again, "held")), 300)
            port = a.port
            a.close()
            status, h, _, _ = ask(rig.port, "", messages=texts[mine[0]])
            self.assertEqual((status, field(h, "target"), field(h, "held")), (200, "1", "0"))
            a = FakeUpstream(port)
            until(lambda: call(rig.port, "GET", "/ready")[2].count(b'"ok":true') >= 3, 10, "its return")
            self.assertEqual(field(ask(rig.port, "", messages=texts[mine[1]])[1], "held"), "0")
            a.close()
            b.close()

    def test_gateways_share_what_they_sent_and_forget_a_target_nobody_calls_alive(self):
        with Rig() as rig:
            rig.redis()
            a, b = FakeUpstream(), FakeUpstream()
            ports = []
            for name in ("one", "two"):
                rig.gateway("--upstream", a.url, "--upstream", b.url, "--redis", rig.redis_url, "--cache-secret", "s", name=name)
                ports.append(rig.port)
            asked = {}
            for i in range(4):
                long = [{"role": "system", "content": f"rules {i} " * 300}]
                h = ask(ports[0], "", messages=long)[1]
                self.assertEqual(field(h, "held"), "0")
                asked[i] = field(h, "target")
            self.assertEqual(set(asked.values()), {"0", "1"})
            for i, target in asked.items():
                long = [{"role": "system", "content": f"rules {i} " * 300}, {"role": "user", "content": "and?"}]
                h = ask(ports[1], "", messages=long)[1]
                self.assertEqual(field(h, "target"), target)
                self.assertGreater(int(field(h, "held")), 300)
            rig.processes[0].kill(signal.SIGSTOP)             # Redis hangs: the choice goes on without
            self.assertEqual(ask(ports[1], "", messages=[{"role": "user", "content": "x " * 2000}])[0], 200)
            rig.processes[0].kill(signal.SIGCONT)
            a.close()
            b.close()

    def test_the_shared_index_counts_whole_beginnings_of_living_pods(self):
        with Rig() as rig:
            rig.redis()
            load_library(rig)
            redis = Resp(rig.redis_socket)
            call_kv = lambda name, *args: redis("FCALL", name, 1, "{deja:m:16}:kv", *args)
            held = lambda *blocks: dict(zip(*[iter(call_kv("deja_prefix_held", *blocks))] * 2))
            blocks = [f"{i:032x}" for i in range(64)]
            self.assertEqual(held(*blocks), {})
            self.assertEqual(call_kv("deja_prefix_sent", "a", 30, 1000, *blocks), 64)
            self.assertEqual(call_kv("deja_prefix_sent", "b", 30, 1000, *blocks[:5], *blocks[6:9]), 8)
            self.assertEqual(held(*blocks), {"a": 64, "b": 5})
            self.assertEqual(held(*blocks[5:8]), {"a": 3})
            begin = time.perf_counter()
            for _ in range(50):
                held(*blocks)
            print(f"a look-up of 64 blocks in Redis: {(time.perf_counter() - begin) * 20:.2f} ms with its round trip", flush=True)
            self.assertEqual(call_kv("deja_prefix_sent", "b", 30, 6, *blocks[:3]), 6)
            redis("DEL", "{deja:m:16}:kv:p:a")                # nobody says it is alive
            self.assertNotIn("a", held(*blocks))
            self.assertEqual(call_kv("deja_prefix_alive", 30, "a"), "OK")
            self.assertNotIn("a", held(*blocks))              # back, but in another run
            call_kv("deja_prefix_sent", "a", 30, 1000, *blocks[:2])
            self.assertEqual(held(*blocks)["a"], 2)
            self.assertEqual(call_kv("deja_prefix_gone", "a"), "OK")
            call_kv("deja_prefix_alive", 30, "a")
            self.assertNotIn("a", held(*blocks))
            self.assertEqual(call_kv("deja_prefix_drop", "a"), 0)
            self.assertNotIn("a", held(*blocks))
            for bad in (("deja_prefix_sent", "a b", 30, 10), ("deja_prefix_sent", "a", 0, 10), ("deja_prefix_sent", "a", 30, 10, "xyz")):
                self.assertIn("ERR", call_kv(*bad))
            redis.close()


if __name__ == "__main__":
    unittest.main()
