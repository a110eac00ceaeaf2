#!/usr/bin/env python3
"""Writes tests/data/reference_tiny.jsonl: what the numpy forward pass says about the tiny random decoders, in float64.

    tests/reference/make_reference.py             (needs numpy; the outcome is committed, so tests do not)

A line: file, context (positions asked for), LoRA adapter and its scale, ids, rows, and for each row its five likeliest tokens with log-probabilities and every
seventh logit."""
import json
import os
import sys

import numpy as np

from forward import Decoder, log_softmax
from gguf_read import Gguf

DATA = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data")
IDS = [5, 17, 200, 41, 41, 3, 99, 250, 1, 77, 64, 33, 128, 9, 12, 180, 270, 31, 2, 66, 140]
ROWS, STRIDE = [0, 6, 13, 20], 7
CASES = [("tiny-llama-f32",), ("tiny-llama-mixed",), ("tiny-qwen2-k",), ("tiny-qwen3",), ("tiny-gemma2",), ("tiny-gemma3",), ("tiny-mixtral",), ("tiny-qwen2moe",),
         ("tiny-qwen3moe",), ("tiny-olmoe",),
         ("tiny-rope-yarn",), ("tiny-rope-factors",), ("tiny-rope-long",), ("tiny-rope-long", 64),
         ("tiny-llama-f32", 0, "tiny-lora-a", 1.0), ("tiny-llama-f32", 0, "tiny-lora-b", 0.5), ("tiny-gemma3", 0, "tiny-lora-gemma3", 1.0),
         ("tiny-llama-mixed", 0, "tiny-lora-output", -1.0), ("tiny-mixtral", 0, "tiny-lora-mixtral", 1.0)]


def main():
    with open(os.path.join(DATA, "reference_tiny.jsonl"), "w", encoding="utf8") as f:
        for file, context, lora, scale in ((c + (0, "", 1.0)[len(c) - 1:]) for c in CASES):
            d = Decoder(Gguf(os.path.join(DATA, file + ".gguf"), np.float64), context or None)
            if lora:
                d.merge(Gguf(os.path.join(DATA, lora + ".gguf"), np.float64), scale)
            logits = d.logits(IDS, ROWS)
            logprobs = log_softmax(logits)
            top = [[[int(t), round(float(p[t]), 5)] for t in np.argsort(-p)[:5]] for p in logprobs]
            row = {"file": file + ".gguf", "context": context, "lora": lora and lora + ".gguf", "scale": scale, "ids": IDS, "rows": ROWS, "top5": top, "stride": STRIDE,
                   "logits": [[float(f"{v:.6g}") for v in x[::STRIDE]] for x in logits]}
            f.write(json.dumps(row) + "\n")
            print(f"{file}: largest logit {np.abs(logits).max():.3g}", file=sys.stderr)


if __name__ == "__main__":
    main()
