"""Goal: answers have the form a request demands, whatever the model says: JSON, a schema, an expression, one of some texts, tool calls; streamed or
not, one choice or several, through the gateway too; what cannot be kept is refused by name and place. Method: the real binaries with a
tiny generated model, whose text is noise without a form; the `openai` client with SmolLM2 and the `jsonschema` package as a second
opinion where both are there."""
import json
import os
import re
import subprocess
import unittest

from tests.integration.rig import DATA, SMOLLM2, Rig, call, model
from tests.integration.test_engine_server import sse, user

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
VENV = os.path.join(os.environ.get("DEJA_VENV", "/nonexistent"), "bin", "python")
PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 10}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
                                           "ok": {"type": "boolean"}}, "required": ["name", "age", "ok"], "additionalProperties": False}
ARGUMENTS = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["n"]}   # short: the context is
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": ARGUMENTS}},
         {"type": "function", "function": {"name": "time"}}]


def schema(of, strict=True, name="s"):
    return {"type": "json_schema", "json_schema": {"name": name, "schema": of, "strict": strict}}


def is_person(v):
    return list(v) == ["name", "age", "ok"] and len(v["name"]) <= 10 and 0 <= v["age"] <= 120 and isinstance(v["ok"], bool)


def joined(chunks, i=0):
    """content, calls and finish of one streamed choice"""
    text, calls, finish = "", {}, None
    for c in (c for x in chunks for c in x["choices"] if c["index"] == i):
        text += c["delta"].get("content") or ""
        finish = c["finish_reason"] or finish
        for t in c["delta"].get("tool_calls", []):
            one = calls.setdefault(t["index"], {"id": "", "name": "", "arguments": ""})
            one["id"] += t.get("id", "")
            one["name"] += t["function"].get("name", "")
            one["arguments"] += t["function"].get("arguments", "")
    return text, [(c["name"], c["arguments"]) for c in calls.values()], finish


