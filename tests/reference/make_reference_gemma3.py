#!/usr/bin/env python3
"""Writes tests/data/reference_gemma3.jsonl: what the numpy forward pass says about the real Gemma-3-270M, in float32.

    tests/reference/make_reference_gemma3.py FILE.gguf        (needs numpy and some minutes; the outcome is committed)

Lines with "prompt": its ids, the five likeliest next tokens with log-probabilities, and 24 greedy tokens.
The last line: the ids of a longer text (the FAQ of tests/data, over the 512-token window) and the log-probability of each of its
tokens but the first."""
import json
import os
import sys

import numpy as np

from forward import Decoder, log_softmax
from gguf_read import Gguf

DATA = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data")
PROMPTS = ["The capital of France is", "Question: How do I return an item that I bought last week?\nAnswer:",
           "\u4fe1\u7528\u5361\u4e22\u4e86\u600e\u4e48\u529e\uff1f\n\u7b54\uff1a", "def fibonacci(n):\n    if n <"]
GREEDY, TEXT_TOKENS, ROWS_AT_ONCE = 24, 720, 48


def tokenise(g, text):
    """SentencePiece BPE: merge the neighbours that make the best-scored piece until none do; the leftmost first."""
    id_of = {t: i for i, t in enumerate(g.key["tokenizer.ggml.tokens"])}
    score, parts = g.key["tokenizer.ggml.scores"], list(text.replace(" ", "\u2581"))
    while True:
        best = max(((score[id_of[a + b]], -i) for i, (a, b) in enumerate(zip(parts, parts[1:])) if a + b in id_of), default=None)
        if best is None:
            break
        i = -best[1]
        parts[i:i + 2] = [parts[i] + parts[i + 1]]
    ids = [g.key["tokenizer.ggml.bos_token_id"]]
    for p in parts:
        ids += [id_of[p]] if p in id_of else [id_of[f"<0x{b:02X}>"] for b in p.encode()]
    return ids


def faq():
    for name in ("faq_en.jsonl", "faq_zh.jsonl"):
        with open(os.path.join(DATA, name), encoding="utf8") as f:
            for line in list(f)[:20 if name == "faq_en.jsonl" else 8]:
                row = json.loads(line)
                yield row["q"] + "\n" + row["answer"] + "\n"


def prompt_line(g, d, text):
    ids = tokenise(g, text)
    p = log_softmax(d.logits(ids, [-1]))[0]
    top = [[int(t), round(float(p[t]), 4)] for t in np.argsort(-p)[:5]]
    greedy = []
    while len(greedy) < GREEDY:
        greedy.append(int(np.argmax(d.logits(ids + greedy, [-1])[0])))
    return {"prompt": text, "prompt_ids": ids, "top5": top, "greedy_ids": greedy}


def main():
    g = Gguf(sys.argv[1])
    d = Decoder(g)
    with open(os.path.join(DATA, "reference_gemma3.jsonl"), "w", encoding="utf8") as f:
        for text in PROMPTS:
            line = prompt_line(g, d, text)
            print(text, "->", "".join(g.key["tokenizer.ggml.tokens"][t] for t in line["greedy_ids"]), file=sys.stderr)
            f.write(json.dumps(line) + "\n")
        ids = [g.key["tokenizer.ggml.bos_token_id"]]
        for piece in faq():
            ids += tokenise(g, piece)[1:]
        ids = ids[:TEXT_TOKENS]
        hidden, said = d.hidden(ids), []
        for at in range(0, len(ids) - 1, ROWS_AT_ONCE):
            p = log_softmax(d.head(hidden[at:at + ROWS_AT_ONCE]))
            said += [round(float(x[t]), 4) for x, t in zip(p, ids[at + 1:])]
        print(f"{len(ids)} tokens, perplexity {np.exp(-np.mean(said)):.4f}", file=sys.stderr)
        f.write(json.dumps({"ids": ids, "logprobs": said}) + "\n")


if __name__ == "__main__":
    main()
