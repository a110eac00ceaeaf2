#!/usr/bin/env python3
"""Writes the expected results that the unit tests of engine/text compare with, made by independent implementations:
  spm        tests/data/tokenizer_spm.jsonl     vocabularies trained here, and the ids that sentencepiece gives
  gemma      lines of tests/data/tokenizer.jsonl  the ids that sentencepiece gives with the pieces of a GGUF file
  words      tests/data/tokenizer_words.jsonl   how a regular expression engine cuts texts
  templates  tests/data/template_renders.jsonl  conversations, and what Jinja2 makes of them with tests/data/templates/*.jinja

Run by hand when cases are added; the results are committed, so that tests need none of these packages.
Usage: scripts/make_text_cases.py spm|words|templates|gemma FILE.gguf    (need the Python packages sentencepiece, regex, jinja2)
"""
import io
import json
import os
import random
import struct
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DATA = os.path.join(ROOT, "tests", "data")


def data_lines(name):
    with open(os.path.join(DATA, name), encoding="utf8") as f:
        return [json.loads(x) for x in f if x.strip()]


def write_lines(name, rows):
    with open(os.path.join(DATA, name), "w", encoding="utf8") as f:
        for row in rows:
            f.write(json.dumps(row, ensure_ascii=False) + "\n")


# --- text that is hard to cut
SAMPLES = [
    "", " ", "  ", "a", " a", "a ", "  a  b   c ", "\n", "\n\n\n", " \n \n", "\r\n\r\n x", "\t\tx\ty", "Hello, world!", "I'm sure they'll say DON'T",
    "x=1; y = foo_bar(x, 'a')  # note\n    return x\n", "The quick brown fox jumps over the lazy dog.", "1234567 3.14 1,000 0x1F 2026-01-31",
    "你好，世界！今天天气怎么样？", "中文 and English 混排 text", "如何重置密码？How do I reset my password?", "한국어 日本語 ไทย Ελληνικά עברית العربية",
    "👨‍👩‍👧‍👦 👍🏿 🏳️‍🌈 🇨🇳", "e\u0301 é ﬁ ½ Ⅷ ٣ ²", "\u00a0x\u3000y\u2028z", "a\u200db\ufeffc", "<s> </s> <0x41> <unk> [INST]", "naïve façade straße İ ſ K",
    "..." * 5, "a" * 70, "ab" * 60, "the" * 40, "é" * 40 + "中" * 40, "---\n***\n___", "\x00\x01\x7f", "https://a.example/b?c=d&e=%20#f",
]


def random_texts(seed, n, alphabet, longest):
    r = random.Random(seed)
    return ["".join(r.choice(alphabet) for _ in range(r.randrange(1, longest))) for _ in range(n)]


# --- SentencePiece
def train(corpus, **options):
    import sentencepiece
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(corpus), model_writer=out, model_type="bpe", character_coverage=0.995,
                                             normalization_rule_name="identity", minloglevel=2, num_threads=1, **options)
    return sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())


def type_of(sp, i):  # as in tokenizer.ggml.token_type
    tests = ((2, sp.is_unknown), (3, sp.is_control), (5, sp.is_unused), (6, sp.is_byte))
    return next((t for t, holds in tests if holds(i)), 1)


def spm():
    corpus = [x["q"] + " " + x["answer"] for n in ("faq_en.jsonl", "faq_zh.jsonl") for x in data_lines(n)]
    with open(os.path.join(ROOT, "engine", "text", "vocab.c"), encoding="utf8") as f:
        corpus += f.read().splitlines()
    user = ["\n", "\n\n", "\n\n\n", "\u2581\u2581", "\u2581\u2581\u2581\u2581", "[INST]", "的的"]
    kinds = {
        "llama": dict(vocab_size=700, byte_fallback=True, add_dummy_prefix=True, remove_extra_whitespaces=False),
        "gemma": dict(vocab_size=760, byte_fallback=True, add_dummy_prefix=False, remove_extra_whitespaces=False, split_digits=True,
                      split_by_whitespace=False, user_defined_symbols=user),
        "tidy": dict(vocab_size=420, byte_fallback=False, add_dummy_prefix=True, remove_extra_whitespaces=True),
    }
    rows = []
    for name, options in kinds.items():
        sp = train(corpus, **options)
        pieces = []
        for i in range(sp.get_piece_size()):
            text, kind = sp.id_to_piece(i), type_of(sp, i)
            if text in options.get("user_defined_symbols", ()):
                text, kind = text.replace("\u2581", " "), 4
            pieces.append([text, round(sp.get_score(i), 4), kind])
        rows.append({"vocabulary": name, "add_space_prefix": options["add_dummy_prefix"], "remove_extra_whitespaces": options["remove_extra_whitespaces"],
                     "pieces": pieces})
        texts = SAMPLES + random_texts(len(name), 25, "the in ou 密码的 \n  1é", 60) + random_texts(7, 3, "anthe 的是在 ", 400)
        rows += [{"text": t, "ids": sp.encode(t)} for t in texts]
    write_lines("tokenizer_spm.jsonl", rows)


