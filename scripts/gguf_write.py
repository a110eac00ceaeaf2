"""Writes GGUF v3 files. Standard library only; imported by the other scripts of this folder.

    w = Writer()
    w.key("general.architecture", "llama")
    w.tensor("token_embd.weight", [64, 300], F32, raw_bytes)   # dims[0] = row length
    w.save(path)
"""
import struct

F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, BF16 = 0, 1, 2, 3, 6, 7, 8, 12, 13, 14, 30
BLOCK = {F32: (1, 4), F16: (1, 2), BF16: (1, 2), Q4_0: (32, 18), Q4_1: (32, 20), Q5_0: (32, 22), Q5_1: (32, 24), Q8_0: (32, 34),
         Q4_K: (256, 144), Q5_K: (256, 176), Q6_K: (256, 210)}
ALIGNMENT = 32
U8, I32, U32, FLOAT32, BOOL, STRING, ARRAY = 0, 5, 4, 6, 7, 8, 9
PACK = {U8: "B", I32: "i", U32: "I", FLOAT32: "f", BOOL: "?"}


def text(s):
    b = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(b)) + b


def value(v, kind=None):
    """Type id and bytes of one value; kind names the type of integers and of array elements."""
    if kind is None:
        kind = (BOOL if isinstance(v, bool) else FLOAT32 if isinstance(v, float) else STRING if isinstance(v, (str, bytes))
                else U32)
    if kind == STRING:
        return kind, text(v)
    return kind, struct.pack("<" + PACK[kind], v)


class Writer:
    def __init__(self):
        self.keys, self.tensors = [], []

    def key(self, name, v, kind=None):
        self.keys.append(text(name) + struct.pack("<I", value(v, kind)[0]) + value(v, kind)[1])

    def array(self, name, items, kind):
        if kind == STRING:
            body = b"".join(text(x) for x in items)
        elif kind == U8:
            body = bytes(items)
        else:
            body = struct.pack(f"<{len(items)}{PACK[kind]}", *items)
        self.keys.append(text(name) + struct.pack("<IIQ", ARRAY, kind, len(items)) + body)

    def tensor(self, name, dims, kind, data):
        elements = 1
        for d in dims:
            elements *= d
        per, size = BLOCK[kind]
        if dims[0] % per or len(data) != elements // per * size:
            raise ValueError(f"tensor {name}: {len(data)} bytes do not fit the shape {dims} of type {kind}")
        self.tensors.append((name, dims, kind, data))

    def save(self, path):
        head = b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.keys)) + b"".join(self.keys)
        at = 0
        for name, dims, kind, data in self.tensors:
            head += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, at)
            at += -(-len(data) // ALIGNMENT) * ALIGNMENT
        with open(path, "wb") as f:
            f.write(head + bytes(-len(head) % ALIGNMENT))
            for _, _, _, data in self.tensors:
                f.write(data)
                f.write(bytes(-len(data) % ALIGNMENT))
