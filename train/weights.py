"""Reads an encoder's layers from its GGUF file and writes a pair net's weights (tensor names: engine/model/pair_net_load.c)."""
import os
import struct
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "scripts"))
import gguf_write  # noqa: E402

NAMES = {"q": "attn_q", "k": "attn_k", "v": "attn_v", "ao": "attn_output", "aln": "attn_output_norm", "fi": "ffn_up", "fo": "ffn_down",
         "oln": "layer_output_norm"}
SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


class Gguf:
    def __init__(self, path):
        self.raw, self.keys, self.tensors = np.memmap(path, np.uint8, "r"), {}, {}
        self.at = 8
        n_tensors, n_keys = self.take("QQ")
        for _ in range(n_keys):
            name = self.string()
            self.keys[name] = self.value(self.take("I")[0])
        for _ in range(n_tensors):
            name, n = self.string(), self.take("I")[0]
            self.tensors[name] = (self.take(f"{n}Q"), *self.take("IQ"))
        self.base = -(-self.at // gguf_write.ALIGNMENT) * gguf_write.ALIGNMENT

    def take(self, fmt):
        v = struct.unpack_from("<" + fmt, self.raw, self.at)
        self.at += struct.calcsize("<" + fmt)
        return v

    def string(self):
        n = self.take("Q")[0]
        self.at += n
        return bytes(self.raw[self.at - n:self.at]).decode("utf8", "replace")

    def value(self, kind):
        if kind == gguf_write.STRING:
            return self.string()
        if kind != gguf_write.ARRAY:
            self.at += SCALAR_BYTES[kind]
            return bytes(self.raw[self.at - SCALAR_BYTES[kind]:self.at])
        element, n = self.take("IQ")
        if element == gguf_write.STRING:
            for _ in range(n):
                length = self.take("Q")[0]
                self.at += length
        else:
            self.at += SCALAR_BYTES[element] * n
        return None

    def tensor(self, name):
        dims, kind, offset = self.tensors[name]
        n, at = int(np.prod(dims)), self.base + offset
        if kind == gguf_write.F32:
            x = self.raw[at:at + 4 * n].view("<f4")
        elif kind == gguf_write.F16:
            x = self.raw[at:at + 2 * n].view("<f2")
        elif kind == gguf_write.Q4_0:
            b = self.raw[at:at + n // 32 * 18].reshape(-1, 18)
            x = (np.concatenate([b[:, 2:] & 15, b[:, 2:] >> 4], 1).astype(np.float32) - 8) * b[:, :2].copy().view("<f2").astype(np.float32)
        elif kind == gguf_write.Q8_0:
            b = self.raw[at:at + n // 32 * 34].reshape(-1, 34)
            x = b[:, 2:].view(np.int8).astype(np.float32) * b[:, :2].copy().view("<f2").astype(np.float32)
        else:
            raise SystemExit(f"tensor {name} has type {kind}; F32, F16, Q4_0 and Q8_0 are read here")
        return np.array(x, np.float32).reshape(dims[::-1])


def encoder_layers(path, begin, end):
    """{"qw": [layers][in][out], "qb": [layers][out], ..}"""
    g, out = Gguf(path), {}
    for short, name in NAMES.items():
        for suffix, what in (("w", "weight"), ("b", "bias")):
            x = np.stack([g.tensor(f"blk.{i}.{name}.{what}") for i in range(begin, end)])
            out[short + suffix] = np.ascontiguousarray(x.transpose(0, 2, 1)) if x.ndim == 3 else x
    return out


def q8_0(x):
    b = np.asarray(x, np.float32).reshape(-1, 32)
    d = (np.abs(b).max(1, keepdims=True) / 127).astype("<f2")
    q = np.clip(np.rint(b / np.maximum(d.astype(np.float32), 1e-12)), -127, 127).astype(np.int8)
    return np.concatenate([d.view(np.uint8), q.view(np.uint8)], 1).tobytes()


def q4_0(x):
    """The scale that leaves the least square error out of a few around the largest value's."""
    b = np.asarray(x, np.float32).reshape(-1, 32)
    big = np.take_along_axis(b, np.abs(b).argmax(1)[:, None], 1)
    best, least = None, np.full((len(b), 1), np.inf)
    for part in (-8.0, -7.5, -7.0, -8.5, -9.0, -6.5):
        d = (big / part).astype("<f2").astype(np.float32)
        q = np.clip(np.rint(b / np.where(d == 0, 1, d)) + 8, 0, 15)
        error = ((b - (q - 8) * d) ** 2).sum(1, keepdims=True)
        better = error < least
        best = (d, q) if best is None else (np.where(better, d, best[0]), np.where(better, q, best[1]))
        least = np.minimum(least, error)
    d, q = best[0].astype("<f2"), best[1].astype(np.uint8)
    return np.concatenate([d.view(np.uint8), q[:, :16] | q[:, 16:] << 4], 1).tobytes()


def save_tower(w, name, p, matrices):
    kind, code = matrices
    stack = {k: np.asarray(v) for k, v in p["stack"].items()}
    for i in range(stack["qw"].shape[0]):
        for short, long in NAMES.items():
            x = stack[short + "w"][i]
            if x.ndim == 2:
                w.tensor(f"{name}.{i}.{long}.weight", [x.shape[0], x.shape[1]], kind, code(x.T))
            else:
                w.tensor(f"{name}.{i}.{long}.weight", [len(x)], gguf_write.F32, x.astype("<f4").tobytes())
            w.tensor(f"{name}.{i}.{long}.bias", [len(stack[short + "b"][i])], gguf_write.F32, stack[short + "b"][i].astype("<f4").tobytes())
    one = np.asarray(p["w1"]).T
    w.tensor(f"{name}.head1.weight", [one.shape[1], one.shape[0]], gguf_write.Q8_0, q8_0(one))
    for key, what in (("b1", "head1.bias"), ("w2", "head2.weight"), ("scalars", "scalars")):
        x = np.asarray(p[key], "<f4")
        w.tensor(f"{name}.{what}", [len(x)], gguf_write.F32, x.tobytes())


def save(path, model, layer, alone, joint, matrices="q8_0"):
    encoder = Gguf(model).keys
    name = encoder.get("deja.embed.id") or encoder.get("general.name")
    choice = {"q8_0": (gguf_write.Q8_0, q8_0), "q4_0": (gguf_write.Q4_0, q4_0)}[matrices]
    w = gguf_write.Writer()
    w.key("general.architecture", "deja-pair")
    w.key("general.license", "MIT")
    w.key("general.description", "Trained by the Deja project on top of multilingual-e5-small (Microsoft, MIT)")
    w.key("deja-pair.encoder", name)
    w.key("deja-pair.layer", layer)
    w.key("deja-pair.alone_layers", int(np.asarray(alone["stack"]["qw"]).shape[0]))
    w.key("deja-pair.joint_layers", int(np.asarray(joint["stack"]["qw"]).shape[0]) if joint else 0)
    w.key("deja-pair.hidden", int(np.asarray(alone["w1"]).shape[1]))
    save_tower(w, "alone", alone, choice)
    if joint:
        save_tower(w, "joint", joint, choice)
        for key in ("cross", "marks"):
            x = np.asarray(joint[key], "<f4")
            w.tensor(f"joint.{key}", [x.shape[1], x.shape[0]], gguf_write.F32, x.tobytes())
    w.save(path)
    print("%s: %.1f MB" % (path, os.path.getsize(path) / 1e6))


def set_key(path, name, text):
    """The file again with one more string key (or another value for it); tensors stay byte for byte."""
    g, w = Gguf(path), gguf_write.Writer()
    for key, v in g.keys.items():
        if key != name:
            w.key(key, v if isinstance(v, str) else struct.unpack("<I", v)[0])
    w.key(name, text)
    for tensor, (dims, kind, offset) in g.tensors.items():
        per, size = gguf_write.BLOCK[kind]
        at, n = g.base + offset, int(np.prod(dims)) // per * size
        w.tensor(tensor, list(dims), kind, bytes(g.raw[at:at + n]))
    w.save(path + ".new")
    os.replace(path + ".new", path)
