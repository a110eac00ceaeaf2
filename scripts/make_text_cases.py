#!/usr/bin/env python3
"""Writes the expected results that the unit tests of engine/text compare with, made by independent implementations:
  spm        tests/data/tokenizer_spm.jsonl     vocabularies trained here, and the ids that sentencepiece gives
  words      tests/data/tokenizer_words.jsonl   how a regular expression engine cuts texts

Run by hand when cases are added; the results are committed, so that tests need none of these packages.
Usage: scripts/make_text_cases.py spm|words    (need the Python packages sentencepiece and regex)
"""
import io
import json
import os
import random
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


if __name__ == "__main__":
    makers = {"spm": spm, "words": words}
    if len(sys.argv) != 2 or sys.argv[1] not in makers:
        sys.exit(__doc__)
    makers[sys.argv[1]]()
