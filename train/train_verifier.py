#!/usr/bin/env python3
"""Trains the pair net of engine/model/pair_net.h and writes its weights.

    train/train_verifier.py --tools BUILD/release --model E5.gguf [--lines FILE..] [--own FILE..] [--out cache/verifier_data/e5.gguf]

BUILD/release holds verifier_states (cmake --build BUILD/release --target verifier_states). Needs train/requirements.txt. --own: a
deployment's own judged pairs in the same form, counted three times. Two stages: `alone` (each text by itself, all pairs of neighbouring
lines in a batch at once), then `joint` (both texts together, on the pairs the first finds hard). Same seed, same machine, same weights.
Source of the recipe's parts: sentence pairs over |u-v|, u*v (arXiv:1908.10084), hard negatives from the model itself (arXiv:2007.00808)."""
import argparse
import glob
import json
import os
import pickle
import random
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=true intra_op_parallelism_threads=2")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import measure  # noqa: E402
import net  # noqa: E402
import pairs  # noqa: E402
import weights  # noqa: E402

LAYER = 9
TEXTS, PAIRS, JOINT_PAIRS = 96, 896, 192  # of one batch


def neighbours(lines, states, k=30):
    out = {}
    for lang in ("en", "zh"):
        who = [i for i, x in enumerate(lines) if x["lang"] == lang]
        if not who:
            continue
        m = np.stack([states.vector[lines[i]["q"]] for i in who])
        s = m @ m.T
        np.fill_diagonal(s, -1)
        for a, i in enumerate(who):
            out[i] = [who[j] for j in np.argsort(-s[a])[:k]]
    return out


def pick(x, r):
    """(text, kind) of one line for one batch; kind 0 = q, 1 = same, 2 = differ"""
    same, differ = list(x["same"]), list(x["differ"])
    if x.get("close") and (r.random() < 0.6 or not same):
        same.append(r.choice(x["close"]))
    if x.get("close_differ") and r.random() < 0.4:
        differ = [x["close_differ"][1] if d == x["close_differ"][0] else d for d in differ]
    return [(x["q"], 0)] + [(t, 1) for t in r.sample(same, min(4, len(same)))] + [(t, 2) for t in r.sample(differ, min(4, len(differ)))]


def batches(lines, near, states, r):
    """Lines that resemble each other share a batch, for its texts are each other's hard negatives."""
    left, order, out = set(range(len(lines))), list(range(len(lines))), []
    r.shuffle(order)
    batch = []
    for i in order:
        if i not in left:
            continue
        for j in [i] + [j for j in near[i] if r.random() < 0.6][:7]:
            if j not in left:
                continue
            left.discard(j)
            texts = [(t, k) for t, k in pick(lines[j], r) if 0 < len(states.ids.get(t, [])) <= net.WIDTH]
            if len(texts) < 2:
                continue
            if len(batch) + len(texts) > TEXTS:
                out.append(batch)
                batch = []
            batch += [(t, k, j) for t, k in texts]
    out.append(batch)
    r.shuffle(out)
    return [b for b in out if len(b) > 8]


def batch_pairs(batch, states, r, across):
    """All pairs inside a line; for each text four of the nearest texts of other lines, unless so near that they may be the same question."""
    out = []
    for i, (_, ki, li) in enumerate(batch):
        for j in range(i + 1, len(batch)):
            _, kj, lj = batch[j]
            if li != lj:
                continue
            if ki <= 1 and kj <= 1:
                out.append((i, j, 1, 1.0 if ki == 0 else 0.6))
            elif ki == 2 and kj == 2:
                out.append((i, j, 0, 0.25))
            else:
                out.append((i, j, 0, 0.75))
    v = np.stack([states.vector[t] for t, _, _ in batch])
    line = np.array([x[2] for x in batch])
    s = v @ v.T
    s[line[:, None] == line[None]] = -1
    for i in range(len(batch)):
        for j in r.sample(list(np.argsort(-s[i])[:8]), min(4, len(batch))):
            if 0 < s[i, j] < 0.955:
                out.append((i, int(j), 0, across))
    out = out[:PAIRS]
    out += [(0, 0, 0, 0.0)] * (PAIRS - len(out))
    a, b, y, w = map(np.array, zip(*out))
    return a.astype(np.int32), b.astype(np.int32), y.astype(np.float32), w.astype(np.float32)


