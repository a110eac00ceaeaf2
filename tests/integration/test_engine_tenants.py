"""Goal: tenants of one gateway never find each other's prefixes in the engine, and a client cannot choose whose it finds. Method: gateway and
engine with two API keys; cached_tokens of the usage tell what was shared."""
import json
import os
import unittest

from tests.integration.rig import DATA, Rig, call

CHAT = "/v1/chat/completions"


class Tenants(unittest.TestCase):
    def cached(self, port, key, question, headers=None):
        text = "the rules of this house, told at length so that they fill many blocks; " * 3 + question
        body = {"model": "t", "max_tokens": 4, "temperature": 0, "messages": [{"role": "user", "content": text}]}
        status, _, raw = call(port, "POST", CHAT, body, dict({"Authorization": "Bearer " + key}, **(headers or {})))
        self.assertEqual(status, 200, raw)
        return json.loads(raw)["usage"]["prompt_tokens_details"]["cached_tokens"]

    def test_prefixes_are_shared_within_a_tenant_only_whatever_a_client_says(self):
        with Rig() as rig:
            keys = os.path.join(rig.folder, "keys")
            with open(keys, "w", encoding="utf8") as f:
                f.write("sk-a tenant-a\nsk-a2 tenant-a\nsk-b tenant-b\n")
            rig.redis()
            rig.engine(os.path.join(DATA, "tiny-llama-mixed.gguf"), extra=("--served-model-name", "t"))
            rig.gateway("--engine-url", f"http://127.0.0.1:{rig.engine_port}", "--redis", rig.redis_url, "--api-keys", keys)
            self.assertEqual(self.cached(rig.port, "sk-a", "one?"), 0)
            self.assertGreater(self.cached(rig.port, "sk-a2", "two?"), 50)
            self.assertEqual(self.cached(rig.port, "sk-b", "three?", {"x-deja-salt": "tenant-a"}), 0)
            self.assertGreater(self.cached(rig.port, "sk-b", "four?"), 50)


if __name__ == "__main__":
    unittest.main()
