"""Goal: every case of the case files holds against the whole system as users run it: gateway in front of our engine (http_api), gateway in front of a scripted upstream (sse, cache_keys), and the loader (gguf_bad). Method: tests/cases/run_cases.py as a
black box; one unittest a file, its output shown when a case fails."""
import os
import subprocess
import sys
import unittest

from tests.integration.rig import BIN, DATA, MINILM, ROOT, Rig, call, free_port, model

RUNNER = os.path.join(ROOT, "tests", "cases", "run_cases.py")


def run(*args, seconds=540):
    r = subprocess.run([sys.executable, RUNNER, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds, check=False)
    text = r.stdout.decode("utf8", "replace")
    bad = [x for x in text.splitlines() if not x.startswith("PASS")]
    return r.returncode, "\n".join(bad[-60:])


class Cases(unittest.TestCase):
    maxDiff = None

    def check(self, *args):
        status, bad = run(*args)
        self.assertEqual(status, 0, bad)

    def test_http_api_cases_through_gateway_and_engine(self):
        chat, embed = os.path.join(DATA, "tiny-llama-mixed.gguf"), os.path.join(DATA, "tiny-bert.gguf")
        with Rig() as rig:
            rig.redis()
            rig.engine(chat, embed)
            rig.gateway("--engine-url", f"http://127.0.0.1:{rig.engine_port}", "--redis", rig.redis_url, "--embed-model", embed)
            names = self.model_names(rig.port)
            self.check("http", "--base", f"http://127.0.0.1:{rig.port}", "--model", names[0], "--embed-model", names[-1],
                       os.path.join(DATA, "http_api.jsonl"))

    @staticmethod
    def model_names(port):
        import json
        return [m["id"] for m in json.loads(call(port, "GET", "/v1/models")[2])["data"]]

    def against_upstream(self, what, file, *more):
        with Rig() as rig:
            rig.redis()
            upstream = free_port()
            embed = model(MINILM) or os.path.join(DATA, "tiny-bert.gguf")
            rig.gateway("--upstream", f"http://127.0.0.1:{upstream}/v1", "--redis", rig.redis_url, "--embed-model", embed, ready=False)
            self.check(what, "--base", f"http://127.0.0.1:{rig.port}", "--upstream-port", str(upstream), "--model", "m", "--model2", "m2",
                       *more, os.path.join(DATA, file))

    def test_stream_cases_with_a_scripted_upstream(self):
        self.against_upstream("sse", "sse.jsonl")

    def test_cache_key_cases_with_a_scripted_upstream(self):
        self.against_upstream("cache", "cache_keys.jsonl")

    def test_bad_model_files_are_refused_and_good_ones_load(self):
        self.check("gguf", "--loader", f"{BIN} engine --check {{}}", os.path.join(DATA, "gguf_bad.jsonl"))


if __name__ == "__main__":
    unittest.main()
