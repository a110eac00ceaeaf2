"""Reads the keys of an encoder's GGUF file and writes a pair net's weights (tensor names: engine/model/pair_net_load.c)."""
import os
import struct
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "scripts"))
import gguf_write  # noqa: E402

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


def q8_0(x):
    b = np.asarray(x, np.float32).reshape(-1, 32)
    d = (np.abs(b).max(1, keepdims=True) / 127).astype("<f2")
    q = np.clip(np.rint(b / np.maximum(d.astype(np.float32), 1e-12)), -127, 127).astype(np.int8)
    return np.concatenate([d.view(np.uint8), q.view(np.uint8)], 1).tobytes()


TENSORS = {"in": "in", "q": "attn_q", "k": "attn_k", "v": "attn_v", "ao": "attn_output", "fi": "ffn_up", "fo": "ffn_down"}
NORMS = {"inln": "in_norm", "aln": "attn_norm", "oln": "out_norm"}


def save_tower(w, name, p):
    def floats(what, x):
        x = np.asarray(x, "<f4")
        w.tensor(f"{name}.{what}", list(x.shape[::-1]), gguf_write.F32, x.tobytes())

    for short, long in TENSORS.items():
        if short + "w" in p:
            x = np.asarray(p[short + "w"])
            w.tensor(f"{name}.{long}.weight", list(x.shape), gguf_write.Q8_0, q8_0(x.T))
            floats(long + ".bias", p[short + "b"])
    for short, long in NORMS.items():
        if short + "w" in p:
            floats(long + ".weight", p[short + "w"])
            floats(long + ".bias", p[short + "b"])
    one = np.asarray(p["w1"])
    w.tensor(f"{name}.head1.weight", list(one.shape), gguf_write.Q8_0, q8_0(one.T))
    floats("head1.bias", p["b1"])
    floats("head2.weight", p["w2"])
    floats("scalars", p["scalars"])
    if "marks" in p:
        floats("marks", p["marks"])


def save(path, model, layer, p, heads):
    encoder, w = Gguf(model).keys, gguf_write.Writer()
    w.key("general.architecture", "deja-pair")
    w.key("general.license", "MIT")
    w.key("general.description", "Trained by the Deja project on token states of multilingual-e5-small (Microsoft, MIT)")
    w.key("deja-pair.encoder", encoder.get("deja.embed.id") or encoder.get("general.name"))
    for key, v in (("layer", layer), ("inner", np.asarray(p["alone"]["qw"]).shape[0]), ("heads", heads), ("hidden", len(p["alone"]["b1"]))):
        w.key("deja-pair." + key, int(v))
    for name in ("alone", "joint"):
        save_tower(w, name, p[name])
    w.save(path)
    print("%s: %.2f MB" % (path, os.path.getsize(path) / 1e6))


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
