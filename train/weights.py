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


def save(path, model, layer, p, calibration):
    """p: of train_verifier.train()"""
    encoder, w = Gguf(model).keys, gguf_write.Writer()

    def put(name, x, kind):
        x = np.ascontiguousarray(x, np.float32)
        w.tensor(name, list(x.shape[::-1]), kind, x.astype("<f2" if kind == gguf_write.F16 else "<f4").tobytes())

    matrix, offset = p["projection"]
    w.key("general.architecture", "deja-pair")
    w.key("general.license", "MIT")
    w.key("general.description", "Trained by the Deja project on token states of multilingual-e5-small (Microsoft, MIT)")
    w.key("deja-pair.encoder", encoder.get("deja.embed.id") or encoder.get("general.name"))
    w.key("deja-pair.layer", layer)
    w.key("deja-pair.inner", matrix.shape[1])
    for name, head in p["heads"].items():
        w.key(f"deja-pair.{name}_hidden", len(head.p["b1"]))
    w.key("deja-pair.calibration", calibration)
    put("in.weight", matrix.T, gguf_write.F16)
    put("in.bias", offset, gguf_write.F32)
    for name, head in p["heads"].items():
        put(name + ".w1", head.p["w1"].T, gguf_write.F16)
        for key in ("b1", "w2", "w3", "b2"):
            put(f"{name}.{key}", head.p[key], gguf_write.F32)
    w.save(path)
    print("%s: %.2f MB" % (path, os.path.getsize(path) / 1e6))