# --- a SentencePiece model from the pieces in a GGUF file
def gguf_metadata(path):
    """the key-value part of a GGUF file (version 3)"""
    formats = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
    with open(path, "rb") as f:
        def number(form):
            return struct.unpack("<" + form, f.read(struct.calcsize(form)))[0]

        def text():
            return f.read(number("Q"))

        def value(kind):
            if kind == 8:
                return text()
            if kind != 9:
                return number(formats[kind])
            kind, n = number("i"), number("Q")
            if kind == 8:
                return [text() for _ in range(n)]
            return list(struct.unpack(f"<{n}{formats[kind]}", f.read(n * struct.calcsize(formats[kind]))))
        assert f.read(4) == b"GGUF" and number("I") == 3
        number("q")
        return {text().decode(): value(number("i")) for _ in range(number("q"))}


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(number, value):
    """one field of a protocol buffer: bytes, a float or an integer"""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3) + varint(value)


def gemma(path):
    import sentencepiece
    meta = gguf_metadata(path)
    tokens, kinds, scores = (meta["tokenizer.ggml." + k] for k in ("tokens", "token_type", "scores"))
    unknown = meta["tokenizer.ggml.unknown_token_id"]
    pieces = []
    for i, (token, kind, score) in enumerate(zip(tokens, kinds, scores)):
        if kind == 4:
            token = token.replace(b" ", "\u2581".encode())
        pieces.append(field(1, field(1, token) + field(2, float(score)) + field(3, 2 if i == unknown else kind)))
    ids = {40: unknown, 41: meta["tokenizer.ggml.bos_token_id"], 42: meta["tokenizer.ggml.eos_token_id"], 43: meta["tokenizer.ggml.padding_token_id"]}
    trainer = field(3, 2) + field(4, len(tokens)) + field(35, 1) + b"".join(field(k, v) for k, v in ids.items())
    trainer += b"".join(field(k + 5, tokens[v]) for k, v in ids.items())
    normaliser = field(1, b"identity") + field(3, int(meta["tokenizer.ggml.add_space_prefix"])) + field(4, 0) + field(5, 1)
    sp = sentencepiece.SentencePieceProcessor(model_proto=b"".join(pieces) + field(2, trainer) + field(3, normaliser))
    rows = [x for x in data_lines("tokenizer.jsonl") if x["family"] != "gemma3"]
    texts = SAMPLES + random_texts(3, 20, "the in ou 密码的 \n  1é\t<b>", 80)
    for i, text in enumerate(texts):
        found = sp.encode(text)
        rows.append({"id": f"tok-gemma3-{i}", "family": "gemma3", "text": text, "parse_special": False, "ids": found, "n": len(found)})
    write_lines("tokenizer.jsonl", rows)


# --- words
WORDS = [
    "Hello, world!", " leading", " two  three   four ", "tab\there\n\nnew\r\nline", "I'll they're WE'VE don't CAN'T it'S x'\u017f 'tis don\u2019t",
    "abc123def 4567890 12345 x1 1234567 1234x 12_3 \u0661\u0662\u0663\u0664", "\uff11\uff12 \uff12\uff10\uff12\uff15\u5e74", "\u4f60\u597d\uff0c\u4e16\u754c\uff01\u4eca\u5929 \u2026\u201c\u201d\u3000x",
    "\uc548\ub155\ud558\uc138\uc694 \ubb34\uc5c7\uc744", "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928", "cafe\u0301 cre\u0300me \u0301x", "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e8\U0001f1f3\u2764\ufe0f",
    "a\u00a0b\u2003c\u0085d\u2028e\u3000f", "\x01\x07\x1b[31mred", "camelCase ALLCAPS XMLHttpRequest iPhone \u4e2dAb", "path/to/file.c //comment\n/x", "def f(x):\n    return x**2  # ok\n\n",
    "{\"a\": [1, 2]}", "!!!???...---===___ $+<=>^`|~ \u00a3\u20ac", "\u0391\u0392 \u03b1\u03b2 \u0401\u043b\u043a\u0430 \u01c5abc", "   ", "\n\n\n  \n x", "  \r\n  y", "a  1  2", "$100 -5 +3.14", "x=1;y=-2",
    "\u02b0\u02b1 \u2167\u2168 \u00bd \u00b2", "1st 2nd's 3rd'll A'sB'LLc", "\u3042\u3044\u3046 \u30ab\u30bf\u30ab\u30ca\u6f22\u5b57ABC \u3105\u3106", "\u0e33\u0e34x \u0903y", "#a @b .c (d) !e_f", "   x", "\tx \t", "x \n\t y\n ",
    "\ufb01 \u212a \u0130 \U0001d400 \U00010400 \U0001e900", "\ue000 \u0378 \ufffe", "a b c  d\u0301 e f/\n", " " * 37 + "x", "hello , world . ok?\u0964 (so)|",
]