def cross_entropy(z, y, w):
    y = y * 0.96 + 0.02
    return (w * (jax.nn.softplus(z) - y * z)).sum() / w.sum()


def loss(p, states, seen, vector, a, b, y, w, ja, jb, jmark, jy, jw, key):
    k = jax.random.split(key)
    sketch = net.alone(p["alone"], states, seen)
    first = cross_entropy(net.alone_logit(p["alone"], sketch[a], sketch[b], vector[a], vector[b], k[0]), y, w)
    x = net.joint_tokens(p["joint"], states)
    z = net.joint_logit(p["joint"], x[ja], x[jb], seen[ja], seen[jb], jmark[:, 0], jmark[:, 1], vector[ja], vector[jb], k[1])
    return first + cross_entropy(z, jy, jw)


def train(p, lines, states, o):
    r, near, work = random.Random(o.seed), neighbours(lines, states), []
    for epoch in range(int(np.ceil(o.epochs))):
        e = batches(lines, near, states, r)
        work += e[:int(len(e) * min(1.0, o.epochs - epoch))]
    step, m, v = net.adam(loss), jax.tree.map(jnp.zeros_like, p), jax.tree.map(jnp.zeros_like, p)
    key, begun, losses = jax.random.PRNGKey(o.seed), (time.time(), time.process_time()), []
    for t, batch in enumerate(work, 1):
        rate = o.rate * min(1.0, t / (0.06 * len(work) + 1)) * max(0.01, 1 - t / len(work))
        key, sub = jax.random.split(key)
        texts = [x for x, _, _ in batch]
        a, b, y, w = batch_pairs(batch, states, r, o.across)
        real = np.flatnonzero(w)
        pick = np.array(r.sample(list(real), min(JOINT_PAIRS, len(real))))
        pick = np.pad(pick, (0, JOINT_PAIRS - len(pick)))
        mark = np.stack([net.marks(states, texts[a[i]], texts[b[i]]) for i in pick])
        jw = w[pick] * (np.arange(JOINT_PAIRS) < len(real))
        p, m, v, value = step(p, m, v, float(t), rate, *net.pad(states, texts, TEXTS), a, b, y, w, a[pick], b[pick], mark, y[pick],
                              jw.astype(np.float32), sub)
        losses.append(float(value))
        if t in (5, 20) or t % 100 == 0 or t == len(work):
            print("%d/%d loss %.4f, %.0f s, %.0f s of CPU" % (t, len(work), np.mean(losses[-100:]), time.time() - begun[0],
                                                             time.process_time() - begun[1]), flush=True)
    return p


class Scores:
    """pairs -> logits of both towers"""

    def __init__(self, p, states):
        self.p, self.states, self.sketch = p, states, {}
        self.alone = jax.jit(net.alone)
        self.alone_logit = jax.jit(net.alone_logit)
        self.joint = jax.jit(lambda p, s, seen, mark, v: net.joint_logit(
            p, net.joint_tokens(p, s[0]), net.joint_tokens(p, s[1]), seen[0], seen[1], mark[:, 0], mark[:, 1], v[0], v[1]))

    def __call__(self, todo, joint=False, n=128):
        ok, out = [k for k, (a, b) in enumerate(todo) if a in self.states.ids and b in self.states.ids], np.full(len(todo), -30.0, np.float32)
        if not joint:
            new = list(dict.fromkeys(t for k in ok for t in todo[k] if t not in self.sketch))
            for c in range(0, len(new), n):
                rows, seen, _ = net.pad(self.states, new[c:c + n], n)
                self.sketch.update(zip(new[c:c + n], np.asarray(self.alone(self.p["alone"], rows, seen))))
        for c in range(0, len(ok), n):
            ks = ok[c:c + n]
            a, b = [todo[k][0] for k in ks] + [todo[ks[0]][0]] * (n - len(ks)), [todo[k][1] for k in ks] + [todo[ks[0]][1]] * (n - len(ks))
            if joint:
                (ra, sa, va), (rb, sb, vb) = net.pad(self.states, a, n), net.pad(self.states, b, n)
                mark = np.stack([net.marks(self.states, x, y) for x, y in zip(a, b)])
                z = self.joint(self.p["joint"], (ra, rb), (sa, sb), mark, (va, vb))
            else:
                vector = [np.stack([self.states.vector[t] for t in side]) * net.DIM ** 0.5 for side in (a, b)]
                sketch = [np.stack([self.sketch[t] for t in side]) for side in (a, b)]
                z = self.alone_logit(self.p["alone"], *sketch, *vector)
            out[ks] = np.asarray(z)[:len(ks)]
        return out


