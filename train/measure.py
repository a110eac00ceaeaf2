"""Figures of a scorer: ranking of pairs, and a dense store asked as a cache is asked (the three nearest by cosine, the best of them)."""
import math

import numpy as np


def auc(same, differ):
    both = np.concatenate([same, differ])
    rank = both.argsort().argsort().astype(float)
    return (rank[:len(same)].sum() - len(same) * (len(same) - 1) / 2) / (len(same) * len(differ))


def recall_at(same, differ, share):
    """share of `same` above the loosest threshold that lets at most `share` of `differ` pass"""
    d = np.sort(differ)[::-1]
    k = int(share * len(d))
    return float((same > (d[k] if k < len(d) else -np.inf)).mean())


def wilson(k, n, z=1.96):
    if not n:
        return 0.0, 1.0
    p, d = k / n, 1 + z * z / n
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, (p + z * z / (2 * n) - half) / d), min(1.0, (p + z * z / (2 * n) + half) / d)


def dense_requests(stores, vector, asks=lambda t: t):
    """stores: (stored texts, [(query, index of its own text)]). -> per request the candidates (query, stored, is own) with and without
    the own text in the store. asks: the same for texts that ask the same; each of those is the query's own."""
    out = []
    for stored, queries in stores:
        matrix = np.stack([vector[t] for t in stored])
        for q, own in queries:
            near, mine = np.argsort(-(matrix @ vector[q])), asks(stored[own])
            out.append(([(q, stored[j], asks(stored[j]) == mine) for j in near[:3]],
                        [(q, stored[j], False) for j in near[:8] if asks(stored[j]) != mine][:3]))
    return out


def best_of(requests, score):
    """score: pairs -> array. -> right f[n] (best score where the best candidate is the own text, else -inf), wrong f[n] (best score where it
    is another), missing f[n] (best score when the own text is not stored: any hit is wrong)"""
    pairs = [(q, s) for have, lack in requests for q, s, _ in have + lack]
    z, at = score(pairs), 0
    right, wrong, missing = [], [], []
    for have, lack in requests:
        a, b = z[at:at + len(have)], z[at + len(have):at + len(have) + len(lack)]
        at += len(have) + len(lack)
        k = int(np.argmax(a))
        right.append(a[k] if have[k][2] else -np.inf)
        wrong.append(-np.inf if have[k][2] else a[k])
        missing.append(b.max())
    return np.array(right), np.array(wrong), np.array(missing)


def threshold_at(right, wrong, missing, share):
    """the lowest threshold at which at most `share` of the requests get a wrong answer, whether their own text is stored or not"""
    for t in np.sort(np.unique(np.concatenate([missing, wrong[np.isfinite(wrong)]]))):
        if (missing > t).mean() <= share and (wrong > t).mean() <= share:
            return float(t)
    return float(max(missing.max(), wrong.max()))


def stores_of(lines, wordings=4):
    """every domain a store: its questions and its near questions; asked by the users' wordings"""
    by = {}
    for x in lines:
        by.setdefault(x["domain"], []).append(x)
    out = []
    for group in by.values():
        stored = list(dict.fromkeys([x["q"] for x in group] + [d for x in group for d in x["differ"]]))
        at = {t: i for i, t in enumerate(stored)}
        out.append((stored, [(s, at[x["q"]]) for x in group for s in x["same"][:wordings]]))
    return out


def report(lines, vector, score, name=""):
    out = {}
    for lang in ("en", "zh"):
        group = [x for x in lines if x["lang"] == lang]
        if not group:
            continue
        qs = score([(x["q"], s) for x in group for s in x["same"]])
        qd = score([(x["q"], d) for x in group for d in x["differ"]])
        sd = score([(s, d) for x in group for s in x["same"] for d in x["differ"]])
        right, wrong, missing = best_of(dense_requests(stores_of(group), vector), score)
        dense = []
        for share in (0.01, 0.02, 0.05):
            t = threshold_at(right, wrong, missing, share)
            dense.append("%.1f" % (100 * (right > t).mean()))
        out[lang] = dense
        print("%s %s: q/same against q/differ AUC %.3f, against same/differ %.3f R@1/2/5 %s; dense store, right at 1/2/5 %% wrong %s" % (
            name, lang, auc(qs, qd), auc(qs, sd), "/".join("%.0f" % (100 * recall_at(qs, sd, f)) for f in (0.01, 0.02, 0.05)), "/".join(dense)),
            flush=True)
    return out