def words():
    import pretokenizer_patterns as patterns
    r = random.Random(4)
    parts = ["a", "B", "\u00e9", "\u4e2d", "\u3042", "1", "23", " ", "  ", "\n", "\r\n", "\t", ".", ",!", "'s", "'LL", "\u0301", "\u20ac", "_", "/", "\u01c5", "\u02b0", "\u3000", "\u0663", "\uac00", "\x02"]
    texts = WORDS + ["".join(r.choice(parts) for _ in range(r.randrange(4, 14))) for _ in range(40)]
    write_lines("tokenizer_words.jsonl", [{"text": t, "words": {f: patterns.words_of(f, t) for f in patterns.FAMILIES}} for t in texts])


# --- chat templates
CLOCK = 1767225600 + 3661  # the time that strftime_now tells


def template_environment():
    """the environment that chat templates are written for: what the transformers library sets up, with lists that may grow"""
    import datetime
    import jinja2
    import jinja2.sandbox
    env = jinja2.sandbox.SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.TemplateError(message)

    env.filters.update(tojson=tojson, from_json=json.loads)
    env.globals.update(raise_exception=raise_exception, strftime_now=lambda f: datetime.datetime.fromtimestamp(CLOCK, datetime.timezone.utc).strftime(f))
    return env


def message(role, content, **more):
    return {"role": role, "content": content, **more}


def call(n, arguments):
    return {"id": f"call_{n:05}_a", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}


def result(n, content):
    return message("tool", content, tool_call_id=f"call_{n:05}_a", name="get_weather")


TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Weather at a place & time <now>", "return": {"type": "string"}, "parameters": {
            "type": "object", "required": ["city"], "properties": {
                "city": {"type": "string", "description": "the city's name"}, "days": {"type": "integer", "enum": [1, 2, 3]},
                "at": {"type": "object", "properties": {"y": {"type": "number"}, "x": {"type": "number"}}, "required": ["x"]},
                "tags": {"type": "array", "items": {"type": "string"}}, "note": {"type": ["string", "null"]}}}}},
    {"type": "function", "function": {"name": "add", "description": "加法 \"quoted\"\nsecond line", "parameters": {"type": "object", "properties": {}}}},
]


def conversations():
    def user(content):
        return message("user", content)

    def system(content):
        return message("system", content)

    def answer(content, **more):
        return message("assistant", content, **more)

    yield "one", [user("Hi there")]
    yield "system", [system("You are terse.\nSecond line."), user("Hello?"), answer("Yes."), user("  spaced \n\n text  ")]
    yield "empty texts", [system(""), user(""), answer(""), user("x")]
    yield "chinese", [system("你是一个助手。"), user("你好，世界！🧑‍🚀 1+1=?"), answer("等于二。\r\n好"), user("谢谢 <|end|> </s> {{ x }} {% if %}")]
    yield "thinking", [user("q"), answer("<think>\nhmm\n</think>\n\nanswer"), user("again"), answer("<think>more</think>done")]
    yield "tool call", [system("s"), user("weather?"), answer(None, tool_calls=[call(1, {"city": "北京", "days": 2})]), result(1, '{"t": 20.5}'), answer("20.5"),
                        user("thanks")]
    yield "arguments as text", [user("weather?"), answer("let me see", tool_calls=[call(1, '{"city": "Paris", "n": 1.0}')]), result(1, "sunny")]
    yield "two calls", [user("weather?"), answer("", tool_calls=[call(1, {"city": "A", "l": ["a", "b"], "o": {"x": 1.5}, "n": None, "b": True}),
                                                              call(2, {"city": "B"})]), result(1, "one"), result(2, "two"), user("and?")]
    yield "parts", [user([{"type": "text", "text": "part a"}, {"type": "text", "text": "部分"}]), answer([{"type": "text", "text": "ok"}]), user("z")]
    yield "a strange part", [user([{"type": "sound"}])]
    yield "no content", [user("a"), {"role": "assistant"}, user("b")]
    yield "answer last", [user("a"), answer("prefill")]
    yield "developer", [message("developer", "dev text"), user("hi")]
    yield "two systems", [system("a"), user("b"), system("c")]
    yield "long", [system("sys")] + [m for i in range(6) for m in (user(f"question {i}"), answer(f"answer {i}"))] + [user("last")]
    yield "nothing", []


def templates():
    env, rows = template_environment(), []
    folder = os.path.join(DATA, "templates")
    sources = {}
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf8") as f:
            sources[name] = f.read()
    for k, (name, messages) in enumerate(conversations()):
        for tools in (None, TOOLS):
            rows.append({"conversation": name, "messages": messages, "tools": tools})
            for template, source in sources.items():
                prompt = (k + (tools is not None)) % 2 == 0
                row = {"template": template, "add_generation_prompt": prompt}
                try:
                    row["expected"] = env.from_string(source).render(messages=json.loads(json.dumps(messages)), tools=tools, documents=None,
                                                                     add_generation_prompt=prompt, bos_token="<s>", eos_token="</s>")
                except Exception as e:  # whatever Jinja2 refuses, we are to refuse
                    row["error"] = str(e)
                rows.append(row)
    write_lines("template_renders.jsonl", rows)


if __name__ == "__main__":
    makers = {"spm": spm, "words": words, "templates": templates, "gemma": gemma}
    if len(sys.argv) < 2 or sys.argv[1] not in makers:
        sys.exit(__doc__)
    makers[sys.argv[1]](*sys.argv[2:])
