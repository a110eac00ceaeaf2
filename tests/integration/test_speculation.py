"""Goal: guessing ahead changes speed and never text. Method: the real engine with a tiny model, once without guesses and once with as many
as possible: from repeats, from the request's prediction, and from a draft model that is the model itself, and so always right; as chains
and as trees."""
import json
import os
import subprocess
import unittest

from tests.integration.rig import BIN, DATA, Rig, call

TINY = os.path.join(DATA, "tiny-llama-mixed.gguf")


def answers(config, **fields):
    with Rig() as rig:
        rig.engine(TINY, extra=("--served-model-name", "tiny", "--max-num-seqs", "4", "--speculative-config", config))
        out = []
        for prompt in ("the shop opens at nine the shop opens at", "abc abc abc abc abc", "q"):
            for temperature in (0, 1):
                status, _, raw = call(rig.engine_port, "POST", "/v1/completions", dict(
                    {"model": "tiny", "prompt": prompt, "max_tokens": 60, "temperature": temperature, "seed": 7, "n": 2, "logprobs": 2}, **fields))
                assert status == 200, raw
                out.append(json.loads(raw))
        out[0]["metrics"] = call(rig.engine_port, "GET", "/metrics")[2].decode()
        return out


def said(replies):
    return [(c["text"], c["finish_reason"], c["logprobs"]) for r in replies for c in r["choices"]]


def checked(replies):
    details = [r["usage"].get("completion_tokens_details", {}) for r in replies]
    return (sum(d.get("accepted_prediction_tokens", 0) for d in details), sum(d.get("rejected_prediction_tokens", 0) for d in details))


def counted(replies, name, stem=None):
    line = f"{stem or 'deja_engine_' + name}_total{{"
    return sum(float(x.rsplit(" ", 1)[1]) for x in replies[0]["metrics"].splitlines() if x.startswith(line))


class Speculation(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.plain = answers("off")

    def same(self, replies):
        self.assertEqual(said(self.plain), said(replies))
        return checked(replies)

    def test_without_guesses_nothing_is_counted(self):
        self.assertEqual(checked(self.plain), (0, 0))

    def test_repeats_are_guessed_and_the_text_stays(self):
        accepted, rejected = self.same(answers('{"method":"ngram","num_speculative_tokens":7,"always":true}'))
        self.assertGreater(accepted + rejected, 0)

    def test_a_prediction_that_comes_true_is_accepted(self):
        text = self.plain[0]["choices"][0]["text"]
        accepted, _ = self.same(answers('{"num_speculative_tokens":7,"always":true}', prediction={"type": "content", "content": text}))
        self.assertGreater(accepted, 10)

    def test_a_draft_model_that_is_the_model_is_always_right(self):
        replies = answers('{"method":"draft_model","model":"%s","num_speculative_tokens":5,"always":true}' % TINY)
        self.same(replies)
        accepted, rejected = checked(replies[::2])   # the greedy ones; at temperature 1 the likeliest token is often not the one drawn
        self.assertGreater(accepted, 100)
        self.assertLess(rejected, 6)   # what was guessed past an end is not said

    def test_trees_keep_text_log_probabilities_and_ends(self):
        text = self.plain[2]["choices"][0]["text"]
        ngram = '{"method":"ngram","num_speculative_tokens":6,"branches":3,"always":true}'
        draft = '{"method":"draft_model","model":"%s","num_speculative_tokens":4,"branches":3,"always":true}' % TINY
        for config in (ngram, draft):
            replies = answers(config, prediction={"type": "content", "content": text})
            accepted, rejected = self.same(replies)
            self.assertGreater(accepted, 10)
            self.assertGreater(rejected, accepted)   # most of a tree is never said
            sums = {source: [counted(replies, f"{source}_{kind}_tokens") for kind in ("draft", "accepted")] for source in ("text", "expected", "model", "form")}
            self.assertEqual(sum(s[0] for s in sums.values()), counted(replies, "draft_tokens", "vllm:spec_decode_num_draft_tokens"))
            self.assertEqual(sum(s[1] for s in sums.values()), counted(replies, "accepted_tokens", "vllm:spec_decode_num_accepted_tokens"))
            self.assertEqual([accepted + rejected, accepted], [sum(s[i] for s in sums.values()) for i in (0, 1)])   # of both choices
            self.assertGreater(sums["model"][1] if config == draft else sums["text"][0], 0)

    def test_trees_keep_penalties_stop_strings_and_forms(self):
        word = self.plain[0]["choices"][0]["text"][20:24]
        schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "sizes": {"type": "array", "items": {"type": "integer"},
                  "maxItems": 6}}, "required": ["name", "sizes"], "additionalProperties": False}
        for fields in ({"presence_penalty": 0.6, "frequency_penalty": 0.4, "repetition_penalty": 1.2, "logit_bias": {"40": 3}}, {"stop": [word]},
                       {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}):
            plain = answers("off", **fields)
            for config in ('{"num_speculative_tokens":8,"branches":3,"always":true}',
                           '{"method":"draft_model","model":"%s","num_speculative_tokens":4,"branches":2,"always":true}' % TINY):
                trees = answers(config, **fields)
                self.assertEqual(said(plain), said(trees))
                if "draft_model" in config:
                    self.assertGreater(checked(trees)[0], 0)

    def test_the_controller_keeps_the_text_too(self):
        self.same(answers('{"method":"draft_model","model":"%s"}' % TINY))
        self.same(answers('{"method":"ngram"}'))
        self.same(answers('{"method":"ngram","branches":3}'))

    def test_a_wrong_configuration_says_what_would_be_right(self):
        for config, words in (("{", "speculative_config"), ('{"method":"medusa"}', "ngram or draft_model"), ('{"k":3}', "num_speculative_tokens"),
                              ('{"num_speculative_tokens":16}', "1 to 15"), ('{"branches":4}', "1 to 3"), ('{"method":"draft_model"}', "needs model"),
                              ('{"method":"draft_model","model":"/nowhere.gguf"}', "/nowhere.gguf")):
            r = subprocess.run([BIN, "engine", "--model", TINY, "--port", "0", "--speculative-config", config], capture_output=True, text=True,
                               timeout=60, check=False)
            self.assertNotEqual(r.returncode, 0)
            self.assertIn(words, r.stderr)

    def test_a_prediction_of_the_wrong_form_is_refused(self):
        with Rig() as rig:
            rig.engine(TINY, extra=("--served-model-name", "tiny"))
            for bad in ("text", {"type": "other", "content": "x"}, {"type": "content"}):
                status, _, raw = call(rig.engine_port, "POST", "/v1/completions", {"model": "tiny", "prompt": "x", "prediction": bad, "max_tokens": 2})
                self.assertEqual(status, 400, raw)


if __name__ == "__main__":
    unittest.main()