def read_fow(path):
    """Question pairs of the fow-cache wheel (CC BY 4.0, Mabon ap Gwyn); every fifth is kept for evaluation."""
    out = []
    with open(path, encoding="utf8") as f:
        for i, row in enumerate(map(json.loads, f)):
            if i % 5 != 4:
                a, b = pairs.tidy(row["a"]), pairs.tidy(row["b"])
                out.append({"lang": "en", "domain": "fow", "q": a, "same": [b] if row["same_answer"] else [],
                            "differ": [] if row["same_answer"] else [b], "validation": False})
    return out


def options():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--tools", required=True)
    a.add_argument("--model", required=True)
    a.add_argument("--lines", nargs="*", default=sorted(glob.glob(os.path.join(HERE, "data", "*.jsonl"))))
    a.add_argument("--own", nargs="*", default=[])
    a.add_argument("--fow")
    a.add_argument("--refuse", nargs="*", default=[], help="evaluation files: lines that share a text with them are left out")
    a.add_argument("--states", default=os.path.join(os.path.expanduser("~"), ".cache", "deja", "train"))
    a.add_argument("--out", default="verifier_e5.gguf")
    a.add_argument("--keep", help="also keep the float32 weights here, stage by stage; a stage found there is not trained again")
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--rate", type=float, default=1e-3)
    a.add_argument("--epochs", type=float, default=3)
    a.add_argument("--across", type=float, default=0.3, help="weight of pairs from different lines")
    return a.parse_args()


def stage(o, name, train):
    path = o.keep and os.path.join(o.keep, name + ".pkl")
    if path and os.path.exists(path):
        with open(path, "rb") as f:
            return jax.tree.map(jnp.asarray, pickle.load(f))
    p = train()
    if path:
        os.makedirs(o.keep, exist_ok=True)
        with open(path, "wb") as f:
            pickle.dump(jax.tree.map(np.asarray, p), f)
    return p


def main():
    o = options()
    jax.config.update("jax_default_prng_impl", "unsafe_rbg")  # dropout only; several times faster here
    jax.config.update("jax_compilation_cache_dir", os.path.join(o.states, "compiled"))
    lines = pairs.read_lines(o.lines, pairs.texts_to_refuse(o.refuse)) + 3 * pairs.read_lines(o.own)
    pairs.add_rewordings(lines, o.seed)
    if o.fow:
        lines += read_fow(o.fow)
    states = pairs.States(os.path.join(o.tools, "verifier_states"), o.model, LAYER, o.states)
    states.add(pairs.texts_of(lines))
    lines = [x for x in lines if x["q"] in states.ids]
    training, held = [x for x in lines if not x["validation"]], [x for x in lines if x["validation"]]
    print("%d lines to train on, %d of other domains to validate with" % (len(training), len(held)), flush=True)

    start = {"alone": net.new_tower(o.seed, False), "joint": net.new_tower(o.seed + 1, True)}
    p = stage(o, "net", lambda: train(start, training, states, o))
    score = Scores(p, states)
    measure.report(held, states.vector, lambda todo: np.array([states.vector[a] @ states.vector[b] for a, b in todo]), "cosine")
    measure.report(held, states.vector, score, "alone")
    measure.report(held, states.vector, lambda todo: score(todo, joint=True), "joint")
    measure.report(held, states.vector, lambda todo: score(todo) + score(todo, joint=True), "sum")
    weights.save(o.out, os.path.expanduser(o.model), LAYER, p, net.HEADS)


if __name__ == "__main__":
    main()
