#!/usr/bin/env python3
"""What the shipped decision chain does on question sets it was never trained on, with Wilson 95 % intervals.

    scripts/eval_verifier.py --tools BUILD/release --model E5.gguf [--natural NAME=FILE ..] [--fow FILE] [--net FILE]

Rows: question pairs (tests/data/semantic_pairs.jsonl, single questions), the FAQ files in both pairings, the dense store (all questions and
near questions stored, the three nearest tried), pairs made by train/generate.py, the fow-cache test split, and natural sets (lines
"a TAB b TAB 0/1", weighed anew from 300 own pairs). Decisions are those of cache/verifier.h at the shipped thresholds, taken from
verifier_pairs. Needs numpy."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "train"))
import measure  # noqa: E402
import pairs  # noqa: E402
import tools  # noqa: E402


def read(path):
    with open(path, encoding="utf8") as f:
        return [json.loads(x) for x in f if x.strip()]


class Chain:
    """pair -> the chain's score: 1 explained, 0 refused, else the probability after the second look (0 where the first stops it)."""

    def __init__(self, o):
        self.o, self.known = o, {}
        t = tools.Judged(os.path.join(o.tools, "verifier_pairs"), o.model, [("a", "b")], o.net).thresholds
        self.limits = {"en": t[:3], "zh": t[3:]}

    def __call__(self, todo):
        todo = [(pairs.tidy(a), pairs.tidy(b)) for a, b in todo]
        new = [p for p in dict.fromkeys(todo) if p not in self.known]
        if new:
            j = tools.Judged(os.path.join(self.o.tools, "verifier_pairs"), self.o.model, new, self.o.net)
            for i, p in enumerate(new):
                first = self.limits["zh" if j.zh[i] else "en"][0]
                if j.hard[i]:
                    z = 0.0
                elif j.same[i]:
                    z = 1.0
                elif np.isnan(j.alone[i]) or j.first[i] < first:
                    z = 0.0
                else:
                    z = 0.0 if np.isnan(j.second[i]) else j.second[i]
                self.known[p] = z, j.first[i]
        return np.array([self.known[p][0] for p in todo])

    def hit(self, lang):
        return self.limits[lang][2]


def share(name, k, n):
    low, high = measure.wilson(k, n)
    print("  %-58s %4d of %4d = %5.1f %%  [%.1f, %.1f]" % (name, k, n, 100 * k / max(n, 1), 100 * low, 100 * high))


def last_text(v):
    return v if isinstance(v, str) else None


def semantic_pairs(chain, path):
    print("question pairs")
    wrong = total = 0
    for lang in ("en", "zh"):
        rows = [r for r in read(path) if r["lang"] == lang and last_text(r["a"]) and last_text(r["b"]) and
                r["category"] not in ("multi-turn", "system-prompt") and "params_a" not in r]
        z = chain([(r["a"], r["b"]) for r in rows]) >= chain.hit(lang)
        same = np.array([r["same"] for r in rows])
        share(f"{lang}: recall of those that are the same", int(z[same].sum()), int(same.sum()))
        share(f"{lang}: false reuse of those that differ", int(z[~same].sum()), int((~same).sum()))
        wrong, total = wrong + int(z[~same].sum()), total + int((~same).sum())
        for r, hit in zip(rows, z):
            if hit and not r["same"]:
                print("    wrong:", r["category"], "|", r["a"], "|", r["b"])
    share("both: false reuse", wrong, total)


def faq(chain, lang, path, vectors):
    rows = read(path)
    hit = chain.hit(lang)
    same = [(r["q"], s) for r in rows for s in r["same"]]
    near = [(r["q"], n) for r in rows for n in r["near"]]
    style = [(n, s) for r in rows for n in r["near"] for s in r["same"]]
    print(f"FAQ {lang}")
    share("recall: question, user's wording", int((chain(same) >= hit).sum()), len(same))
    share("false: question, near question", int((chain(near) >= hit).sum()), len(near))
    share("false: near question, user's wording", int((chain(style) >= hit).sum()), len(style))
    for name, todo in (("near", near), ("near x wording", style)):
        for p, z in zip(todo, chain(todo)):
            if z >= hit:
                print("    wrong (%s, %.3f): %s | %s" % (name, z, *p))
    stored = list(dict.fromkeys(pairs.tidy(t) for r in rows for t in [r["q"]] + r["near"]))
    at = {t: i for i, t in enumerate(stored)}
    queries = [(pairs.tidy(s), at[pairs.tidy(r["q"])]) for r in rows for s in r["same"]]
    vector = vectors(stored + [q for q, _ in queries])
    twins = {pairs.tidy(t): pairs.tidy(r["texts"][0]) for r in read(os.path.join(ROOT, "tests", "data", "faq_twins.jsonl")) for t in r["texts"]}
    dense(f"dense store {lang}: {len(stored)} stored, any other text than the question's own counts as wrong", chain, hit,
          measure.dense_requests([(stored, queries)], vector), len(queries))
    dense(f"dense store {lang}: stored texts that ask the same (faq_twins.jsonl) count as one", chain, hit,
          measure.dense_requests([(stored, queries)], vector, lambda t: twins.get(t, t)), len(queries), show=True)


