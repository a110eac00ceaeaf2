"""Goal: `deja engine` as clients see it: shapes of answers and streams, choices, stop strings, log-probabilities, prefix cache, limits, errors,
and that work stops when a client leaves. Method: the real binary with a tiny generated model (random weights, real arithmetic) on a
free port; one chat with a real model when its file is in the cache."""
import base64
import json
import os
import re
import signal
import socket
import struct
import subprocess
import threading
import time
import unittest

from tests.integration.rig import BIN, DATA, GATEWAY_KEY, SMOLLM2, Rig, call, model

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


def metrics(port):
    body = call(port, "GET", "/metrics")[2].decode()
    return {m[1]: float(m[2]) for m in re.finditer(r"^([\w:]+)(?:\{[^}]*\})? (\S+)$", body, re.M)}


def user(text):
    return [{"role": "user", "content": text}]


def sse(raw):
    """Payloads of a stream, the last one as text."""
    frames = [f[6:] for f in raw.decode("utf8").split("\n\n") if f.startswith("data: ")]
    assert frames[-1] == "[DONE]", frames[-1:]
    return [json.loads(f) for f in frames[:-1]]


class EngineServer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig = Rig()
        cls.rig.engine(os.path.join(DATA, "tiny-llama-mixed.gguf"), os.path.join(DATA, "tiny-bert.gguf"),
                       extra=("--served-model-name", "tiny", "--max-num-seqs", "4", "--queue-max", "6", "--seed", "5"))
        cls.port = cls.rig.engine_port

    @classmethod
    def tearDownClass(cls):
        cls.rig.close()

    def post(self, path, headers=None, **body):
        status, head, raw = call(self.port, "POST", path, dict({"model": "tiny"}, **body), headers)
        return status, head, json.loads(raw)

    def chat(self, text="hello", **fields):
        status, _, answer = self.post(CHAT, **dict({"messages": user(text), "max_tokens": 12, "temperature": 0}, **fields))
        self.assertEqual(status, 200, answer)
        return answer

    def stream(self, path=CHAT, **fields):
        body = dict({"model": "tiny", "max_tokens": 12, "temperature": 0, "stream": True}, **fields)
        status, head, raw = call(self.port, "POST", path, body)
        self.assertEqual(status, 200, raw)
        self.assertTrue(head["content-type"].startswith("text/event-stream"))
        return sse(raw)

    def refused(self, status, path, code=None, param=None, headers=None, **body):
        got, head, answer = self.post(path, headers, **body)
        self.assertEqual(got, status, answer)
        self.assertEqual(set(answer["error"]), {"message", "type", "param", "code"})
        if code:
            self.assertEqual(answer["error"]["code"], code)
        if param:
            self.assertEqual(answer["error"]["param"], param)
        return head, answer["error"]["message"]

    def wait_metric(self, name, holds, seconds=10):
        end = time.time() + seconds
        while not holds(value := metrics(self.port)[name]):
            self.assertLess(time.time(), end, f"{name} is {value}")
            time.sleep(0.002)

    def wait_idle(self):
        for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "deja_engine_kv_blocks_used"):
            self.wait_metric(name, lambda v: v == 0)

    # --- answers
    def test_chat_has_the_api_shape(self):
        a = self.chat()
        self.assertEqual(a["object"], "chat.completion")
        self.assertEqual(a["model"], "tiny")
        self.assertTrue(a["id"].startswith("chatcmpl-"))
        self.assertEqual(a["choices"][0]["message"]["role"], "assistant")
        self.assertEqual(a["choices"][0]["finish_reason"], "length")
        u = a["usage"]
        self.assertEqual((u["completion_tokens"], u["total_tokens"]), (12, u["prompt_tokens"] + 12))

    def test_greedy_answers_repeat_and_a_seed_repeats_a_sampled_one(self):
        text = lambda a: a["choices"][0]["message"]["content"]
        self.assertEqual(text(self.chat()), text(self.chat()))
        one, two, other = (text(self.chat(temperature=1, seed=s)) for s in (11, 11, 12))
        self.assertEqual(one, two)
        self.assertNotEqual(one, other)

    def test_stream_joins_to_the_whole_answer(self):
        for n in (1, 3):
            whole = self.chat("tell me", n=n, temperature=0.8, seed=4, max_tokens=40)
            chunks = self.stream(messages=user("tell me"), n=n, temperature=0.8, seed=4, max_tokens=40)
            self.assertEqual([c["choices"][0]["delta"]["role"] for c in chunks[:n]], ["assistant"] * n)
            for i in range(n):
                mine = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == i]
                self.assertEqual("".join(c["delta"].get("content") or "" for c in mine), whole["choices"][i]["message"]["content"])
                self.assertEqual([c["finish_reason"] for c in mine if c["finish_reason"]], [whole["choices"][i]["finish_reason"]])
                self.assertIsNotNone(mine[-1]["finish_reason"])
            self.assertFalse(any("usage" in c for c in chunks))

    def test_usage_chunk_comes_last_and_only_on_request(self):
        chunks = self.stream(messages=user("x"), stream_options={"include_usage": True})
        self.assertEqual(chunks[-1]["choices"], [])
        self.assertEqual(chunks[-1]["usage"]["completion_tokens"], 12)
        self.assertTrue(all(c["usage"] is None for c in chunks[:-1]))

    def test_choices_are_counted_and_differ(self):
        a = self.chat(n=4, temperature=1)
        self.assertEqual([c["index"] for c in a["choices"]], [0, 1, 2, 3])
        self.assertEqual(a["usage"]["completion_tokens"], 48)
        self.assertGreater(len({c["message"]["content"] for c in a["choices"]}), 1)

    def test_stop_strings_never_leak_whole_or_streamed(self):
        full = self.chat(max_tokens=60)["choices"][0]["message"]["content"]
        stop = full[10:13]
        want = full[:full.index(stop)]
        a = self.chat(max_tokens=60, stop=[stop])["choices"][0]
        self.assertEqual((a["message"]["content"], a["finish_reason"]), (want, "stop"))
        chunks = self.stream(messages=user("hello"), max_tokens=60, stop=stop)
        self.assertEqual("".join(c["choices"][0]["delta"].get("content") or "" for c in chunks), want)

    def test_logprobs_line_up_with_the_text(self):
        a = self.chat(logprobs=True, top_logprobs=3, max_tokens=30)["choices"][0]
        entries = a["logprobs"]["content"]
        self.assertEqual(len(entries), 30)
        joined = b"".join(bytes(e["bytes"]) for e in entries)
        self.assertEqual(joined.decode("utf8", "replace"), a["message"]["content"])
        for e in entries:
            self.assertEqual(len(e["top_logprobs"]), 3)
            self.assertAlmostEqual(e["logprob"], e["top_logprobs"][0]["logprob"], places=4)
            self.assertLessEqual(e["logprob"], 0)
        streamed = [e for c in self.stream(messages=user("hello"), logprobs=True, top_logprobs=3, max_tokens=30)
                    for e in ((c["choices"][0]["logprobs"] or {}).get("content") or [])]
        self.assertEqual(streamed, entries)

    def test_logprobs_end_where_a_stop_string_cuts(self):
        full = self.chat(max_tokens=60)["choices"][0]["message"]["content"]
        a = self.chat(max_tokens=60, stop=full[10:13], logprobs=True)["choices"][0]
        shown = b"".join(bytes(e["bytes"]) for e in a["logprobs"]["content"]).decode("utf8", "replace")
        self.assertTrue(shown.startswith(a["message"]["content"]))
        self.assertLess(len(shown), len(full))

    def test_logprobs_and_text_end_together_also_where_characters_are_broken(self):
        shown = lambda entries: b"".join(bytes(e["bytes"]) for e in entries).decode("utf8", "replace")
        for seed in range(10):
            fields = {"messages": user(f"hello {seed}"), "temperature": 1, "seed": seed, "logprobs": True, "max_tokens": 40}
            full = self.chat(**fields)["choices"][0]["message"]["content"]
            for at in range(3, len(full) - 3, 7):
                for stop in (full[at:at + 2], [full[at:at + 3], full[at:at + 2] + "\ufffd\ufffdzz"]):
                    whole = self.chat(stop=stop, **fields)["choices"][0]
                    chunks = [c["choices"][0] for c in self.stream(stop=stop, **fields)]
                    streamed = ("".join(c["delta"].get("content") or "" for c in chunks),
                                [e for c in chunks for e in ((c["logprobs"] or {}).get("content") or [])])
                    for text, entries in ((whole["message"]["content"], whole["logprobs"]["content"]), streamed):
                        self.assertTrue(full.startswith(text))
                        self.assertTrue((shown(entries) + "\ufffd").startswith(text), (text, shown(entries)))
                        if text:  # the last token said is the first whose text reaches the end
                            self.assertLess(len(shown(entries[:-1]).rstrip("\ufffd")), len(text), (text, shown(entries)))

    def test_a_refusal_said_before_is_part_of_the_prompt(self):
        def answer(**said):
            messages = user("hello") + [dict(role="assistant", **said)] + user("why?")
            a = self.chat(messages=messages)
            return a["choices"][0]["message"]["content"], a["usage"]["prompt_tokens"]
        want = answer(content="I will not do that")
        self.assertEqual(answer(content=[{"type": "refusal", "refusal": "I will not do that"}]), want)
        self.assertEqual(answer(content=None, refusal="I will not do that"), want)

    def test_echo_gives_the_prompt_back_before_the_answer(self):
        for prompt, said in (("abc", ["abc"]), (["abc", "你好"], ["abc", "你好"]), (self.post("/tokenize", prompt="abc")[2]["tokens"], ["abc"])):
            fields = {"prompt": prompt, "max_tokens": 4, "temperature": 0, "n": 2}
            bare = [c["text"] for c in self.post(TEXT, **fields)[2]["choices"]]
            want = [said[i // 2] + text for i, text in enumerate(bare)]
            whole = self.post(TEXT, echo=True, **fields)[2]["choices"]
            self.assertEqual([c["text"] for c in whole], want)
            streamed = [""] * len(want)
            for chunk in self.stream(TEXT, echo=True, **fields):
                for c in chunk["choices"]:
                    streamed[c["index"]] += c["text"]
            self.assertEqual(streamed, want)
        self.refused(400, TEXT, param="echo", prompt="abc", echo=True, logprobs=1)
        self.refused(400, TEXT, param="repetition_penalty", prompt="abc", repetition_penalty=3)

    def test_older_logprobs_name_every_token_once_also_parts_of_characters(self):
        def no_doubles(pairs):
            self.assertEqual(len(dict(pairs)), len(pairs), pairs)
            return dict(pairs)
        parts = 0
        for prompt in ("hi", "hi there", "你好", "abc"):
            raw = call(self.port, "POST", TEXT, {"model": "tiny", "prompt": prompt, "max_tokens": 12, "temperature": 0, "logprobs": 20})[2]
            told = json.loads(raw, object_pairs_hook=no_doubles)["choices"][0]["logprobs"]
            for token, top in zip(told["tokens"], told["top_logprobs"]):
                self.assertIn(token, top)
                self.assertNotIn("\ufffd", "".join(top))
                parts += sum(name.startswith("bytes:\\x") for name in top)
        self.assertGreater(parts, 0)

    def test_completions_take_text_lists_and_token_ids(self):
        status, _, a = self.post(TEXT, prompt=["abc", "abd"], max_tokens=4, temperature=0, n=2, logprobs=2)
        self.assertEqual(status, 200, a)
        self.assertEqual([c["index"] for c in a["choices"]], [0, 1, 2, 3])
        self.assertEqual(a["choices"][0]["text"], a["choices"][1]["text"])
        self.assertEqual(len(a["choices"][0]["logprobs"]["token_logprobs"]), 4)
        ids = self.post("/tokenize", prompt="abc")[2]["tokens"]
        b = self.post(TEXT, prompt=ids, max_tokens=4, temperature=0)[2]
        self.assertEqual(b["choices"][0]["text"], a["choices"][0]["text"])
        chunks = self.stream(TEXT, prompt="abc", max_tokens=4)
        self.assertEqual("".join(c["choices"][0]["text"] for c in chunks), a["choices"][0]["text"])

    def test_a_repeated_prompt_is_served_from_the_prefix_cache_with_the_same_text(self):
        text = "a question that is long enough to fill several blocks of the cache, " * 3
        cold, warm = self.chat(text), self.chat(text)
        details = lambda a: a["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertEqual(warm["choices"], cold["choices"])
        self.assertEqual(details(warm), warm["usage"]["prompt_tokens"] - 1)
        self.assertLess(details(cold), details(warm))
        for key, shared in ((GATEWAY_KEY, 0), ("a guess", details(warm)), (None, details(warm))):
            headers = {"x-deja-salt": "tenant-b"} | ({"x-deja-key": key} if key else {})
            salted = self.post(CHAT, headers, messages=user(text), max_tokens=12, temperature=0)[2]
            self.assertEqual(details(salted), shared, key)
            self.assertEqual(salted["choices"], cold["choices"])

    def test_control_tokens_typed_by_a_user_stay_text(self):
        plain = self.chat("x")["usage"]["prompt_tokens"]
        typed = self.chat("x<|im_end|>")["usage"]["prompt_tokens"]
        self.assertGreater(typed - plain, 3)

    def test_a_long_prompt_is_tokenised_on_a_worker(self):
        with Rig() as rig:
            rig.engine(os.path.join(DATA, "tiny-llama-mixed.gguf"), extra=("--served-model-name", "t", "--max-model-len", "64"))
            status, _, raw = call(rig.engine_port, "POST", CHAT, {"model": "t", "messages": user("word " * 8000)})
            self.assertEqual(status, 400)
            error = json.loads(raw)["error"]
            self.assertEqual(error["code"], "context_length_exceeded")
            self.assertRegex(error["message"], r"\d+ tokens .* 64 tokens: at most 63")

    def test_what_is_long_is_read_and_written_beside_the_loop(self):
        many = [i % 200 for i in range(1200000)]
        for path, body in (("/tokenize", {"prompt": "word " * 400000}), ("/tokenize", {"prompt": "x", "more": many}), ("/detokenize", {"tokens": many}),
                           (TEXT, {"model": "tiny", "prompt": many}), (CHAT, {"model": "tiny", "messages": user("x"), "more": many, "max_tokens": 1})):
            data = json.dumps(body, separators=(",", ":")).encode()
            with socket.create_connection(("127.0.0.1", self.port)) as long, socket.create_connection(("127.0.0.1", self.port)) as other:
                long.settimeout(120)
                long.sendall(b"POST " + path.encode() + b" HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data) + data[:-1])
                other.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                self.assertIn(b"200 OK", other.recv(4096))     # all but the last byte has been taken in by now
                long.sendall(data[-1:])
                time.sleep(0.01)
                other.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                self.assertIn(b"200 OK", other.recv(4096))
                long.setblocking(False)
                with self.assertRaises(BlockingIOError, msg=path):  # its answer took longer than the other's, which came later
                    long.recv(1)
                long.settimeout(120)
                self.assertRegex(long.recv(4096), rb"^HTTP/1.1 (200|400) ")

    # --- cancelling
    def leave(self, body):
        s = socket.create_connection(("127.0.0.1", self.port))
        data = json.dumps(body).encode()
        s.sendall(b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        return s

    def test_a_client_that_leaves_frees_its_blocks_streaming_or_not_running_or_queued(self):
        base = {"model": "tiny", "messages": user("go on"), "max_tokens": 450, "ignore_eos": True, "temperature": 1}
        for stream in (True, False):
            self.wait_idle()
            before = metrics(self.port)["deja_engine_cancelled_total"]
            socks = [self.leave(dict(base, stream=stream)) for _ in range(10)]  # four slots: the others wait
            self.wait_metric("vllm:num_requests_running", lambda v: v == 4)
            for s in socks:
                s.close()
            self.wait_metric("deja_engine_cancelled_total", lambda v: v > before)
            self.wait_idle()

    def test_a_full_queue_answers_429_with_retry_after(self):
        base = {"model": "tiny", "messages": user("go on"), "max_tokens": 450, "ignore_eos": True, "n": 4}
        socks = [self.leave(dict(base)) for _ in range(2)]
        self.wait_metric("vllm:num_requests_running", lambda v: v == 4)
        try:
            head, message = self.refused(429, CHAT, code="queue_full", messages=user("me too"), n=8)
            self.assertGreaterEqual(int(head["retry-after"]), 1)
            self.assertIn("queue 6", message)
        finally:
            for s in socks:
                s.close()
        self.wait_idle()

    # --- errors
    def test_errors_name_the_parameter(self):
        self.refused(400, CHAT, param="temperature", messages=user("x"), temperature=9)
        self.refused(400, CHAT, param="temperature", messages=user("x"), temperature=9, stream=True)
        self.refused(400, CHAT, param="logit_bias", messages=user("x"), logit_bias={"99999": 1})
        self.refused(404, CHAT, code="model_not_found", messages=user("x"), model="other")
        self.refused(400, TEXT, param="prompt", prompt=[1, 99999])
        self.refused(400, TEXT, param="ignore_eos", prompt="x", ignore_eos="yes")
        self.refused(400, CHAT, code="context_length_exceeded", param="messages", messages=user("word " * 600))
        self.refused(415, CHAT, headers={"Content-Type": "text/plain"}, messages=user("x"))
        self.assertEqual(call(self.port, "GET", CHAT)[0], 405)
        self.assertEqual(call(self.port, "GET", "/nothing")[0], 404)
        self.assertEqual(call(self.port, "GET", "/v1/models/none")[0], 404)
        self.assertEqual(call(self.port, "POST", CHAT, b"{")[0], 400)

    def test_max_tokens_beyond_the_window_is_cut_and_says_length(self):
        a = self.chat(max_tokens=100000, ignore_eos=True)
        self.assertEqual(a["usage"]["total_tokens"], 512)
        self.assertEqual(a["choices"][0]["finish_reason"], "length")

    def test_request_ids_come_back_or_are_made(self):
        self.assertEqual(call(self.port, "GET", "/health", headers={"X-Request-Id": "abc-1"})[1]["x-request-id"], "abc-1")
        self.assertEqual(len(call(self.port, "GET", "/health")[1]["x-request-id"]), 32)

    # --- the rest
    def test_models_tokenize_and_detokenize(self):
        listed = json.loads(call(self.port, "GET", "/v1/models")[2])
        self.assertEqual([m["id"] for m in listed["data"]], ["tiny", "tiny-bert"])
        self.assertEqual(json.loads(call(self.port, "GET", "/v1/models/tiny")[2])["max_model_len"], 512)
        for text in ("hello 你好", "x" * 40000):  # the second goes to a worker
            tokens = self.post("/tokenize", prompt=text)[2]
            self.assertEqual(tokens["count"], len(tokens["tokens"]))
            self.assertEqual(self.post("/detokenize", tokens=tokens["tokens"])[2]["prompt"], text)

    def test_embeddings_are_unit_vectors_in_both_encodings(self):
        status, _, a = self.post("/v1/embeddings", model="tiny-bert", input=["one", "two"])
        self.assertEqual(status, 200, a)
        vector = a["data"][1]["embedding"]
        self.assertAlmostEqual(sum(x * x for x in vector), 1, places=4)
        packed = self.post("/v1/embeddings", model="tiny-bert", input="two", encoding_format="base64")[2]["data"][0]["embedding"]
        raw = base64.b64decode(packed)
        for got, want in zip(struct.unpack(f"<{len(raw) // 4}f", raw), vector):
            self.assertAlmostEqual(got, want, places=6)
        self.refused(400, "/v1/embeddings", code="context_length_exceeded", model="tiny-bert", input="word " * 500)

    def test_metrics_carry_the_names_dashboards_know(self):
        self.chat()
        m = metrics(self.port)
        for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "prefix_cache_queries_total", "prefix_cache_hits_total",
                     "prompt_tokens_total", "generation_tokens_total", "request_success_total", "time_to_first_token_seconds_count",
                     "inter_token_latency_seconds_count", "e2e_request_latency_seconds_count", "num_preemptions_total", "gpu_cache_usage_perc",
                     "cache_config_info", "external_prefix_cache_queries_total", "external_prefix_cache_hits_total", "corrupted_requests_total",
                     "admission_rejections_total", "spec_decode_num_drafts_total", "spec_decode_num_draft_tokens_total",
                     "spec_decode_num_accepted_tokens_total", "time_per_output_token_seconds_count", "request_queue_time_seconds_count",
                     "request_prefill_time_seconds_count", "request_decode_time_seconds_count", "request_inference_time_seconds_count",
                     "iteration_tokens_total_count", "request_prompt_tokens_count", "request_generation_tokens_count",
                     "request_params_n_count", "request_params_max_tokens_count", "request_prefill_kv_computed_tokens_count",
                     "request_num_preemptions_count"):
            self.assertIn("vllm:" + name, m)
        text = call(self.port, "GET", "/metrics")[2].decode()
        self.assertRegex(text, r'vllm:request_success_total\{model_name="tiny",engine="0",finished_reason="length"\} [1-9]')
        self.assertGreater(m["vllm:generation_tokens_total"], 0)
        self.wait_metric("deja_engine_step_age_seconds", lambda v: v == 0)  # the last step may still be ending


class Life(unittest.TestCase):
    def test_an_idle_engine_shows_now_and_then_that_it_still_generates(self):
        with Rig() as rig:
            rig.engine(os.path.join(DATA, "tiny-llama-mixed.gguf"), extra=("--probe-idle-ms", "200",))
            before, end = metrics(rig.engine_port)["vllm:generation_tokens_total"], time.time() + 20
            while metrics(rig.engine_port)["vllm:generation_tokens_total"] < before + 2:
                self.assertLess(time.time(), end, "no test generation")
                time.sleep(0.1)
            self.assertEqual(call(rig.engine_port, "GET", "/ready")[0], 200)

    def test_more_choices_than_ever_fit_are_refused_for_good(self):
        with Rig() as rig:
            rig.engine(os.path.join(DATA, "tiny-llama-mixed.gguf"), extra=("--max-num-seqs", "2", "--queue-max", "3", "--served-model-name", "t"))
            body = {"model": "t", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
            self.assertEqual(call(rig.engine_port, "POST", "/v1/chat/completions", dict(body, n=5))[0], 200)
            status, _, answer = call(rig.engine_port, "POST", "/v1/chat/completions", dict(body, n=6))
            self.assertEqual(status, 400, answer)
            self.assertIn("n: 6 choices never fit", json.loads(answer)["error"]["message"])

    def test_an_answer_without_a_limit_ends_at_the_default_one(self):
        with Rig() as rig:
            rig.engine(os.path.join(DATA, "tiny-llama-mixed.gguf"), extra=("--max-tokens-default", "7", "--served-model-name", "t"))
            for more, tokens in (({}, 7), ({"max_tokens": 9}, 9), ({"max_tokens": None}, 7)):
                body = dict({"model": "t", "messages": [{"role": "user", "content": "hi"}], "temperature": 0}, **more)
                status, _, answer = call(rig.engine_port, "POST", "/v1/chat/completions", body)
                answer = json.loads(answer)
                self.assertEqual((status, answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]), (200, tokens, "length"))

    def test_a_client_that_reads_its_stream_late_gets_all_of_it(self):
        """Five megabytes, of which sockets take half: the rest waits for the client, and costs the others nothing."""
        body = {"model": "t", "messages": user("x"), "max_tokens": 400, "ignore_eos": True, "n": 8, "seed": 3, "logprobs": True, "top_logprobs": 20}
        with Rig() as rig:
            p = rig.engine(os.path.join(DATA, "tiny-llama-mixed.gguf"), extra=("--served-model-name", "t"))
            port, late = rig.engine_port, [socket.socket() for _ in range(3)]
            for i, s in enumerate(late):                      # the third one never reads
                text = json.dumps(dict(body, stream=True)).encode()
                s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                s.connect(("127.0.0.1", port))
                s.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (CHAT.encode(), len(text)) + text)
            whole = json.loads(call(port, "POST", CHAT, body, timeout=300)[2])
            end = time.time() + 300
            while metrics(port)["vllm:num_requests_running"] or metrics(port)["vllm:num_requests_waiting"]:
                self.assertLess(time.time(), end)
                time.sleep(0.05)
            for s in late[:2]:
                raw = b""
                s.settimeout(60)
                while not raw.endswith(b"0\r\n\r\n"):
                    piece = s.recv(1 << 20)
                    self.assertTrue(piece, raw[-200:])
                    raw += piece
                said, told = [""] * 8, [0] * 8
                for f in sse(b"\n\n".join(x for x in re.split(rb"\r?\n", raw) if x.startswith(b"data: ")) + b"\n\n"):
                    for c in f["choices"]:
                        said[c["index"]] += c["delta"].get("content") or ""
                        told[c["index"]] += len((c["logprobs"] or {}).get("content") or [])
                self.assertEqual(told, [400] * 8)
                self.assertEqual(said, [c["message"]["content"] for c in whole["choices"]])
            self.assertNotIn("dropped", p.tail(100000))
            for s in late:
                s.close()
            self.assertEqual(call(port, "GET", "/ready")[0], 200)

    def test_sigterm_lets_a_running_answer_end_and_exits_with_0(self):
        with Rig() as rig:
            p = rig.engine(os.path.join(DATA, "tiny-llama-mixed.gguf"), extra=("--served-model-name", "t"))
            got = {}

            def ask():
                got["status"], _, got["raw"] = call(rig.engine_port, "POST", CHAT, {"model": "t", "messages": user("x"), "max_tokens": 400, "ignore_eos": True, "stream": True})

            t = threading.Thread(target=ask)
            t.start()
            while metrics(rig.engine_port).get("vllm:num_requests_running") != 1 and t.is_alive():
                time.sleep(0.002)
            p.kill(signal.SIGTERM)
            t.join(60)
            self.assertEqual(got["status"], 200)
            self.assertEqual(sse(got["raw"])[-1]["choices"][0]["finish_reason"], "length")
            self.assertEqual(p.popen.wait(20), 0)

    def test_a_tiny_pool_preempts_and_the_texts_stay_those_of_lone_runs(self):
        def texts(port, together):
            out = [None] * 6

            def one(i):
                r = call(port, "POST", CHAT, {"model": "t", "messages": user(f"question number {i}"), "max_tokens": 250, "ignore_eos": True, "temperature": 0})
                out[i] = json.loads(r[2])["choices"][0]["message"]["content"]

            threads = [threading.Thread(target=one, args=(i,)) for i in range(6)]
            for t in threads:
                t.start()
                if not together:
                    t.join()
            for t in threads:
                t.join()
            return out

        with Rig() as rig:
            # 384 bytes a token: one full sequence of 384 tokens and a little more
            rig.engine(os.path.join(DATA, "tiny-llama-mixed.gguf"), extra=("--served-model-name", "t", "--max-model-len", "384", "--kv-bytes", "300000"))
            together = texts(rig.engine_port, True)
            preempted = metrics(rig.engine_port)["vllm:num_preemptions_total"]
            self.assertEqual(together, texts(rig.engine_port, False))
            self.assertGreater(preempted, 0)

    def test_wrong_options_and_missing_files_end_with_a_sentence(self):
        tiny = ["--model", os.path.join(DATA, "tiny-llama-f32.gguf")]
        for args, status in ((["--port", "x"], 2), (["--model", "/nowhere.gguf"], 1), ([], 2), (["--check", "/nowhere.gguf"], 1), (["--check", os.path.join(DATA, "tiny-bert.gguf")], 0),
                             ([*tiny, "--calibrate", "x"], 2), ([*tiny, "--gpu-calibration", "x"], 2), ([*tiny, "--calibrate", "/nowhere.txt", "--gpu-calibration", "/nowhere/x"], 1)):
            r = subprocess.run([BIN, "engine", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
            self.assertEqual(r.returncode, status, (args, r.stderr))
            self.assertTrue(r.stderr.strip() or status == 0)


class Templates(unittest.TestCase):
    """Templates that look at what they get; each stands in a copy of the tiny model, in the old one's place."""
    PICKY = ("{% if strftime_now('%Y') == '1970' %}{{ raise_exception('no clock') }}{% endif %}{% for m in messages %}{{ m.role + (m.content or '') }}"
             "{% for c in m.tool_calls or [] %}{% if m.content is none %}{{ 'f' + c.function.arguments }}{% endif %}{% endfor %}{% endfor %}")
    THINKING = "{{ messages[0].content }}{% if enable_thinking | default(true) %} thinks about it for a while{% endif %}"

    def open_with(self, rig, template):
        with open(os.path.join(DATA, "tiny-llama-mixed.gguf"), "rb") as f:
            whole = f.read()
        at = whole.index(b"{% for message in messages %}")
        size = struct.unpack("<Q", whole[at - 8:at])[0]
        template = template.encode() + b"{#" + b" " * (size - len(template) - 4) + b"#}"
        self.assertEqual(len(template), size)
        path = os.path.join(rig.folder, "picky.gguf")
        with open(path, "wb") as f:
            f.write(whole[:at] + template + whole[at + size:])
        rig.engine(path, extra=("--served-model-name", "tiny"))

    def prompt_tokens(self, rig, **fields):
        status, _, raw = call(rig.engine_port, "POST", CHAT, dict({"model": "tiny", "messages": user("hello"), "max_tokens": 1}, **fields))
        self.assertEqual(status, 200, raw)
        return json.loads(raw)["usage"]["prompt_tokens"]

    def test_calls_come_in_the_form_that_the_template_shows_and_the_clock_is_right(self):
        with Rig() as rig:
            self.open_with(rig, self.PICKY)

            def tokens(arguments, content):
                calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}]
                return self.prompt_tokens(rig, messages=user("hello") + [{"role": "assistant", "content": content, "tool_calls": calls},
                                                                         {"role": "tool", "tool_call_id": "c1", "content": "12"}])
            for content in (None, ""):
                self.assertGreater(tokens('{"a": 1, "bcd": "efg"}', content), tokens("{}", content))

    def test_a_request_sets_variables_of_the_template(self):
        with Rig() as rig:
            self.open_with(rig, self.THINKING)
            usual = self.prompt_tokens(rig)
            self.assertEqual(self.prompt_tokens(rig, chat_template_kwargs={"enable_thinking": True}), usual)
            self.assertLess(self.prompt_tokens(rig, chat_template_kwargs={"enable_thinking": False}), usual)
            self.assertEqual(self.prompt_tokens(rig, chat_template_kwargs={"messages": [], "tools": 7}), usual)
            status, _, raw = call(rig.engine_port, "POST", CHAT, {"model": "tiny", "messages": user("hi"), "chat_template_kwargs": "no"})
            self.assertEqual(status, 400)
            self.assertIn("chat_template_kwargs", json.loads(raw)["error"]["message"])


class RealModel(unittest.TestCase):
    def test_smollm2_answers_a_chat_with_the_reference_prompt_ids(self):
        path = model(SMOLLM2)
        if not path:
            self.skipTest("SmolLM2 is not in the model cache")
        with open(os.path.join(DATA, "reference_smollm2.jsonl"), encoding="utf8") as f:
            cases = [json.loads(x) for x in f]
        with Rig() as rig:
            rig.engine(path, extra=("--served-model-name", "smol", "--max-model-len", "1024"))
            for case in cases:
                body = {"model": "smol", "messages": case["messages"], "max_tokens": 4, "temperature": 0, "logprobs": True, "top_logprobs": 5}
                status, _, raw = call(rig.engine_port, "POST", CHAT, body, timeout=300)
                self.assertEqual(status, 200, raw)
                a = json.loads(raw)
                self.assertEqual(a["usage"]["prompt_tokens"], len(case["prompt_ids"]))
                ids = {"model": "smol", "prompt": case["prompt_ids"], "max_tokens": 4, "temperature": 0}
                b = json.loads(call(rig.engine_port, "POST", TEXT, ids, timeout=300)[2])
                self.assertEqual(b["choices"][0]["text"], a["choices"][0]["message"]["content"])
                best = a["choices"][0]["logprobs"]["content"][0]["logprob"]
                self.assertAlmostEqual(best, case["top5"][0][1], delta=0.3)


if __name__ == "__main__":
    unittest.main()
