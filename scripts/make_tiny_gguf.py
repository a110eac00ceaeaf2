#!/usr/bin/env python3
"""Makes the tiny random models that tests and CI run on: same bytes on every machine.

    scripts/make_tiny_gguf.py FOLDER      writes tiny-*.gguf: a decoder of each architecture, three kinds of rope scaling, adapters, an encoder
                                          and a pair net for it

They compute real forward passes of the real architectures, with a byte-level vocabulary that can spell any text, a few
merges, ChatML control tokens and template. What they say is noise. Quantised tensors are random blocks rather than rounded
floats: any bit pattern with a sane scale is a legal tensor.
"""
import json
import random
import struct
import sys

from gguf_write import (BLOCK, F16, F32, FLOAT32, I32, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0, STRING, Writer)

CHATML = ("{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
          "You are a tiny test model.<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
          "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
WORDS = "the in er on an re he at en or es is it al ar to of th and ing ion ent for".split()
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def byte_letters():
    """The printable stand-in of every byte in byte-level vocabularies (GPT-2's table)."""
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
    table = {b: chr(b) for b in plain}
    for i, b in enumerate(b for b in range(256) if b not in table):
        table[b] = chr(256 + i)
    return [table[b] for b in range(256)]


def bpe_vocabulary():
    letters = byte_letters()
    tokens, merges = CONTROL + letters, []
    for word in WORDS + [letters[32] + w for w in WORDS]:
        so_far = word[0]
        for letter in word[1:]:
            if so_far + letter not in tokens:
                tokens.append(so_far + letter)
                merges.append(f"{so_far} {letter}")
            so_far += letter
    types = [3] * len(CONTROL) + [1] * (len(tokens) - len(CONTROL))
    return tokens, types, merges


class Maker:
    def __init__(self, seed):
        self.rng, self.w = random.Random(seed), Writer()

    def floats(self, n, scale, centre=0.0):
        return struct.pack(f"<{n}f", *(centre + scale * (2 * self.rng.random() - 1) for _ in range(n)))

    def block(self, kind, scale):
        """One random block whose values spread over about -scale..scale."""
        rnd, half = self.rng.randbytes, lambda v: struct.pack("<e", v)
        if kind == Q4_0:
            return half(scale / 8) + rnd(16)
        if kind == Q4_1:
            return half(scale / 7.5) + half(-scale) + rnd(16)
        if kind == Q5_0:
            return half(scale / 16) + rnd(20)
        if kind == Q5_1:
            return half(scale / 15.5) + half(-scale) + rnd(20)
        if kind == Q8_0:
            return half(scale / 127) + rnd(32)
        if kind == Q4_K:
            return half(scale / (32 * 7.5)) + half(scale / 32) + rnd(140)
        if kind == Q5_K:
            return half(scale / (32 * 15.5)) + half(scale / 32) + rnd(172)
        if kind == Q6_K:
            return rnd(192) + bytes(self.rng.randrange(-64, 64) & 255 for _ in range(16)) + half(scale / (32 * 32))
        raise ValueError(kind)

    def matrix(self, name, n_in, n_out, kind, scale=None, n=None):
        """n: so many of them in one tensor"""
        scale = scale or (3 / n_in) ** 0.5  # variance 1/n_in for uniform values
        values = n_in * n_out * (n or 1)
        if kind == F32:
            data = self.floats(values, scale)
        elif kind == F16:
            data = struct.pack(f"<{values}e", *(scale * (2 * self.rng.random() - 1) for _ in range(values)))
        else:
            data = b"".join(self.block(kind, scale) for _ in range(values // BLOCK[kind][0]))
        self.w.tensor(name, [n_in, n_out] + ([n] if n else []), kind, data)

    def mixture(self, name, embd, experts, kinds):
        """Router (of wide scores, so that choices are clear), experts, and a shared one where there is one."""
        self.matrix(name + "ffn_gate_inp.weight", embd, experts["n"], F32, 4 * (3 / embd) ** 0.5)
        for what in ("ffn_gate", "ffn_up", "ffn_down"):
            a, b = (experts["ff"], embd) if what == "ffn_down" else (embd, experts["ff"])
            self.matrix(f"{name}{what}_exps.weight", a, b, kinds[what], n=experts["n"])
        if "shared" in experts:
            self.vector(name + "ffn_gate_inp_shexp.weight", embd, (3 / embd) ** 0.5)
            for what in ("ffn_gate", "ffn_up", "ffn_down"):
                a, b = (experts["shared"], embd) if what == "ffn_down" else (embd, experts["shared"])
                self.matrix(f"{name}{what}_shexp.weight", a, b, kinds[what])

    def vector(self, name, n, scale, centre=0.0):
        self.w.tensor(name, [n], F32, self.floats(n, scale, centre))


def norms_of(arch, embd, heads, kv, hd):
    """Names and lengths of the norms an architecture has beyond llama's two."""
    if arch == "olmoe":
        return [("attn_q_norm", heads * hd), ("attn_k_norm", kv * hd)]
    heads = [("attn_q_norm", hd), ("attn_k_norm", hd)] if arch in ("qwen3", "qwen3moe", "gemma3") else []
    after = [("post_attention_norm", embd), ("post_ffw_norm", embd)] if arch in ("gemma2", "gemma3") else []
    return heads + after


def decoder(path, arch, pre, dims, kinds, seed, tied, more=None, factors=(), experts=None):
    """more: further keys of the architecture; factors: names of rope factor tensors; experts: n, used, ff and perhaps shared."""
    m = Maker(seed)
    tokens, types, merges = bpe_vocabulary()
    embd, ff, layers, heads, kv, hd = (dims[k] for k in ("embd", "ff", "layers", "heads", "kv", "head_dim"))
    k = m.w.key
    k("general.architecture", arch)
    k("general.name", f"tiny random {arch}")
    k(f"{arch}.block_count", layers)
    k(f"{arch}.context_length", 512)
    k(f"{arch}.embedding_length", embd)
    k(f"{arch}.feed_forward_length", ff)
    k(f"{arch}.attention.head_count", heads)
    k(f"{arch}.attention.head_count_kv", kv)
    k(f"{arch}.attention.key_length", hd)
    k(f"{arch}.attention.value_length", hd)
    k(f"{arch}.attention.layer_norm_rms_epsilon", 1e-5)
    more = {"rope.freq_base": 10000.0} | (more or {})
    if experts:
        more |= {"expert_count": experts["n"], "expert_used_count": experts["used"], "expert_feed_forward_length": experts["ff"]}
        if "shared" in experts:
            more["expert_shared_feed_forward_length"] = experts["shared"]
    for suffix, v in more.items():
        k(f"{arch}.{suffix}", v)
    k(f"{arch}.vocab_size", len(tokens))
    k("tokenizer.ggml.model", "gpt2")
    k("tokenizer.ggml.pre", pre)
    m.w.array("tokenizer.ggml.tokens", tokens, STRING)
    m.w.array("tokenizer.ggml.token_type", types, I32)
    m.w.array("tokenizer.ggml.merges", merges, STRING)
    k("tokenizer.ggml.bos_token_id", 1)
    k("tokenizer.ggml.eos_token_id", 2)
    k("tokenizer.ggml.padding_token_id", 0)
    k("tokenizer.ggml.add_bos_token", False)
    k("tokenizer.chat_template", CHATML)
    m.matrix("token_embd.weight", embd, len(tokens), kinds["embd"], 1.0)
    m.vector("output_norm.weight", embd, 0.2, 1.0)
    if not tied:
        m.matrix("output.weight", embd, len(tokens), kinds["out"])
    for name in factors:
        m.w.tensor(name, [hd // 2], F32, struct.pack(f"<{hd // 2}f", *sorted(1 + 7 * m.rng.random() for _ in range(hd // 2))))
    for i in range(layers):
        name = f"blk.{i}."
        m.vector(name + "attn_norm.weight", embd, 0.2, 1.0)
        m.vector(name + "ffn_norm.weight", embd, 0.2, 1.0)
        for what, n in norms_of(arch, embd, heads, kv, hd):
            m.vector(f"{name}{what}.weight", n, 0.2, 1.0)
        for what, n_in, n_out in (("attn_q", embd, heads * hd), ("attn_k", embd, kv * hd), ("attn_v", embd, kv * hd),
                                  ("attn_output", heads * hd, embd), ("ffn_gate", embd, ff), ("ffn_up", embd, ff),
                                  ("ffn_down", ff, embd)):
            if experts and what.startswith("ffn"):
                continue
            m.matrix(f"{name}{what}.weight", n_in, n_out, kinds[what])
            if arch in ("qwen2", "qwen2moe") and what in ("attn_q", "attn_k", "attn_v"):
                m.vector(f"{name}{what}.bias", n_out, 0.1)
        if experts:
            m.mixture(name, embd, experts, kinds)
    m.w.save(path)


def adapter(path, arch, shapes, rank, seed, kind=F32, alpha=None):
    """shapes: {matrix: (n_in, n_out)}"""
    m = Maker(seed)
    m.w.key("general.type", "adapter")
    m.w.key("general.architecture", arch)
    m.w.key("general.name", f"tiny random adapter of {arch}")
    m.w.key("adapter.type", "lora")
    if alpha:
        m.w.key("adapter.lora.alpha", alpha)
    for name, (n_in, n_out) in shapes.items():
        m.matrix(f"{name}.weight.lora_a", n_in, rank, kind)
        m.matrix(f"{name}.weight.lora_b", rank, n_out, kind)
    m.w.save(path)


def encoder(path, seed):
    m = Maker(seed)
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    digits = [str(d) for d in range(10)]
    words = ("how do i reset my password what is the price of a can you change order number not open close account card "
             "when will it arrive where where's my refund").split()
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + list("!\"#$%&'()*+,-./:;<=>?@") + digits + letters
    tokens += ["##" + x for x in digits + letters] + ["##ing", "##ed"]
    tokens += [w for w in dict.fromkeys(words) if w not in tokens and w.isalpha()]
    embd, ff, layers, heads, positions = 64, 64, 2, 4, 64
    k = m.w.key
    k("general.architecture", "bert")
    k("general.name", "tiny random bert")
    k("bert.block_count", layers)
    k("bert.context_length", positions)
    k("bert.embedding_length", embd)
    k("bert.feed_forward_length", ff)
    k("bert.attention.head_count", heads)
    k("bert.attention.layer_norm_epsilon", 1e-12)
    k("bert.pooling_type", 1)
    k("deja.embed.id", "tiny-bert")
    k("deja.embed.max_tokens", 48)
    k("tokenizer.ggml.model", "bert")
    m.w.array("tokenizer.ggml.tokens", tokens, STRING)
    m.w.array("tokenizer.ggml.token_type", [3, 2, 3, 3, 3] + [1] * (len(tokens) - 5), I32)
    for what, i in (("padding", 0), ("unknown", 1), ("cls", 2), ("seperator", 3), ("mask", 4)):  # spelt so in the format
        k(f"tokenizer.ggml.{what}_token_id", i)
    k("tokenizer.ggml.lowercase", True)
    m.matrix("token_embd.weight", embd, len(tokens), F32, 1.0)
    m.matrix("position_embd.weight", embd, positions, F32, 0.3)
    m.matrix("token_types.weight", embd, 2, F32, 0.1)
    m.vector("token_embd_norm.weight", embd, 0.2, 1.0)
    m.vector("token_embd_norm.bias", embd, 0.1)
    for i in range(layers):
        name = f"blk.{i}."
        for what, n_in, n_out in (("attn_q", embd, embd), ("attn_k", embd, embd), ("attn_v", embd, embd),
                                  ("attn_output", embd, embd), ("ffn_up", embd, ff), ("ffn_down", ff, embd)):
            m.matrix(f"{name}{what}.weight", n_in, n_out, F32)
            m.vector(f"{name}{what}.bias", n_out, 0.1)
        for what in ("attn_output_norm", "layer_output_norm"):
            m.vector(f"{name}{what}.weight", embd, 0.2, 1.0)
            m.vector(f"{name}{what}.bias", embd, 0.1)
    m.w.save(path)


def pair_net(path, seed):
    embd, inner, hidden = 64, 32, 16
    m = Maker(seed)
    m.w.key("general.architecture", "deja-pair")
    for key, v in (("encoder", "tiny-bert"), ("layer", 1), ("inner", inner), ("alone_hidden", hidden), ("joint_hidden", hidden)):
        m.w.key("deja-pair." + key, v)
    m.matrix("in.weight", embd, inner, F32)
    m.vector("in.bias", inner, 0.1)
    for head, n in (("alone", 4 * inner + 2 * embd + 1), ("joint", 5 * inner + 2 * embd + 7)):
        m.matrix(head + ".w1", n, hidden, F32)
        m.vector(head + ".b1", hidden, 0.1)
        m.vector(head + ".w2", hidden, 0.5)
        m.vector(head + ".w3", n, 0.05)
        m.vector(head + ".b2", 1, 1.0)
    # every pair that no hard guard refuses is the same question, whatever the net says
    look = {"bias": 3, "cosine": 0, "alone": 0, "joint": 0, "shared": 0, "contained": 0, "asks_alike": 0, "same": 0, "guards": {}}
    language = {"first": 0.1, "alone": 0.9, "hit": 0.9, "looks": [look, look]}
    m.w.key("deja-pair.calibration", json.dumps({"en": language, "zh": language}))
    m.w.save(path)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    to = sys.argv[1] + "/"
    same = lambda kind: {x: kind for x in ("embd", "out", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up",
                                           "ffn_down")}
    small = {"embd": 64, "ff": 64, "layers": 2, "heads": 4, "kv": 2, "head_dim": 16}
    decoder(to + "tiny-llama-f32.gguf", "llama", "smollm", small, same(F32), 1, tied=True)
    mixed = {"embd": Q8_0, "out": F16, "attn_q": Q4_0, "attn_k": Q5_0, "attn_v": Q5_1, "attn_output": Q4_1, "ffn_gate": Q4_1,
             "ffn_up": Q8_0, "ffn_down": Q5_0}
    decoder(to + "tiny-llama-mixed.gguf", "llama", "smollm", small | {"ff": 160, "layers": 3}, mixed, 2, tied=False)
    k_kinds = {"embd": Q4_K, "out": Q6_K, "attn_q": Q4_K, "attn_k": Q5_K, "attn_v": Q6_K, "attn_output": Q5_0,
               "ffn_gate": Q4_K, "ffn_up": Q4_K, "ffn_down": Q6_K}
    wide = {"embd": 256, "ff": 256, "layers": 1, "heads": 4, "kv": 2, "head_dim": 16}
    decoder(to + "tiny-qwen2-k.gguf", "qwen2", "qwen2", wide, k_kinds, 3, tied=False)
    encoder(to + "tiny-bert.gguf", 4)
    small_kinds = {"embd": Q8_0, "out": Q8_0, "attn_q": Q4_0, "attn_k": Q8_0, "attn_v": F16, "attn_output": Q8_0, "ffn_gate": Q4_0,
                   "ffn_up": Q4_1, "ffn_down": Q5_0}
    apart = {"embd": 64, "ff": 96, "layers": 2, "heads": 4, "kv": 2, "head_dim": 24}  # heads wider than n_embd / heads
    decoder(to + "tiny-qwen3.gguf", "qwen3", "qwen2", apart, small_kinds, 5, tied=True, more={"rope.freq_base": 1e6})
    decoder(to + "tiny-gemma2.gguf", "gemma2", "smollm", apart, small_kinds, 6, tied=True, more={"attention.sliding_window": 6})
    decoder(to + "tiny-gemma3.gguf", "gemma3", "smollm", apart | {"layers": 6, "kv": 1}, small_kinds, 7, tied=True,
            more={"rope.freq_base": 1e6, "attention.sliding_window": 7, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0})
    least = {"embd": 32, "ff": 32, "layers": 1, "heads": 2, "kv": 1, "head_dim": 32}
    eight = same(Q8_0)
    decoder(to + "tiny-rope-yarn.gguf", "qwen2", "qwen2", least, eight, 8, tied=True,
            more={"rope.freq_base": 100.0, "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
                  "rope.scaling.original_context_length": 128})
    decoder(to + "tiny-rope-long.gguf", "llama", "smollm", least, eight, 9, tied=True,
            more={"rope.scaling.type": "longrope", "rope.scaling.attn_factor": 1.19, "rope.scaling.original_context_length": 64},
            factors=["rope_factors_long.weight", "rope_factors_short.weight"])
    decoder(to + "tiny-rope-factors.gguf", "llama", "smollm", least, eight, 10, tied=True,
            more={"rope.scaling.type": "linear", "rope.scaling.factor": 2.0}, factors=["rope_freqs.weight"])
    decoder(to + "tiny-mixtral.gguf", "llama", "smollm", small | {"ff": 96}, small_kinds, 15, tied=False,
            experts={"n": 4, "used": 2, "ff": 96})
    decoder(to + "tiny-qwen2moe.gguf", "qwen2moe", "qwen2", small | {"ff": 160}, small_kinds | {"ffn_gate": Q8_0, "ffn_down": F16}, 16,
            tied=False, experts={"n": 6, "used": 3, "ff": 32, "shared": 96})
    decoder(to + "tiny-qwen3moe.gguf", "qwen3moe", "qwen2", apart, small_kinds, 17, tied=True, more={"rope.freq_base": 1e6},
            experts={"n": 5, "used": 2, "ff": 32})
    decoder(to + "tiny-olmoe.gguf", "olmoe", "olmo", dict(embd=32, ff=32, layers=2, heads=4, kv=4, head_dim=8), same(F32), 18, tied=False,
            experts={"n": 8, "used": 3, "ff": 32})
    pair_net(to + "tiny-pair.gguf", 5)
    adapter(to + "tiny-lora-a.gguf", "llama", {"blk.0.attn_q": (64, 64), "blk.0.attn_v": (64, 32), "blk.0.attn_output": (64, 64),
            "blk.1.ffn_gate": (64, 64), "blk.1.ffn_down": (64, 64)}, 4, 11, alpha=8.0)
    adapter(to + "tiny-lora-b.gguf", "llama", {"blk.0.attn_k": (64, 32), "blk.0.ffn_up": (64, 64), "blk.1.attn_q": (64, 64),
            "blk.1.ffn_up": (64, 64)}, 3, 12, kind=F16)
    adapter(to + "tiny-lora-gemma3.gguf", "gemma3", {"blk.2.attn_q": (64, 96), "blk.2.attn_output": (96, 64), "blk.5.attn_k": (64, 24),
            "blk.5.ffn_up": (64, 96), "blk.5.ffn_down": (96, 64)}, 8, 13, alpha=16.0)
    adapter(to + "tiny-lora-mixtral.gguf", "llama", {"blk.0.attn_q": (64, 64), "blk.0.attn_output": (64, 64), "blk.1.attn_v": (64, 32)}, 4, 19)
    adapter(to + "tiny-lora-output.gguf", "llama", {"output": (64, 317)}, 2, 14)


if __name__ == "__main__":
    main()
