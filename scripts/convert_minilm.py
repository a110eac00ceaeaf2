#!/usr/bin/env python3
"""all-MiniLM-L6-v2 (or another BERT sentence encoder) from its safetensors folder to one GGUF file.

    scripts/convert_minilm.py FOLDER OUT.gguf

FOLDER holds model.safetensors (F32), config.json, vocab.txt, tokenizer_config.json, sentence_bert_config.json. Weights are
copied byte for byte. Standard library only.
"""
import json
import os
import struct
import sys

from gguf_write import F32, I32, STRING, Writer

LAYER = {"attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
         "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
         "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm"}
TOP = {"embeddings.word_embeddings.weight": "token_embd.weight", "embeddings.position_embeddings.weight": "position_embd.weight",
       "embeddings.token_type_embeddings.weight": "token_types.weight", "embeddings.LayerNorm.weight": "token_embd_norm.weight",
       "embeddings.LayerNorm.bias": "token_embd_norm.bias"}
SPECIAL = {"[PAD]": "padding", "[UNK]": "unknown", "[CLS]": "cls", "[SEP]": "seperator", "[MASK]": "mask"}  # spelt so in the format


def gguf_name(name):
    """Our tensor's name, or None for what an encoder of sentences does not use."""
    if name in TOP:
        return TOP[name]
    parts = name.split(".")
    if parts[:2] == ["encoder", "layer"]:
        what, kind = ".".join(parts[3:-1]), parts[-1]
        if what in LAYER:
            return f"blk.{parts[2]}.{LAYER[what]}.{kind}"
    if name == "embeddings.position_ids" or name.startswith("pooler."):
        return None
    raise SystemExit(f"tensor {name} has no place in a bert encoder")


def safetensors(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        start = f.tell()
        for name, t in header.items():
            if name == "__metadata__":
                continue
            f.seek(start + t["data_offsets"][0])
            yield name, t["dtype"], t["shape"], f.read(t["data_offsets"][1] - t["data_offsets"][0])


def load_json(folder, name):
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf8") as f:
        return json.load(f)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    folder, out = sys.argv[1:]
    config, tok = load_json(folder, "config.json"), load_json(folder, "tokenizer_config.json")
    with open(os.path.join(folder, "vocab.txt"), encoding="utf8") as f:
        tokens = [line.rstrip("\n") for line in f]
    w = Writer()
    w.key("general.architecture", "bert")
    w.key("general.name", "all-MiniLM-L6-v2")
    w.key("bert.block_count", config["num_hidden_layers"])
    w.key("bert.context_length", config["max_position_embeddings"])
    w.key("bert.embedding_length", config["hidden_size"])
    w.key("bert.feed_forward_length", config["intermediate_size"])
    w.key("bert.attention.head_count", config["num_attention_heads"])
    w.key("bert.attention.layer_norm_epsilon", float(config["layer_norm_eps"]))
    w.key("bert.attention.causal", False)
    w.key("bert.pooling_type", 1)
    w.key("deja.embed.id", "all-minilm-l6-v2")
    w.key("deja.embed.prefix", "")
    w.key("deja.embed.pooling", "mean")
    w.key("deja.embed.max_tokens", load_json(folder, "sentence_bert_config.json").get("max_seq_length", 256))
    w.key("tokenizer.ggml.model", "bert")
    w.key("tokenizer.ggml.lowercase", bool(tok.get("do_lower_case", True)))
    w.array("tokenizer.ggml.tokens", tokens, STRING)
    w.array("tokenizer.ggml.token_type", [2 if t == "[UNK]" else 3 if t in SPECIAL else 1 for t in tokens], I32)
    for token, what in SPECIAL.items():
        w.key(f"tokenizer.ggml.{what}_token_id", tokens.index(token))
    for name, dtype, shape, data in safetensors(os.path.join(folder, "model.safetensors")):
        ours = gguf_name(name)
        if ours is None:
            continue
        if dtype != "F32":
            sys.exit(f"tensor {name} is {dtype}, expected F32")
        w.tensor(ours, list(reversed(shape)), F32, data)
    w.save(out)


if __name__ == "__main__":
    main()
