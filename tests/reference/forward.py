"""A decoder's forward pass in numpy, written from the papers and model cards, apart from the C engine: the oracle of
tests/data/reference_*.jsonl. One sequence, no cache, no batching; float32 or float64 throughout.

Architectures: llama (with experts: mixtral), qwen2, qwen2moe, qwen3, qwen3moe, olmoe, gemma2, gemma3. Rope: none, linear, yarn, longrope, factor tensor.
"""
import math

import numpy as np

GEMMA = ("gemma2", "gemma3")


def silu(x):
    return x / (1 + np.exp(-x))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


class Decoder:
    def __init__(self, g, context=None):
        """g: gguf_read.Gguf; context: positions the user asks for (longrope looks at it)"""
        self.g, self.arch = g, g.key["general.architecture"]
        self.layers, self.width, self.heads = self.say("block_count"), self.say("embedding_length"), self.say("attention.head_count")
        self.kv = self.say("attention.head_count_kv", self.heads)
        self.hd = self.say("attention.key_length", self.width // self.heads)
        self.eps = self.say("attention.layer_norm_rms_epsilon")
        self.context = context or self.say("context_length")
        self.weights = {}
        wide = (self.arch, self.layers) in (("gemma2", 46), ("gemma3", 62))
        self.scale = self.say("attention.scale", (self.width / self.heads if wide else self.hd) ** -0.5)
        self.attn_cap = self.say("attn_logit_softcapping", 50.0 if self.arch == "gemma2" else 0.0)
        self.final_cap = self.say("final_logit_softcapping", 30.0 if self.arch == "gemma2" else 0.0)

    def merge(self, adapter, scale):
        """adapter: Gguf of a LoRA; its B A joins the weights"""
        for name in adapter.where:
            if name.endswith(".lora_a"):
                base = name[:-len(".lora_a")]
                a, b = adapter.tensor(name), adapter.tensor(base + ".lora_b")
                alpha = adapter.key.get("adapter.lora.alpha", 0.0)
                self.weights[base] = self.w(base) + scale * (alpha / len(a) if alpha else 1.0) * (b @ a)

    def say(self, suffix, default=None):
        v = self.g.key.get(f"{self.arch}.{suffix}", default)
        if v is None:
            raise KeyError(suffix)
        return v

    def w(self, name):
        if name not in self.weights:
            self.weights[name] = self.g.tensor(name)
        return self.weights[name]

    def linear(self, x, name):
        y = x @ self.w(name + ".weight").T
        return y + self.w(name + ".bias") if self.g.has(name + ".bias") else y

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(self.eps)) * self.w(name + ".weight")

    # ---- positions ----
    def is_local(self, layer):
        if self.arch not in GEMMA:
            return False
        pattern = self.say("attention.sliding_window_pattern", 2 if self.arch == "gemma2" else 6)
        return pattern[layer] if isinstance(pattern, list) else layer % pattern < pattern - 1

    def window(self, layer):
        n = self.say("attention.sliding_window", 4096 if self.arch == "gemma2" else 0)
        return n if self.is_local(layer) or self.arch not in GEMMA else 0

    def angles(self, n, layer):
        """[n, dims/2] angles and the magnitude"""
        dims = self.say("rope.dimension_count", self.hd)
        i = np.arange(dims // 2, dtype=np.float64)
        pos = np.arange(n, dtype=np.float64)[:, None]
        if self.is_local(layer) and self.arch == "gemma3" and self.window(layer):
            return pos * self.say("rope.freq_base_swa", 10000.0) ** (-2 * i / dims), 1.0
        base = float(self.say("rope.freq_base", 10000.0))
        freq = base ** (-2 * i / dims)
        kind, factor = self.say("rope.scaling.type", "none"), self.say("rope.scaling.factor", 1.0)
        original = self.say("rope.scaling.original_context_length", self.say("context_length"))
        magnitude = self.say("rope.scaling.attn_factor", 1.0) if kind in ("yarn", "longrope") else 1.0
        if kind == "longrope":
            freq = freq / self.w(f"rope_factors_{'long' if self.context > original else 'short'}.weight").astype(np.float64)
        elif self.g.has("rope_freqs.weight"):
            freq = freq / self.w("rope_freqs.weight").astype(np.float64)
        if kind == "linear":
            freq = freq / factor
        if kind == "yarn":
            magnitude *= 0.1 * np.log(factor) + 1
            # the pair whose wave makes `turns` full turns within the original context
            pair = lambda turns: dims * np.log(original / (turns * 2 * np.pi)) / (2 * np.log(base))
            low = max(np.floor(pair(self.say("rope.scaling.yarn_beta_fast", 32.0))), 0)
            high = min(np.ceil(pair(self.say("rope.scaling.yarn_beta_slow", 1.0))), dims - 1)
            ramp = np.clip((i - low) / max(high - low, 0.001), 0, 1)
            freq = freq * (1 - ramp) + freq / factor * ramp
        return pos * freq, magnitude

    def turn(self, x, layer):
        """x [n, heads, hd]"""
        angle, magnitude = self.angles(len(x), layer)
        cos, sin = (magnitude * f(angle)[:, None, :] for f in (np.cos, np.sin))
        dims, out = 2 * angle.shape[1], x.astype(np.float64)
        if self.arch == "llama":
            a, b = (slice(0, dims, 2), slice(1, dims, 2))
        else:
            a, b = (slice(0, dims // 2), slice(dims // 2, dims))
        out[..., a], out[..., b] = x[..., a] * cos - x[..., b] * sin, x[..., a] * sin + x[..., b] * cos
        return out.astype(x.dtype)

    # ---- layers ----
    def attention(self, x, layer):
        n, name = len(x), f"blk.{layer}."
        q = self.linear(x, name + "attn_q").reshape(n, self.heads, self.hd)
        k = self.linear(x, name + "attn_k").reshape(n, self.kv, self.hd)
        v = self.linear(x, name + "attn_v").reshape(n, self.kv, self.hd)
        if self.arch == "olmoe":  # over all heads at once
            q = self.norm(q.reshape(n, -1), name + "attn_q_norm").reshape(q.shape)
            k = self.norm(k.reshape(n, -1), name + "attn_k_norm").reshape(k.shape)
        if self.arch in ("qwen3", "qwen3moe", "gemma3"):
            q, k = self.norm(q, name + "attn_q_norm"), self.norm(k, name + "attn_k_norm")
        q, k = self.turn(q, layer), self.turn(k, layer)
        i, j = np.arange(n)[:, None], np.arange(n)[None, :]
        seen = j <= i
        if self.window(layer):
            seen &= j > i - self.window(layer)
        out = np.empty_like(q)
        for h in range(self.heads):
            s = q[:, h] @ k[:, h * self.kv // self.heads].T * x.dtype.type(self.scale)
            if self.attn_cap:
                s = self.attn_cap * np.tanh(s / self.attn_cap)
            s = np.where(seen, s, -np.inf)
            p = np.exp(s - s.max(1, keepdims=True))
            out[:, h] = p / p.sum(1, keepdims=True) @ v[:, h * self.kv // self.heads]
        return self.linear(out.reshape(n, -1), name + "attn_output")

    def feed_forward(self, x, layer):
        name = f"blk.{layer}."
        act = gelu_tanh if self.arch in GEMMA else silu
        return self.linear(act(self.linear(x, name + "ffn_gate")) * self.linear(x, name + "ffn_up"), name + "ffn_down")

    def mixture(self, x, layer):
        """Each row through the experts_used its router likes best."""
        name = f"blk.{layer}."
        score = x @ self.w(name + "ffn_gate_inp.weight").T
        p = np.exp(score - score.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        gate, up, down = (self.w(f"{name}ffn_{what}_exps.weight") for what in ("gate", "up", "down"))
        out = np.zeros_like(x)
        for i, row in enumerate(x):
            best = np.argsort(-p[i], kind="stable")[:self.say("expert_used_count")]
            total = p[i, best].sum() if self.arch in ("llama", "qwen3moe") else 1
            for e in best:
                out[i] += p[i, e] / total * (down[e] @ (silu(gate[e] @ row) * (up[e] @ row)))
        if self.arch == "qwen2moe":
            shared = self.linear(silu(self.linear(x, name + "ffn_gate_shexp")) * self.linear(x, name + "ffn_up_shexp"), name + "ffn_down_shexp")
            out += shared / (1 + np.exp(-(x @ self.w(name + "ffn_gate_inp_shexp.weight"))))[:, None]
        return out

    def hidden(self, ids):
        x = self.w("token_embd.weight")[np.asarray(ids)]
        if self.arch in GEMMA:
            x = x * x.dtype.type(np.sqrt(self.width))
        for layer in range(self.layers):
            name = f"blk.{layer}."
            a = self.attention(self.norm(x, name + "attn_norm"), layer)
            x = x + (self.norm(a, name + "post_attention_norm") if self.arch in GEMMA else a)
            half = self.mixture if self.g.has(name + "ffn_gate_inp.weight") else self.feed_forward
            f = half(self.norm(x, name + "ffn_norm"), layer)
            x = x + (self.norm(f, name + "post_ffw_norm") if self.arch in GEMMA else f)
        return self.norm(x, "output_norm")

    def head(self, x):
        assert x.dtype == self.g.dtype
        y = x @ self.w("output.weight" if self.g.has("output.weight") else "token_embd.weight").T
        return self.final_cap * np.tanh(y / self.final_cap) if self.final_cap else y

    def logits(self, ids, rows=None):
        """[len(rows) or len(ids), vocabulary]"""
        x = self.hidden(ids)
        return self.head(x if rows is None else x[np.asarray(rows)])


def log_softmax(x):
    x = x.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))
