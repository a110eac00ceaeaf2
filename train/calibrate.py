#!/usr/bin/env python3
"""Fits the weights of cache/verifier.h on the domains the nets were not trained on, with the shipped code's own numbers, and fixes
the thresholds there: at most 1 of 100 requests wrong, every near question stored, three candidates each.

    train/calibrate.py --tools BUILD/release --model E5.gguf --net PAIR_NET.gguf [--wrong 0.01]

writes them into the net's file. Every domain is scored by weights fitted without it. --own: a deployment's own judged pairs, all used."""
import argparse
import glob
import json
import os
import sys

import numpy as np

import measure
import pairs
import tools
import weights

HERE = os.path.dirname(os.path.abspath(__file__))


def fit(x, y, w, names, steps=400):
    """Logistic regression by projected gradient with per-feature scales: guards only ever speak against, nets only for."""
    scale = np.maximum(x.std(0), 0.05)
    scale[0] = 1
    z, b, v = x / scale, np.zeros(x.shape[1]), np.zeros(x.shape[1])
    low, high = np.full(len(b), -np.inf), np.full(len(b), np.inf)
    for i, n in enumerate(names):
        if n.startswith("guard:"):
            high[i] = 0
        if n in ("alone", "joint", "same", "asks_alike"):
            low[i] = 0
    w = w / w.sum()
    for t in range(steps):
        p = 1 / (1 + np.exp(-np.clip(z @ b, -30, 30)))
        g = z.T @ (w * (p - y)) + 1e-4 * np.r_[0, b[1:]]
        v = 0.9 * v + g
        b = np.clip(b - 1.0 * (1 - t / steps) * v, low * scale, high * scale)
    return b / scale


def probability(x, b):
    return 1 / (1 + np.exp(-np.clip(x @ b, -30, 30)))


def final(judged, p):
    """What the chain makes of a candidate: explained ones are certain, hard guards refuse, no opinion is no."""
    z = np.where(judged.same & (judged.hard == 0), 1.0, p)
    return np.where(judged.hard != 0, 0.0, np.where(np.isnan(judged.alone) & ~judged.same, 0.0, z))


def requests_of(lines, vector):
    """per request: domain, and candidates (pair, own) with and without its own text stored"""
    out = []
    for domain in dict.fromkeys(x["domain"] for x in lines):
        stores = measure.stores_of([x for x in lines if x["domain"] == domain], wordings=5)
        out += [(domain, have, lack) for have, lack in measure.dense_requests(stores, vector)]
    return out


def calibrate(lang, lines, vector, o):
    requests = requests_of(lines, vector)
    rows = [(d, q, s, own) for d, have, lack in requests for q, s, own in have + lack]
    lines_rows = [(x["domain"], a, b, y) for x in lines for y, todo in (
        (True, [(x["q"], s) for s in x["same"]]), (False, [(x["q"], d) for d in x["differ"]]),
        (False, [(s, d) for s in x["same"] for d in x["differ"]])) for a, b in todo]
    every = rows + lines_rows
    judged = tools.Judged(os.path.join(o.tools, "verifier_pairs"), o.model, [(a, b) for _, a, b, _ in every], o.net)
    domain, y = np.array([r[0] for r in every]), np.array([float(r[3]) for r in every])
    w = np.r_[np.ones(len(rows)), np.full(len(lines_rows), 0.5)]
    usable = (judged.hard == 0) & ~np.isnan(judged.alone)
    out, scores = [], []
    for joint in (False, True):
        x, names = judged.features(joint)
        p = np.zeros(len(y))
        for d in np.unique(domain):
            mine = domain == d
            p[mine] = probability(x[mine], fit(x[usable & ~mine], y[usable & ~mine], w[usable & ~mine], names))
        out.append((names, fit(x[usable], y[usable], w[usable], names)))
        scores.append(final(judged, p))
    return requests, rows, scores, out


def thresholds(requests, rows, scores, wrong, lang):
    """first, alone, hit"""
    result = []
    plain = [(have, lack) for _, have, lack in requests]
    for name, z in zip(("alone", "joint"), scores):
        right, mistaken, missing = measure.best_of(plain, lambda todo, z=z: z[:len(rows)])
        for share in (0.005, wrong, 0.02, 0.05):
            t = measure.threshold_at(right, mistaken, missing, share)
            print("%s %s: at %.1f %% wrong p > %.4f, right %.1f %%" % (lang, name, 100 * share, t, 100 * (right > t).mean()), file=sys.stderr)
            if share == wrong:
                result.append(min(t + 1e-6, 0.9999))
    own = np.array([r[3] for r in rows])
    hits = own & (scores[1][:len(rows)] > result[1])
    first = np.quantile(scores[0][:len(rows)][hits], 0.02) if hits.any() else 0.5
    return float(min(first, result[1])), result[0], result[1]


def as_json(fits, limits):
    out = {}
    for lang, (first, alone, hit) in limits.items():
        looks = []
        for names, b in fits[lang]:
            values = {n: float("%.5g" % v) for n, v in zip(names, b)}
            looks.append({n: v for n, v in values.items() if not n.startswith("guard:")} |
                         {"guards": {n[6:]: v for n, v in values.items() if n.startswith("guard:")}})
        out[lang] = {"first": round(first, 5), "alone": round(alone, 5), "hit": round(hit, 5), "looks": looks}
    return json.dumps(out)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--tools", required=True)
    a.add_argument("--model", required=True)
    a.add_argument("--net", required=True)
    a.add_argument("--lines", nargs="*", default=sorted(glob.glob(os.path.join(HERE, "data", "*.jsonl"))))
    a.add_argument("--own", nargs="*", default=[])
    a.add_argument("--states", default=os.path.join(os.path.expanduser("~"), ".cache", "deja", "train"))
    a.add_argument("--wrong", type=float, default=0.01)
    o = a.parse_args()
    lines = [x for x in pairs.read_lines(o.lines) if x["validation"]] + pairs.read_lines(o.own)
    states = pairs.States(os.path.join(o.tools, "verifier_states"), o.model, 9, o.states)
    states.add(pairs.texts_of(lines))
    fits, limits = {}, {}
    for lang in ("en", "zh"):
        group = [x for x in lines if x["lang"] == lang]
        requests, rows, scores, fits[lang] = calibrate(lang, group, states.vector, o)
        limits[lang] = thresholds(requests, rows, scores, o.wrong, lang)
    weights.set_key(o.net, "deja-pair.calibration", as_json(fits, limits))


if __name__ == "__main__":
    main()
