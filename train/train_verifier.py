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

LAYER, TOP = 9, 3
SEGMENTS, ROWS = 96, 1024          # of one batch, alone
JOINT_SEGMENTS, JOINT_ROWS = 48, 1024
PAIRS = 1024
LONG = [0] * 33                    # tokens: the few longer texts would double the price of attention for all


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
    batch, rows = [], 0
    for i in order:
        if i not in left:
            continue
        for j in [i] + [j for j in near[i] if r.random() < 0.6][:7]:
            if j not in left:
                continue
            left.discard(j)
            texts = [(t, k) for t, k in pick(lines[j], r) if len(states.ids.get(t, LONG)) < len(LONG)]
            n = sum(len(states.ids[t]) for t, _ in texts)
            if len(texts) < 2:
                continue
            if rows + n >= ROWS or len(batch) + len(texts) > SEGMENTS:
                out.append(batch)
                batch, rows = [], 0
            batch += [(t, k, j) for t, k in texts]
            rows += n
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
    return a.astype(np.int32), b.astype(np.int32), y.astype(np.float32), w.astype(np.float32), (v[a] * v[b]).sum(1).astype(np.float32)


def cross_entropy(z, y, w):
    y = y * 0.96 + 0.02
    return (w * (jax.nn.softplus(z) - y * z)).sum() / w.sum()


def alone_loss(p, x, at, n, width, a, b, y, w, cosine, key):
    u, m = net.alone(p, x, at, n, width)
    return cross_entropy(net.head(p, u[a], u[b], m[a], m[b], cosine, key), y, w)


def joint_loss(p, x, at, n, width, y, w, cosine, key):
    return cross_entropy(net.joint(p, x, at, n, width, cosine, key), y, w)


def run(stage, p, loss, work, o, r):
    """work: list of functions that make one step's arguments."""
    step, m, v = net.adam(loss), jax.tree.map(jnp.zeros_like, p), jax.tree.map(jnp.zeros_like, p)
    key, begun, losses = jax.random.PRNGKey(o.seed), (time.time(), time.process_time()), []
    for t, make in enumerate(work, 1):
        rate = o.rate * min(1.0, t / (0.08 * len(work) + 1)) * max(0.02, 1 - t / len(work))
        key, sub = jax.random.split(key)
        x, at, n, width, *rest = make()
        p, m, v, value = step(p, m, v, float(t), rate, x, at, n, width, *rest, sub)
        losses.append(float(value))
        if t in (5, 10, 20) or t % 50 == 0 or t == len(work):
            print("%s %d/%d loss %.4f, %.0f s, %.0f s of CPU" % (stage, t, len(work), np.mean(losses[-50:]), time.time() - begun[0],
                                                                time.process_time() - begun[1]), flush=True)
    return p


def train_alone(p, lines, states, o):
    r, near, work = random.Random(o.seed), neighbours(lines, states), []

    def one(batch):
        def make():
            return (*net.pack(states, [[t] for t, _, _ in batch], SEGMENTS, ROWS), *batch_pairs(batch, states, r, o.across))
        return make

    for epoch in range(int(np.ceil(o.epochs))):
        e = [one(b) for b in batches(lines, near, states, r)]
        work += e[:int(len(e) * min(1.0, o.epochs - epoch))]
    return run("alone", p, alone_loss, work, o, r)


class AloneScore:
    """pairs -> logits of the first tower; sketches are computed once a text"""

    def __init__(self, p, states):
        self.p, self.states, self.at, self.u, self.m = p, states, {}, [], []
        self.sketch = jax.jit(net.alone, static_argnums=(3, 4))
        self.head = jax.jit(net.head)

    def add(self, texts):
        new = sorted({t for t in texts if t not in self.at and t in self.states.ids}, key=lambda t: len(self.states.ids[t]))
        batch, rows = [], 0
        for t in new + [None]:
            n = len(self.states.ids[t]) if t else 0
            if batch and (t is None or rows + n >= ROWS or len(batch) == SEGMENTS):
                u, m = self.sketch(self.p, *net.pack(self.states, [[b] for b in batch], SEGMENTS, ROWS))
                for k, b in enumerate(batch):
                    self.at[b] = len(self.u)
                    self.u.append(np.asarray(u[k]))
                    self.m.append(np.asarray(m[k]))
                batch, rows = [], 0
            if t:
                batch.append(t)
                rows += n

    def __call__(self, todo):
        self.add([t for pair in todo for t in pair])
        out, u, m = np.full(len(todo), -30.0, np.float32), np.stack(self.u), np.stack(self.m)
        ok = [k for k, (a, b) in enumerate(todo) if a in self.at and b in self.at]
        for c in range(0, len(ok), 2048):
            k = ok[c:c + 2048]
            a, b = [self.at[todo[i][0]] for i in k], [self.at[todo[i][1]] for i in k]
            cosine = np.array([self.states.vector[todo[i][0]] @ self.states.vector[todo[i][1]] for i in k], np.float32)
            fill = 2048 - len(k)
            a, b, cosine = np.pad(a, (0, fill)), np.pad(b, (0, fill)), np.pad(cosine, (0, fill))
            out[k] = np.asarray(self.head(self.p, u[a], u[b], m[a], m[b], cosine))[:len(k)]
        return out


