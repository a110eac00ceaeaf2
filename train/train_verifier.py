#!/usr/bin/env python3
"""Trains the pair net of engine/model/pair_net.h, calibrates it (calibrate.py) and writes its weights.

    train/train_verifier.py --tools BUILD/release --model E5.gguf [--lines FILE..] [--own FILE..] [--out embeddings/pair_weights.gguf]

BUILD/release holds verifier_states and verifier_pairs (cmake --build BUILD/release --target verifier_states verifier_pairs). Needs numpy
(train/requirements.txt). --own: a deployment's own judged pairs in the same form, counted three times; a minute or two on one core once
the token states are there (five minutes for all of train/data, kept in --states). Same seed, same machine, same weights."""
import argparse
import glob
import json
import os
import pickle
import random
import sys
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import calibrate  # noqa: E402
import features  # noqa: E402
import measure  # noqa: E402
import pairs  # noqa: E402
import weights  # noqa: E402

LAYER = 9
HIDDEN = {"alone": 64, "joint": 96}


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


def training_pairs(lines, near, states, r):
    """(a, b, same?, weight). Of every line: each of its kinds of pair; and of other lines the questions that look like it, unless so alike
    that they may be the same question in another file. The same question: the question with its wordings, wordings with each other, and
    rewordings by rule; differing: mostly the user's wordings against near questions, which is what a cache meets."""
    out = []
    for i, x in enumerate(lines):
        q, same, differ, close = x["q"], x["same"], x["differ"], x.get("close", [])
        mine = [(q, s, 1, 1.0) for s in same] + [(q, c, 1, 0.7) for c in close]
        two = [(a, b) for k, a in enumerate(same) for b in same[k + 1:]]
        mine += [(a, b, 1, 0.6) for a, b in r.sample(two, min(4, len(two)))]
        mine += [(q, d, 0, 0.8) for d in differ]
        cross = [(s, d) for s in same for d in differ]
        mine += [(s, d, 0, 1.0) for s, d in r.sample(cross, min(12, len(cross)))]
        if x.get("close_differ"):
            mine.append((r.choice([q] + close), x["close_differ"][1], 0, 0.8))
        two = [(a, b) for k, a in enumerate(differ) for b in differ[k + 1:]]
        mine += [(a, b, 0, 0.4) for a, b in r.sample(two, min(2, len(two)))]
        for j in r.sample(near[i][:12], min(4, len(near[i]))):
            s = r.choice(same or [q])
            if states.vector[q] @ states.vector[lines[j]["q"]] < 0.945:
                mine.append((s, lines[j]["q"], 0, 0.7))
        out += mine
    ok = [p for p in out if all(0 < len(states.ids.get(t, ())) <= features.WIDTH for t in p[:2])]
    r.shuffle(ok)
    return ok


class Scores:
    """pairs -> logits; the texts must be among those it was made for, others get -30"""

    def __init__(self, texts, heads):
        self.texts, self.heads = texts, heads

    def __call__(self, todo, joint=False):
        ok = [k for k, (a, b) in enumerate(todo) if a in self.texts.at and b in self.texts.at]
        out = np.full(len(todo), -30.0, np.float32)
        name = "joint" if joint else "alone"
        z = features.compute(getattr(features, name), self.texts, [todo[k] for k in ok])
        out[ok] = self.heads[name](z)
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


def write_golden(path, lines, states, score, seed):
    """50 pairs with the float32 logits, for tests/unit/model/test_pair_net.c"""
    r = random.Random(seed)
    todo = [(x["q"], r.choice(x["same"] if i % 2 else x["differ"])) for i, x in enumerate(r.sample(lines, 60)) if x["same"] and x["differ"]]
    todo = [p for p in todo if max(len(states.ids[t]) for t in p) <= features.WIDTH][:50]
    with open(path, "w", encoding="utf8") as f:
        for (a, b), first, second in zip(todo, score(todo), score(todo, joint=True)):
            f.write(json.dumps({"a": a, "b": b, "cosine": round(float(states.vector[a] @ states.vector[b]), 6), "alone": round(float(first), 5),
                                "joint": round(float(second), 5)}, ensure_ascii=False) + "\n")


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
    a.add_argument("--wrong", type=float, default=0.0075, help="share of the held-back requests that may get a wrong answer")
    a.add_argument("--golden", help="also write 50 pairs with their logits here")
    a.add_argument("--keep", help="keep the float32 weights here; found there, nothing is trained again")
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--rate", type=float, default=1.5e-3)
    a.add_argument("--epochs", type=int, default=6)
    a.add_argument("--heads", type=int, default=3, help="nets of different seeds whose mean is shipped")
    return a.parse_args()


def stage(o, name, make):
    path = o.keep and os.path.join(o.keep, name + ".pkl")
    if path and os.path.exists(path):
        with open(path, "rb") as f:
            return pickle.load(f)
    p = make()
    if path:
        os.makedirs(o.keep, exist_ok=True)
        with open(path, "wb") as f:
            pickle.dump(p, f)
    return p


def prepare(o):
    lines = pairs.read_lines(o.lines, pairs.texts_to_refuse(o.refuse)) + 3 * pairs.read_lines(o.own)
    pairs.add_rewordings(lines, o.seed)
    if o.fow:
        lines += read_fow(o.fow)
    states = pairs.States(os.path.join(o.tools, "verifier_states"), os.path.expanduser(o.model), LAYER, o.states)
    states.add(pairs.texts_of(lines))
    lines = [x for x in lines if x["q"] in states.ids]
    return states, [x for x in lines if not x["validation"]], [x for x in lines if x["validation"]]


def train(o, states, training):
    r = random.Random(o.seed)
    todo = training_pairs(training, neighbours(training, states), states, r)
    projection = features.fit_projection(states, pairs.texts_of(training), r)
    texts = features.Texts(states, [t for p in todo for t in p[:2]], projection)
    y, w = np.array([p[2] for p in todo], np.float32), np.array([p[3] for p in todo], np.float32)
    heads = {}
    for name in ("alone", "joint"):
        z = features.compute(getattr(features, name), texts, [p[:2] for p in todo])
        print("%s: %d pairs of %d features, %.0f s of CPU" % (name, *z.shape, time.process_time()), flush=True)
        several = [features.Head(z.shape[1], HIDDEN[name], o.seed + i) for i in range(o.heads)]
        for i, head in enumerate(several):
            head.train(z, y, w, o.epochs, o.rate, o.seed + i, say=lambda t: print("%s %.0f s of CPU" % (t, time.process_time()), flush=True))
        heads[name] = features.Head.mean_of(several)
    return {"projection": projection, "heads": heads}


def main():
    o = options()
    states, training, held = prepare(o)
    print("%d lines to train on, %d of other domains; %.0f s of CPU" % (len(training), len(held), time.process_time()), flush=True)
    p = stage(o, "net", lambda: train(o, states, training))
    score = Scores(features.Texts(states, pairs.texts_of(held), p["projection"]), p["heads"])
    measure.report(held, states.vector, lambda todo: np.array([states.vector[a] @ states.vector[b] for a, b in todo]), "cosine")
    measure.report(held, states.vector, score, "alone")
    measure.report(held, states.vector, lambda todo: score(todo, joint=True), "joint")
    text = calibrate.calibrate(held, states, score, os.path.join(o.tools, "verifier_pairs"), o.wrong)
    weights.save(o.out, os.path.expanduser(o.model), LAYER, p, text)
    if o.golden:
        write_golden(o.golden, held, states, score, o.seed)
    print("%.0f s of CPU in all" % time.process_time())


if __name__ == "__main__":
    main()
