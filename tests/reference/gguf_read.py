"""Reads a GGUF file with numpy: metadata as Python values, tensors as exact float arrays. Written from the format's description
(ggml project, docs/gguf.md and the block layouts of ggml-common.h), apart from the C reader, so that each checks the other."""
import struct

import numpy as np

SCALAR = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
BLOCK = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 12: (256, 144), 13: (256, 176),
         14: (256, 210), 30: (1, 2)}


class Gguf:
    """key: dict of metadata; tensor(name) -> float array [.., rows, row length]"""

    def __init__(self, path, dtype=np.float32):
        self.bytes, self.at, self.dtype = np.memmap(path, np.uint8, "r"), 4, dtype
        if bytes(self.bytes[:4]) != b"GGUF" or self.take("I") not in (2, 3):
            raise ValueError(f"{path}: not GGUF 2 or 3")
        n_tensors, n_keys = self.take("Q"), self.take("Q")
        self.key = {}
        for _ in range(n_keys):
            name = self.text()
            self.key[name] = self.value(self.take("I"))
        self.where = {}
        for _ in range(n_tensors):
            name = self.text()
            dims = [self.take("Q") for _ in range(self.take("I"))]
            self.where[name] = (dims, self.take("I"), self.take("Q"))
        align = self.key.get("general.alignment", 32)
        self.start = -(-self.at // align) * align

    def take(self, kind):
        size = struct.calcsize(kind)
        v = struct.unpack("<" + kind, bytes(self.bytes[self.at:self.at + size]))[0]
        self.at += size
        return v

    def text(self):
        n = self.take("Q")
        self.at += n
        return bytes(self.bytes[self.at - n:self.at]).decode("utf8", "replace")

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind != 9:
            return self.take(SCALAR[kind])
        kind, n = self.take("I"), self.take("Q")
        return [self.value(kind) for _ in range(n)]

    def has(self, name):
        return name in self.where

    def tensor(self, name):
        dims, kind, offset = self.where[name]
        per, size = BLOCK[kind]
        n = int(np.prod(dims)) // per
        raw = np.asarray(self.bytes[self.start + offset:self.start + offset + n * size]).reshape(n, size)
        return decode(kind, raw).astype(self.dtype).reshape(dims[::-1])


def half(raw):
    """[n, 2] bytes -> [n, 1] numbers"""
    return np.ascontiguousarray(raw).view("<f2").astype(np.float64)


def nibbles(q):
    """[n, k] bytes -> [n, 2k]: all low nibbles, then all high ones"""
    return np.concatenate([q & 15, q >> 4], axis=1).astype(np.float64)


def fifth_bits(raw):
    """[n, 4] bytes -> [n, 32] of 0 or 16"""
    return np.unpackbits(raw, axis=1, bitorder="little").astype(np.float64) * 16


def k_scales(raw):
    """the 12 bytes of Q4_K and Q5_K -> 8 six-bit scales and 8 six-bit minima"""
    a, b, c = raw[:, 0:4], raw[:, 4:8], raw[:, 8:12]
    scale = np.concatenate([a & 63, (c & 15) | (a >> 6) << 4], axis=1)
    least = np.concatenate([b & 63, (c >> 4) | (b >> 6) << 4], axis=1)
    return scale.astype(np.float64), least.astype(np.float64)


def decode_k(raw, five):
    n = len(raw)
    d, dmin = half(raw[:, 0:2]), half(raw[:, 2:4])
    scale, least = k_scales(raw[:, 4:16])
    q = raw[:, 48:] if five else raw[:, 16:]
    q = q.reshape(n, 4, 32)
    v = np.stack([q & 15, q >> 4], axis=2).reshape(n, 8, 32).astype(np.float64)  # 64 values share 32 bytes
    if five:
        bits = np.unpackbits(raw[:, 16:48].reshape(n, 32, 1), axis=2, bitorder="little")
        v += 16.0 * bits.transpose(0, 2, 1)
    return v * (d * scale)[:, :, None] - (dmin * least)[:, :, None]


def decode_6(raw):
    n = len(raw)
    low, high = raw[:, 0:128].reshape(n, 2, 2, 32), raw[:, 128:192].reshape(n, 2, 32)
    scale = raw[:, 192:208].view(np.int8).astype(np.float64)
    q = np.empty((n, 2, 4, 32))  # each half of a block: 128 values in 4 runs
    for run in range(4):
        part = low[:, :, run % 2, :]
        part = part & 15 if run < 2 else part >> 4
        q[:, :, run] = (part | (high >> 2 * run & 3) << 4).astype(np.float64) - 32
    return q.reshape(n, 16, 16) * (half(raw[:, 208:210]) * scale)[:, :, None]


def decode(kind, raw):
    if kind == 0:
        return raw.view("<f4")
    if kind == 1:
        return raw.view("<f2")
    if kind == 30:
        return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
    if kind == 2:
        return half(raw[:, :2]) * (nibbles(raw[:, 2:]) - 8)
    if kind == 3:
        return half(raw[:, :2]) * nibbles(raw[:, 4:]) + half(raw[:, 2:4])
    if kind == 6:
        return half(raw[:, :2]) * (nibbles(raw[:, 6:]) + fifth_bits(raw[:, 2:6]) - 16)
    if kind == 7:
        return half(raw[:, :2]) * (nibbles(raw[:, 8:]) + fifth_bits(raw[:, 4:8])) + half(raw[:, 2:4])
    if kind == 8:
        return half(raw[:, :2]) * raw[:, 2:].view(np.int8)
    if kind in (12, 13):
        return decode_k(raw, kind == 13)
    if kind == 14:
        return decode_6(raw)
    raise ValueError(f"tensor type {kind}")
