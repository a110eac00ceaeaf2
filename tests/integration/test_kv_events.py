"""Goal: whoever follows an engine's KV events knows which blocks it holds: from the first one on, from where it left off, or anew after a
restart; and only the gateway may. Method: a small reader of the stream beside requests whose prompts have a known number of full blocks."""
import http.client
import json
import os
import unittest

from tests.integration.live_rig import until
from tests.integration.rig import DATA, GATEWAY_KEY, Rig, block_tokens, call

KEY = {"x-deja-key": GATEWAY_KEY}


class Reader:
    """Follows /deja/kv-events; what it holds is what the engine says it holds."""

    def __init__(self, port, query="", key=GATEWAY_KEY):
        self.conn = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        self.conn.request("GET", "/deja/kv-events" + query, headers={"x-deja-key": key})
        self.reply = self.conn.getresponse()
        self.held, self.number, self.resets, self.incarnation = set(), 0, 0, None

    def frame(self):
        event, data = None, None
        while True:
            line = self.reply.readline().decode().rstrip("\n")
            if line.startswith("event: "):
                event = line[7:]
            elif line.startswith("data: "):
                data = json.loads(line[6:])
            elif not line and data is not None:
                return event, data

    def step(self):
        event, data = self.frame()
        if event == "hello":
            self.incarnation = data["incarnation"]
            return
        if data["reset"]:
            self.resets += 1
            self.held.clear()
        for c in data["changes"]:
            (self.held.add if c[0] == "+" else self.held.remove)(c[1:])
        self.number = data["number"] or self.number

    def until_held(self, n):
        while len(self.held) < n:
            self.step()
        return self

    def close(self):
        self.conn.close()


class KvEvents(unittest.TestCase):
    def complete(self, rig, tokens):
        status, _, body = call(rig.engine_port, "POST", "/v1/completions", {"model": "t", "prompt": tokens, "max_tokens": 1, "temperature": 0})
        self.assertEqual(status, 200, body)
        return json.loads(body)["usage"]["prompt_tokens_details"]["cached_tokens"]

    def test_a_reader_knows_the_blocks_from_the_start_or_from_where_it_left_off(self):
        with Rig() as rig:
            rig.engine(os.path.join(DATA, "tiny-llama-mixed.gguf"), extra=("--served-model-name", "t", "--block-size", "8", "--no-warm-up"))
            first = Reader(rig.engine_port)
            first.step()
            first.step()
            self.assertEqual((first.resets, first.held), (1, set()))
            size = block_tokens(rig.engine_port)              # 8, or 2 in the rare build
            prompt = [5 + i % 90 for i in range(41)]          # full blocks and a token
            full, shared = 40 // size, 24 // size
            self.assertEqual(self.complete(rig, prompt), 0)
            first.until_held(full)
            self.assertEqual({x[0] for x in first.held}, {"0"})
            late = Reader(rig.engine_port).until_held(full)
            self.assertEqual((len(late.held), late.held), (full, first.held))
            self.assertEqual(self.complete(rig, prompt), 40)
            self.complete(rig, prompt[:24] + [99] * 9)        # shares the first 24 tokens, adds a block of 8
            more = full + 32 // size - shared
            first.until_held(more)
            again = Reader(rig.engine_port, f"?incarnation={late.incarnation}&from={late.number}")
            again.held = set(late.held)
            again.until_held(more)
            self.assertEqual((again.resets, again.held), (0, first.held))
            stranger = Reader(rig.engine_port, "?incarnation=0123456789abcdef&from=3").until_held(more)
            self.assertEqual((stranger.resets, stranger.held), (1, first.held))
            for r in (first, late, again, stranger):
                r.close()
            until(lambda: call(rig.engine_port, "GET", "/health")[0] == 200, 5)

    def test_blocks_in_host_memory_and_on_disk_are_told_too(self):
        with Rig() as rig:
            model, disk = os.path.join(DATA, "tiny-llama-mixed.gguf"), os.path.join(rig.folder, "kv")
            args = ("--served-model-name", "t", "--no-warm-up", "--kv-bytes", "200K", "--swap-space", "0.01", "--kv-disk", disk, "--max-num-seqs", "1")
            rig.engine(model, extra=args)
            r = Reader(rig.engine_port)
            for i in range(4):                                # more than the pool holds
                self.complete(rig, [5 + (i * 31 + k * k) % 200 for k in range(400)])
            while {x[0] for x in r.held} != {"0", "1", "2"}:
                r.step()
            r.close()
            rig.processes[-1].stop()
            rig.engine(model, extra=args)
            back = Reader(rig.engine_port).until_held(20)     # what the disk kept is told from the first frame on
            self.assertEqual({x[0] for x in back.held}, {"2"})
            back.close()

    def test_a_reader_stays_through_silence_and_a_restart_has_another_name(self):
        with Rig() as rig:
            model = os.path.join(DATA, "tiny-llama-mixed.gguf")
            rig.engine(model, extra=("--served-model-name", "t"))
            r = Reader(rig.engine_port)
            r.step()
            self.assertTrue(any(r.reply.readline() == b": here\n" for _ in range(200)))
            before = json.loads(call(rig.engine_port, "GET", "/deja/prefix", headers=KEY)[2])
            self.assertEqual(before["incarnation"], r.incarnation)
            r.close()
            rig.processes[-1].stop()
            rig.engine(model, extra=("--served-model-name", "t"))
            after = json.loads(call(rig.engine_port, "GET", "/deja/prefix", headers=KEY)[2])
            self.assertNotEqual(before["incarnation"], after["incarnation"])
            for same in ("root", "seed", "block_tokens", "models"):
                self.assertEqual(before[same], after[same])

    def test_names_tokenizer_and_events_are_for_the_gateway_only(self):
        with Rig() as rig:
            rig.engine(os.path.join(DATA, "tiny-llama-mixed.gguf"))
            for path in ("/deja/prefix", "/deja/tokenizer", "/deja/kv-events"):
                self.assertEqual(call(rig.engine_port, "GET", path)[0], 403)
                self.assertEqual(call(rig.engine_port, "GET", path, headers={"x-deja-key": "guess"})[0], 403)
            status, _, body = call(rig.engine_port, "GET", "/deja/tokenizer", headers=KEY)
            self.assertEqual((status, body[:4], body[8:16]), (200, b"GGUF", bytes(8)))


if __name__ == "__main__":
    unittest.main()