class JointScore:
    def __init__(self, p, states):
        self.p, self.states = p, states
        self.run = jax.jit(net.joint, static_argnums=(3, 4))

    def __call__(self, todo):
        ids, vector, out = self.states.ids, self.states.vector, np.full(len(todo), -30.0, np.float32)
        order = sorted((k for k, (a, b) in enumerate(todo) if a in ids and b in ids), key=lambda k: len(ids[todo[k][0]]) + len(ids[todo[k][1]]))
        for ks in chunks(order, lambda k: len(ids[todo[k][0]]) + len(ids[todo[k][1]])):
            cosine = np.zeros(JOINT_SEGMENTS, np.float32)
            cosine[:len(ks)] = [vector[todo[k][0]] @ vector[todo[k][1]] for k in ks]
            out[ks] = np.asarray(self.run(self.p, *net.pack(self.states, [todo[k] for k in ks], JOINT_SEGMENTS, JOINT_ROWS), cosine))[:len(ks)]
        return out


def chunks(items, rows_of):
    out, rows = [], 0
    for x in items:
        n = rows_of(x)
        if out and (rows + n >= JOINT_ROWS or len(out) == JOINT_SEGMENTS):
            yield out
            out, rows = [], 0
        out.append(x)
        rows += n
    if out:
        yield out


def hard_pairs(lines, near, score, r):
    """Per line four pairs that are the same, and of those that differ the ones the first tower likes best, two others, two of other lines."""
    candidates, out = [], []
    for i, x in enumerate(lines):
        same = [x["q"]] + x["same"]
        mine = [(a, d) for a in same for d in x["differ"]] + ([(x["q"], x["close_differ"][1])] if x.get("close_differ") else [])
        other = [(r.choice(same), lines[j]["q"]) for j in near[i][:8]] if x["same"] else []
        candidates.append((mine, other))
    z, at = score([p for mine, other in candidates for p in mine + other]), 0
    for x, (mine, other) in zip(lines, candidates):
        zm, zo = z[at:at + len(mine)], z[at + len(mine):at + len(mine) + len(other)]
        at += len(mine) + len(other)
        worst = [mine[k] for k in np.argsort(-zm)[:6]]
        differ = r.sample(worst, min(3, len(worst))) + r.sample(mine, min(1, len(mine)))
        differ += [other[k] for k in np.argsort(-zo)[:3] if zo[k] < 2.0][:1]  # above: perhaps the same question in another file
        wordings = x["same"] + x.get("close", [])
        same = [(x["q"], s) for s in r.sample(wordings, min(3, len(wordings)))]
        if len(x["same"]) > 1:
            same.append(tuple(r.sample(x["same"], 2)))
        out += [(p, 1) for p in same] + [(p, 0) for p in differ]
    return out


def train_joint(p, lines, states, score, o):
    r, near, work = random.Random(o.seed + 1), neighbours(lines, states), []
    length = lambda x: len(states.ids[x[0][0]]) + len(states.ids[x[0][1]])  # noqa: E731

    def one(todo):
        def make():
            todo2 = [((p[1], p[0]) if r.random() < 0.5 else p, y) for p, y in todo]
            y, w, cosine = np.zeros(JOINT_SEGMENTS, np.float32), np.zeros(JOINT_SEGMENTS, np.float32), np.zeros(JOINT_SEGMENTS, np.float32)
            y[:len(todo)], w[:len(todo)] = [x[1] for x in todo2], 1
            cosine[:len(todo)] = [states.vector[p[0]] @ states.vector[p[1]] for p, _ in todo2]
            return (*net.pack(states, [p for p, _ in todo2], JOINT_SEGMENTS, JOINT_ROWS), y, w, cosine)
        return make

    for epoch in range(int(np.ceil(o.joint_epochs))):
        todo = [x for x in hard_pairs(lines, near, score, r) if x[0][0] in states.ids and x[0][1] in states.ids]
        r.shuffle(todo)
        runs = []
        for c in range(0, len(todo), 512):  # by length inside pieces: little padding
            runs += list(chunks(sorted(todo[c:c + 512], key=length), length))
        r.shuffle(runs)
        work += [one(c) for c in runs[:int(len(runs) * min(1.0, o.joint_epochs - epoch))]]
    return run("joint", p, joint_loss, work, o, r)


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
    a.add_argument("--rate", type=float, default=2e-4)
    a.add_argument("--epochs", type=float, default=3)
    a.add_argument("--joint-epochs", type=float, default=1.5)
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

    start = {"stack": weights.encoder_layers(o.model, LAYER, LAYER + TOP), **net.new_head(o.seed)}
    alone = stage(o, "alone", lambda: train_alone(start, training, states, o))
    score = AloneScore(alone, states)
    measure.report(held, states.vector, lambda todo: np.array([states.vector[a] @ states.vector[b] for a, b in todo]), "cosine")
    measure.report(held, states.vector, score, "alone")
    joint = None
    if o.joint_epochs > 0:
        start = {**jax.tree.map(jnp.copy, alone), "cross": jnp.full((TOP, net.HEADS), -4.0), "marks": jnp.zeros((2, net.DIM))}
        joint = stage(o, "joint", lambda: train_joint(start, training, states, score, o))
        both = JointScore(joint, states)
        measure.report(held, states.vector, both, "joint")
        measure.report(held, states.vector, lambda todo: score(todo) + both(todo), "sum")
    weights.save(o.out, o.model, LAYER, alone, joint)


if __name__ == "__main__":
    main()
