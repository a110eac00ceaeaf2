#!/usr/bin/env python3
"""Writes the expected results that the unit tests of engine/text compare with, made by independent implementations:
  spm        tests/data/tokenizer_spm.jsonl   vocabularies trained here, and the ids that sentencepiece gives

Run by hand when cases are added; the results are committed, so that tests need none of these packages.
Usage: scripts/make_text_cases.py spm     (needs the Python package sentencepiece)
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


if __name__ == "__main__":
    makers = {"spm": spm}
    if len(sys.argv) != 2 or sys.argv[1] not in makers:
        sys.exit(__doc__)
    makers[sys.argv[1]]()