class Tiny(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig = Rig()
        cls.rig.engine(os.path.join(DATA, "tiny-llama-mixed.gguf"), extra=("--served-model-name", "tiny", "--max-num-seqs", "4"))
        cls.rig.redis()
        cls.rig.gateway("--engine-url", f"http://127.0.0.1:{cls.rig.engine_port}", "--redis", cls.rig.redis_url)

    @classmethod
    def tearDownClass(cls):
        cls.rig.close()

    def post(self, path=CHAT, port=None, **body):
        body = dict({"model": "tiny", "max_tokens": 300, "temperature": 1, "seed": 1}, **body)
        if path == CHAT:
            body.setdefault("messages", user("hello"))
        status, headers, raw = call(port or self.rig.engine_port, "POST", path, body)
        self.headers = headers
        if body.get("stream"):
            self.assertEqual(status, 200, raw)
            return sse(raw)
        return status, json.loads(raw)

    def choice(self, **body):
        status, answer = self.post(**body)
        self.assertEqual(status, 200, answer)
        return answer["choices"][0]

    def refused(self, *words, param="response_format", **body):
        status, answer = self.post(**body)
        self.assertEqual((status, answer["error"]["param"]), (400, param), answer)
        for w in words:
            self.assertIn(w, answer["error"]["message"])

    def test_a_schema_is_kept_by_every_choice_streamed_or_not(self):
        for seed in range(4):
            status, answer = self.post(response_format=schema(PERSON), n=3, seed=seed)
            self.assertEqual(status, 200, answer)
            chunks = self.post(response_format=schema(PERSON), n=3, seed=seed, stream=True)
            for i, c in enumerate(answer["choices"]):
                self.assertTrue(is_person(json.loads(c["message"]["content"])), c)
                self.assertEqual(c["finish_reason"], "stop")
                self.assertEqual(joined(chunks, i), (c["message"]["content"], [], "stop"))

    def test_json_object_is_json(self):
        for seed in range(4):
            c = self.choice(response_format={"type": "json_object"}, seed=seed, max_tokens=200)
            self.assertTrue(c["message"]["content"].startswith("{"))
            if c["finish_reason"] == "stop":
                self.assertIsInstance(json.loads(c["message"]["content"]), dict)

    def test_an_expression_matches_the_whole_text(self):
        for i, regex in enumerate((r"[0-9]{3}-[A-F]{2,4}", r"(yes|no), \w{1,8}\.", r"[^\s\"]{3,9}", "[\u4e00-\u9fff]{2}")):
            for field in ({"response_format": {"type": "regex", "regex": regex}}, {"guided_regex": regex},
                          {"structured_outputs": {"regex": regex}}):
                c = self.choice(seed=i, **field)
                self.assertEqual(c["finish_reason"], "stop", c)
                self.assertTrue(re.fullmatch(regex, c["message"]["content"], re.A), (regex, c))
        status, answer = self.post(TEXT, prompt="x", guided_regex="[ab]{5}")
        self.assertEqual((status, bool(re.fullmatch("[ab]{5}", answer["choices"][0]["text"]))), (200, True), answer)

    def test_one_of_some_texts_is_chosen(self):
        said = {self.choice(guided_choice=["red", "green", "light blue"], seed=i)["message"]["content"] for i in range(12)}
        self.assertLessEqual(said, {"red", "green", "light blue"})
        self.assertGreater(len(said), 1)

    def test_log_probabilities_are_those_of_the_model_not_of_the_mask(self):
        c = self.choice(guided_choice=["q", "z"], logprobs=True, top_logprobs=3)
        first = c["logprobs"]["content"][0]
        self.assertLess(first["logprob"], -0.5)
        self.assertEqual(len(first["top_logprobs"]), 3)

    def test_max_tokens_cuts_with_length(self):
        c = self.choice(response_format=schema(PERSON), max_tokens=3)
        self.assertEqual(c["finish_reason"], "length")

    def test_what_cannot_be_kept_is_refused_by_name_and_place(self):
        bad = {"type": "object", "properties": {"a": {"type": "array", "items": {"not": {}}}}}
        self.refused("response_format.json_schema.schema.properties.a.items", '"not"', response_format=schema(bad))
        self.refused("unknown keyword \"order\"", response_format=schema({"order": 1}))
        self.refused("nothing can match", response_format=schema({"type": "string", "pattern": "^a{3}$", "format": "date"}))
        self.refused("response_format.regex", "look-ahead", response_format={"type": "regex", "regex": "(?=a)b"})
        self.refused("expected a schema", response_format=schema(None))
        self.refused("guided_json", "\"if\"", guided_json={"if": {}}, param="guided_json")
        endless = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}
        for never, word in (endless, "tools: nothing can match"), ({"type": "array"}, "tools[0].function.parameters: nothing can match"):
            self.refused(word, param="tools", tool_choice="required", tools=[{"type": "function", "function": {"name": "f", "parameters": never}}])
        self.refused("tools[0].function.parameters", "uniqueItems", param="tools", tool_choice="required",
                     tools=[{"type": "function", "function": {"name": "f", "strict": True,
                                                              "parameters": {"type": "object", "properties": {"a": {"uniqueItems": True}}}}}])
        c = self.choice(response_format=schema({"type": "string", "order": 1, "maxLength": 3}, strict=False))
        self.assertLessEqual(len(json.loads(c["message"]["content"])), 3)

    def test_a_call_that_is_required_comes_with_arguments_of_its_schema(self):
        named = {"type": "function", "function": {"name": "weather"}}
        for seed in range(3):
            body = dict(tools=TOOLS, tool_choice=named, parallel_tool_calls=False, seed=seed)
            c = self.choice(**body)
            self.assertEqual((c["finish_reason"], c["message"]["content"], len(c["message"]["tool_calls"])), ("tool_calls", None, 1), c)
            one = c["message"]["tool_calls"][0]
            self.assertEqual((one["type"], one["function"]["name"]), ("function", "weather"))
            self.assertTrue(one["id"].startswith("call_"))
            arguments = json.loads(one["function"]["arguments"])
            self.assertTrue(list(arguments) == ["n"] and 0 <= arguments["n"] <= 99, one)
            text, calls, finish = joined(self.post(stream=True, **body))
            self.assertEqual((text, calls, finish), ("", [("weather", one["function"]["arguments"])], "tool_calls"))
        names = {self.choice(tools=TOOLS, tool_choice="required", seed=i, parallel_tool_calls=False, max_tokens=120)["message"]["tool_calls"][0]
                 ["function"]["name"] for i in range(8)}
        self.assertLessEqual(names, {"weather", "time"})

    def test_tools_that_may_be_called_leave_plain_text_alone(self):
        for choice in ("auto", "none"):
            c = self.choice(tools=TOOLS, tool_choice=choice, max_tokens=40)
            text, calls, finish = joined(self.post(tools=TOOLS, tool_choice=choice, max_tokens=40, stream=True))
            self.assertEqual((text, calls, finish), (c["message"]["content"], [], c["finish_reason"]))
            self.assertNotIn("tool_calls", c["message"])

    def test_calls_and_results_of_earlier_turns_reach_the_prompt(self):
        turns = user("hello") + [
            {"role": "assistant", "content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "time", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "noon"}]
        short = self.post(messages=user("hello"), max_tokens=1)[1]["usage"]["prompt_tokens"]
        long = self.post(messages=turns, max_tokens=1)[1]["usage"]["prompt_tokens"]
        self.assertGreater(long, short + 20)

    def test_the_form_is_part_of_the_gateways_key(self):
        seen = []
        for form in (schema(PERSON), schema(PERSON), schema(dict(PERSON, required=["name", "age"])), {"type": "json_object"}):
            status, answer = self.post(port=self.rig.port, response_format=form, temperature=0, max_tokens=200)
            self.assertEqual(status, 200, answer)
            seen.append((self.headers["x-deja-cache"], answer["choices"][0]["finish_reason"]))
        self.assertEqual([s[0] for s in seen[:3]], ["miss", "exact", "miss"], seen)
        self.assertEqual(seen[3][0], "miss")
        status, answer = self.post(port=self.rig.port, response_format=schema({"not": {}}))
        self.assertEqual((status, answer["error"]["param"]), (400, "response_format"), answer)


CLIENT = r'''
import json, sys, jsonschema, openai
c = openai.OpenAI(base_url=sys.argv[1], api_key="k", max_retries=0, timeout=200)
m = c.models.list().data[0].id
forms = {
    "person": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "born": {"type": "string", "format": "date"}},
               "required": ["name", "born"], "additionalProperties": False},
    "mood": {"type": "object", "properties": {"label": {"enum": ["good", "bad"]}, "score": {"type": "number", "minimum": 0, "maximum": 1}},
             "required": ["label", "score"], "additionalProperties": False},
    "list": {"type": "array", "items": {"$ref": "#/$defs/i"}, "minItems": 1, "maxItems": 3,
             "$defs": {"i": {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 99}, {"type": "null"}]}}},
}
for seed in range(2):
    for name, form in forms.items():
        a = c.chat.completions.create(model=m, messages=[{"role": "user", "content": "Invent a " + name}], temperature=1, seed=seed, max_tokens=90,
                                      response_format={"type": "json_schema", "json_schema": {"name": name, "schema": form, "strict": True}})
        assert a.choices[0].finish_reason == "stop", a
        jsonschema.Draft202012Validator(form, format_checker=jsonschema.FormatChecker()).validate(json.loads(a.choices[0].message.content))
tool = {"type": "function", "function": {"name": "weather", "description": "Weather of a city", "strict": True, "parameters": forms["mood"]}}
ask = [{"role": "user", "content": "How is the weather?"}]
a = c.chat.completions.create(model=m, messages=ask, tools=[tool], tool_choice="required", parallel_tool_calls=False, temperature=0, max_tokens=90)
call = a.choices[0].message.tool_calls[0]
assert a.choices[0].finish_reason == "tool_calls" and call.function.name == "weather", a
jsonschema.validate(json.loads(call.function.arguments), forms["mood"])
s = c.chat.completions.create(model=m, messages=ask, tools=[tool], tool_choice="required", parallel_tool_calls=False, temperature=0, max_tokens=90,
                              stream=True)
pieces = [t for x in s for t in x.choices[0].delta.tool_calls or []]
assert "".join(t.function.arguments or "" for t in pieces) == call.function.arguments, pieces
ask += [a.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
a = c.chat.completions.create(model=m, messages=ask, tools=[tool], tool_choice="none", temperature=0, max_tokens=8)
assert a.choices[0].message.content and not a.choices[0].message.tool_calls, a
print("forms ok")
'''


@unittest.skipUnless(model(SMOLLM2) and os.path.exists(VENV), "SmolLM2 or the openai client is missing (no network?)")
class Real(unittest.TestCase):
    def test_the_openai_client_gets_what_it_demands(self):
        with Rig() as rig:
            rig.engine(model(SMOLLM2), seconds=240)
            r = subprocess.run([VENV, "-c", CLIENT, f"http://127.0.0.1:{rig.engine_port}/v1"], stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, timeout=400, text=True, check=False)
            self.assertIn("forms ok", r.stdout)


if __name__ == "__main__":
    unittest.main()
