#!/usr/bin/env python3
"""Writes a llama (or an olmoe) of a given size with random weights, for measuring speed where no model is at hand: what a pass costs does not
depend on what the weights are. `make_model.py 135m|1b|8b|moe|moe-quarter bf16|q4_0|q8_0 OUT.gguf`. One megabyte of random blocks is repeated; norms are ones. Standard library."""
import os
import random
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
from gguf_write import ALIGNMENT, BF16, BLOCK, F32, I32, Q4_0, Q8_0, STRING, Writer, text  # noqa: E402

SHAPES = {  # embd, ff, layers, heads, kv heads, head dim, vocabulary; of mixtures also experts, experts a token
    "tiny": (64, 192, 2, 4, 2, 16, 300),  # for trying this script
    "135m": (576, 1536, 30, 9, 3, 64, 49152),
    "1b": (2048, 8192, 16, 32, 8, 64, 128256),
    "8b": (4096, 14336, 32, 32, 8, 128, 128256),
    "moe": (2048, 1024, 16, 16, 16, 128, 50304, 64, 8),  # 6.9B parameters, 1.3B active
    "moe-quarter": (2048, 1024, 4, 16, 16, 128, 50304, 64, 8),
}
KINDS = {"bf16": BF16, "q4_0": Q4_0, "q8_0": Q8_0}


def blocks(kind, n_in):
    """About a megabyte of blocks whose values have variance 1 / n_in."""
    if kind == BF16:  # either sign, 1 to 2 times the power of two below 1 / sqrt(n_in)
        top = struct.unpack("<I", struct.pack("<f", n_in ** -0.5))[0] >> 16 & 0x7f80
        both = bytearray(1 << 20)
        both[0::2] = os.urandom(1 << 19).translate(bytes(top & 255 | i & 127 for i in range(256)))
        both[1::2] = os.urandom(1 << 19).translate(bytes(top >> 8 | i & 128 for i in range(256)))
        return bytes(both)
    size = BLOCK[kind][1]
    scale = struct.pack("<e", (3 / n_in) ** 0.5 / (8 if kind == Q4_0 else 127))
    return b"".join(scale + os.urandom(size - 2) for _ in range((1 << 20) // size))


def tensors(shape, kind):
    """name, dims, type, bytes it repeats"""
    embd, ff, layers, heads, kv, hd, vocab = shape[:7]
    n_experts = shape[7] if len(shape) > 7 else 0
    one = struct.pack("<f", 1.0)
    made = {}

    def matrix(name, n_in, n_out, *n):
        made.setdefault(n_in, blocks(kind, n_in))
        return name, [n_in, n_out, *n], kind, made[n_in]

    yield matrix("token_embd.weight", embd, vocab)
    yield "output_norm.weight", [embd], F32, one
    if n_experts:
        yield matrix("output.weight", embd, vocab)
    for i in range(layers):
        yield f"blk.{i}.attn_norm.weight", [embd], F32, one
        yield f"blk.{i}.ffn_norm.weight", [embd], F32, one
        for name, n_in, n_out in (("attn_q", embd, heads * hd), ("attn_k", embd, kv * hd), ("attn_v", embd, kv * hd),
                                  ("attn_output", heads * hd, embd)):
            yield matrix(f"blk.{i}.{name}.weight", n_in, n_out)
        for name, n_in, n_out in (("ffn_gate", embd, ff), ("ffn_up", embd, ff), ("ffn_down", ff, embd)):
            yield matrix(f"blk.{i}.{name}_exps.weight", n_in, n_out, n_experts) if n_experts else matrix(f"blk.{i}.{name}.weight", n_in, n_out)
        if n_experts:  # each router row another direction: rows go to all experts alike
            yield f"blk.{i}.ffn_gate_inp.weight", [embd, n_experts], F32, b"".join(
                struct.pack("<f", random.gauss(0, 4 / embd ** 0.5)) for _ in range(embd * n_experts))
            yield f"blk.{i}.attn_q_norm.weight", [heads * hd], F32, one
            yield f"blk.{i}.attn_k_norm.weight", [kv * hd], F32, one


def n_bytes(dims, kind):
    elements = 1
    for d in dims:
        elements *= d
    per, size = BLOCK[kind]
    return elements // per * size


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in SHAPES or sys.argv[2] not in KINDS:
        sys.exit("usage: make_model.py tiny|135m|1b|8b|moe|moe-quarter bf16|q4_0|q8_0 OUT.gguf")
    shape = SHAPES[sys.argv[1]]
    embd, ff, layers, heads, kv, hd, vocab = shape[:7]
    arch = "olmoe" if len(shape) > 7 else "llama"
    w = Writer()
    for name, v in (("general.architecture", arch), ("general.name", f"random {sys.argv[1]} {sys.argv[2]}"), (arch + ".block_count", layers),
                    (arch + ".context_length", 8192), (arch + ".embedding_length", embd), (arch + ".feed_forward_length", ff),
                    (arch + ".attention.head_count", heads), (arch + ".attention.head_count_kv", kv), (arch + ".attention.key_length", hd),
                    (arch + ".attention.value_length", hd), (arch + ".attention.layer_norm_rms_epsilon", 1e-5),
                    (arch + ".rope.freq_base", 500000.0), (arch + ".vocab_size", vocab), ("tokenizer.ggml.model", "gpt2"),
                    ("tokenizer.ggml.pre", "gpt-2")):
        w.key(name, v)
    if len(shape) > 7:
        w.key("olmoe.expert_count", shape[7])
        w.key("olmoe.expert_used_count", shape[8])
    w.array("tokenizer.ggml.tokens", [f"t{i}" for i in range(vocab)], STRING)
    w.array("tokenizer.ggml.token_type", [1] * vocab, I32)
    w.array("tokenizer.ggml.merges", [], STRING)
    listed = list(tensors(shape, KINDS[sys.argv[2]]))
    head, at = b"", 0
    for name, dims, kind, _ in listed:
        head += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, at)
        at += -(-n_bytes(dims, kind) // ALIGNMENT) * ALIGNMENT
    with open(sys.argv[3], "wb") as f:
        f.write(struct.pack("<4sIQQ", b"GGUF", 3, len(listed), len(w.keys)) + b"".join(w.keys) + head)
        f.write(bytes(-f.tell() % ALIGNMENT))
        for name, dims, kind, piece in listed:
            left = n_bytes(dims, kind)
            if len(piece) < 64:
                piece *= 1 + min(left, 1 << 20) // len(piece)
            while left:
                f.write(piece[:left])
                left -= min(left, len(piece))
            f.write(bytes(-f.tell() % ALIGNMENT))


if __name__ == "__main__":
    main()
