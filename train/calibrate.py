"""Weights of cache/verifier.h and its thresholds, fitted on the domains the nets were not trained on: each domain is scored by weights
fitted without it, and a threshold is where at most --wrong of the requests get a wrong answer, with every near question stored too and the three nearest
candidates tried (whether the request's own question is stored or not). numpy."""
import json
import sys

import numpy as np

import measure
import tools


def fit(x, y, w, names, steps=300):
    """Logistic regression by projected gradient with a scale for each feature: guards only ever speak against, nets only for."""
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
        v = 0.9 * v + z.T @ (w * (p - y)) + 1e-4 * np.r_[0, b[1:]]
        b = np.clip(b - 1.0 * (1 - t / steps) * v, low * scale, high * scale)
    return b / scale


def probability(x, b):
    return 1 / (1 + np.exp(-np.clip(x @ b, -30, 30)))


def final(judged, p):
    """What the chain makes of a candidate: explained ones are certain, hard guards refuse."""
    return np.where(judged.hard != 0, 0.0, np.where(judged.same, 1.0, p))


def requests_of(lines, vector):
    """(domain, candidates with, candidates without the request's own question stored)"""
    out = []
    for domain in dict.fromkeys(x["domain"] for x in lines):
        stores = measure.stores_of([x for x in lines if x["domain"] == domain], wordings=5)
        out += [(domain, have, lack) for have, lack in measure.dense_requests(stores, vector)]
    return out


def thresholds(lang, plain, n, scores, wrong):
    """-> first, alone, hit; prints what other shares would give"""
    result = []
    for name, z in zip(("alone", "joint"), scores):
        right, mistaken, missing = measure.best_of(plain, lambda todo, z=z: z[:n])
        for share in sorted({0.002, 0.005, 0.01, wrong, 0.02, 0.05}):
            t = measure.threshold_at(right, mistaken, missing, share)
            print("%s %s: %.1f %% wrong at p > %.4f, right %.1f %%" % (lang, name, 100 * share, t, 100 * (right > t).mean()), flush=True)
            if share == wrong:
                result.append(min(t + 1e-6, 0.9999))
    return result


def calibrate(lines, states, score, tool, wrong):
    """score(pairs, joint) -> logits. -> the JSON text of cache/verifier.c"""
    out = {}
    for lang in ("en", "zh"):
        group = [x for x in lines if x["lang"] == lang]
        requests = requests_of(group, states.vector)
        rows = [(d, q, s, own) for d, have, lack in requests for q, s, own in have + lack]
        every = rows + [(x["domain"], a, b, y) for x in group for y, todo in (
            (True, [(x["q"], s) for s in x["same"]]), (False, [(x["q"], d) for d in x["differ"]]),
            (False, [(s, d) for s in x["same"] for d in x["differ"]])) for a, b in todo]
        todo = [(a, b) for _, a, b, _ in every]
        judged = tools.Judged(tool, "-", todo)
        judged.alone, judged.joint = score(todo), score(todo, joint=True)
        judged.cosine = np.array([states.vector[a] @ states.vector[b] for a, b in todo])
        domain, y = np.array([r[0] for r in every]), np.array([float(r[3]) for r in every])
        w = np.r_[np.ones(len(rows)), np.full(len(every) - len(rows), 0.5)]
        usable = judged.hard == 0
        looks, scores = [], []
        for joint in (False, True):
            x, names = judged.features(joint)
            p = np.zeros(len(y))
            for d in np.unique(domain):
                mine = domain == d
                p[mine] = probability(x[mine], fit(x[usable & ~mine], y[usable & ~mine], w[usable & ~mine], names))
            values = {n: float("%.5g" % v) for n, v in zip(names, fit(x[usable], y[usable], w[usable], names))}
            looks.append({n: v for n, v in values.items() if not n.startswith("guard:")} |
                         {"guards": {n[6:]: v for n, v in values.items() if n.startswith("guard:")}})
            scores.append(final(judged, p))
        n = len(rows)
        alone, hit = thresholds(lang, [(have, lack) for _, have, lack in requests], n, scores, wrong)
        own = np.array([bool(r[3]) for r in rows])
        hits = own & (scores[1][:n] > hit)
        first = float(np.quantile(scores[0][:n][hits], 0.03)) if hits.any() else 0.5
        passing = (scores[0][:n] >= first).mean()
        print("%s: the first look lets %.1f %% of the candidates pass, and 97 %% of the hits" % (lang, 100 * passing), flush=True)
        out[lang] = {"first": round(min(first, hit), 5), "alone": round(alone, 5), "hit": round(hit, 5), "looks": looks}
        print(json.dumps(out[lang]), file=sys.stderr)
    return json.dumps(out)
