"""Runs verifier_pairs and reads what it prints."""
import os
import subprocess

import numpy as np


class Judged:
    """Columns of verifier_pairs for a list of pairs, in their order; text pairs with a tab or line break in them are not possible."""

    def __init__(self, tool, model, todo, net=None):
        distinct = list(dict.fromkeys(todo))
        out = subprocess.run([tool, os.path.expanduser(model)] + ([net] if net else []), input="".join(a + "\t" + b + "\n" for a, b in distinct),
                             stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        self.names = out[0][1:].split()
        self.thresholds = list(map(float, out[1].split()))
        rows = [r.split() for r in out[2:]]
        assert len(rows) == len(distinct), (len(rows), len(distinct))
        at = {p: i for i, p in enumerate(distinct)}
        rows = [rows[at[p]] for p in todo]
        self.fired = np.array([int(r[0]) for r in rows])
        self.hard = np.array([int(r[1]) for r in rows])
        self.by_likeness = np.array([int(r[2]) for r in rows])
        self.same = np.array([r[3] == "1" for r in rows])
        number = lambda k: np.array([float(r[k]) for r in rows])  # noqa: E731
        self.shared, self.contained, self.asks_alike = number(4), number(5), number(6)
        self.zh = np.array([r[7] == "z" for r in rows])
        self.cosine, self.alone, self.joint, self.first, self.second = (number(k) for k in (8, 9, 10, 11, 12))

    def features(self, joint):
        bits = [(self.fired >> i) & 1 for i in range(len(self.names))]
        columns = [np.ones(len(self.fired)), self.cosine - 0.9, np.nan_to_num(self.alone, nan=-20), self.shared, self.contained,
                   self.asks_alike, self.same]
        if joint:
            columns.append(np.nan_to_num(self.joint, nan=-20))
        return np.stack(columns + bits, 1).astype(float), ["bias", "cosine", "alone", "shared", "contained", "asks_alike", "same"] + \
            (["joint"] if joint else []) + ["guard:" + n for n in self.names]