def dense(name, chain, hit, requests, n, show=False):
    right, wrong, missing = measure.best_of(requests, chain)
    print(name)
    share("right hit", int((right >= hit).sum()), n)
    share("wrong entry though its own is stored", int((wrong >= hit).sum()), n)
    share("hit though its own is not stored", int((missing >= hit).sum()), n)
    for limit in (0.01, 0.02):
        t = measure.threshold_at(right, wrong, missing, limit)
        print("  (with the threshold that suits this set best: right %.1f %% at %.0f %% wrong)" % (100 * (right > t).mean(), 100 * limit))
    for have, lack in requests if show else []:
        z = chain([(q, s) for q, s, _ in have + lack])
        for (q, s, own), p in zip(have + lack, z):
            if p >= hit and not own and p == max(z[:len(have)].max() if (q, s, own) in have else z[len(have):].max(), p):
                print("    wrong (%.3f): %s | %s" % (p, s, q))


class Vectors:
    def __init__(self, o):
        self.o = o

    def __call__(self, texts):
        texts, out = list(dict.fromkeys(texts)), {}
        raw = subprocess.run([os.path.join(self.o.tools, "verifier_states"), os.path.expanduser(self.o.model), "1"],
                             input="".join(t + "\n" for t in texts).encode(), stdout=subprocess.PIPE, check=True).stdout
        raw, at, dim = np.frombuffer(raw, np.uint8), 0, 384
        for t in texts:
            n = int(raw[at:at + 4].view(np.uint32)[0])
            at += 4 + (4 * n + 2 * n * dim if n else 0)
            out[t] = np.array(raw[at:at + 4 * dim]).view(np.float32) if n else np.zeros(dim, np.float32)
            at += 4 * dim if n else 0
        return out


def generated(chain, what, n, seed):
    out = subprocess.run([sys.executable, os.path.join(ROOT, "train", "generate.py"), what, str(n), str(seed)], stdout=subprocess.PIPE,
                         text=True, check=True).stdout
    rows = [json.loads(x) for x in out.splitlines()]
    z = chain([(r["a"], r["b"]) for r in rows])
    hits = np.array([p >= chain.hit(r["lang"]) for r, p in zip(rows, z)])
    print(f"made from templates ({what}), must not be reused (seed {seed})")
    for lang in sorted({r["lang"] for r in rows}):
        mine = np.array([r["lang"] == lang for r in rows])
        share(f"{lang}: false reuse", int(hits[mine].sum()), int(mine.sum()))
    shown = {}
    for r, hit, p in zip(rows, hits, z):
        if hit and shown.setdefault((r["lang"], r["kind"]), 0) < 4:
            shown[r["lang"], r["kind"]] += 1
            print("    wrong:", r["lang"], r["kind"], "%.3f" % p, "|", r["a"], "|", r["b"])


def fow(chain, path):
    rows = [r for i, r in enumerate(read(path)) if i % 5 == 4]
    z = chain([(r["a"], r["b"]) for r in rows]) >= chain.hit("en")
    same = np.array([r["same_answer"] for r in rows])
    print("fow-cache, every fifth pair")
    share("recall", int(z[same].sum()), int(same.sum()))
    share("false reuse", int(z[~same].sum()), int((~same).sum()))
    for r, hit in zip(rows, z):
        if hit and not r["same_answer"]:
            print("    wrong:", r["category"], "|", r["a"], "|", r["b"])


def natural(o, name, path):
    """By `deja eval --calibrate`: 300 pairs weigh the verifier anew, the others are judged; the mean of 200 draws."""
    with open(path, encoding="utf8") as f, tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf8") as out:
        for a, b, same in (x.rstrip("\n").split("\t") for x in f):
            out.write(json.dumps({"a": a, "b": b, "same": same == "1"}) + "\n")
        out.flush()
        print(f"{name}: 2 % false, from 300 own pairs")
        subprocess.run([os.path.join(o.tools, "deja"), "eval", out.name, "--embed", os.path.expanduser(o.model), "--calibrate", "300", "--splits",
                        "200"] + (["--net", o.net] if o.net else []), check=True)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--tools", required=True)
    a.add_argument("--model", required=True)
    a.add_argument("--net", help="weights other than the shipped ones")
    a.add_argument("--fow")
    a.add_argument("--natural", nargs="*", default=[])
    a.add_argument("--generated", type=int, default=2400)
    a.add_argument("--seed", type=int, default=1)
    o = a.parse_args()
    chain, vectors = Chain(o), Vectors(o)
    print("thresholds", chain.limits)
    semantic_pairs(chain, os.path.join(ROOT, "tests", "data", "semantic_pairs.jsonl"))
    for lang in ("en", "zh"):
        faq(chain, lang, os.path.join(ROOT, "tests", "data", f"faq_{lang}.jsonl"), vectors)
    generated(chain, "test", o.generated, o.seed)
    generated(chain, "kinds", o.generated // 2, o.seed)
    if o.fow:
        fow(chain, o.fow)
    for x in o.natural:
        natural(o, *x.split("=", 1))


if __name__ == "__main__":
    main()
