"""What the two heads of engine/model/pair_net.h look at, in numpy, many pairs at once.

Token states are projected once (centre, principal directions, each to unit variance). A text's sketch is the encoder's vector and mean
and maximum of its tokens. For two texts together every token is aligned with what resembles it in the other text (softmax over
cosines); what the alignment leaves over, and what the least explained tokens are about, is pooled."""
import numpy as np

DIM, INNER, WIDTH = 384, 160, 28
SHARP, LEFT = 12.0, 10.0  # of the alignment; of the weight of badly explained tokens


def fit_projection(states, texts, r, n=3000):
    """-> matrix [DIM][INNER], offset [INNER]: x = rows @ matrix + offset has mean 0 and variance 1 in its directions"""
    rows = np.concatenate([states.rows[t] for t in r.sample(texts, min(n, len(texts)))]).astype(np.float32)
    mean = rows.mean(0)
    value, vector = np.linalg.eigh(np.cov((rows - mean).T))
    order = np.argsort(-value)[:INNER]
    matrix = vector[:, order] / np.sqrt(value[order] + 1e-6)
    # the first directions say little about meaning and much about position and frequency: even scales keep them from ruling
    return matrix.astype(np.float32), (-mean @ matrix).astype(np.float32)


class Texts:
    """Projected tokens of every text, padded: tokens f16[n][WIDTH][INNER], length[n], vector f16[n][DIM] times sqrt(DIM), pooled."""

    def __init__(self, states, texts, projection):
        texts = [t for t in dict.fromkeys(texts) if t in states.ids]
        self.at = {t: i for i, t in enumerate(texts)}
        n, matrix, offset = len(texts), *projection
        self.length = np.array([min(len(states.ids[t]), WIDTH) for t in texts])
        self.tokens = np.zeros((n, WIDTH, INNER), np.float16)
        self.pooled = np.zeros((n, 2 * INNER), np.float16)
        self.ids = np.full((n, WIDTH), -1, np.int32)
        self.vector = np.stack([states.vector[t] for t in texts]).astype(np.float32) * DIM ** 0.5
        for c in range(0, n, 2000):
            part = texts[c:c + 2000]
            rows = np.concatenate([states.rows[t][:WIDTH] for t in part]).astype(np.float32) @ matrix + offset
            k = 0
            for i, t in enumerate(part, c):
                m = self.length[i]
                x = rows[k:k + m]
                self.tokens[i, :m], self.ids[i, :m] = x, states.ids[t][:m]
                self.pooled[i, :INNER], self.pooled[i, INNER:] = x.mean(0), x.max(0)
                k += m

    def index(self, pairs):
        return np.array([[self.at[a], self.at[b]] for a, b in pairs]).T

    def cosine(self, a, b):
        return (self.vector[a] * self.vector[b]).sum(1) / DIM


def vectors_apart(t, a, b):
    va, vb = t.vector[a], t.vector[b]
    return [np.abs(va - vb), va * vb]


def alone(t, a, b):
    """f32[n][4 * INNER + 2 * DIM + 1]"""
    pa, pb = t.pooled[a].astype(np.float32), t.pooled[b].astype(np.float32)
    return np.concatenate([np.abs(pa - pb), pa * pb, *vectors_apart(t, a, b), t.cosine(a, b)[:, None]], 1)


def one_side(x, y, seen_x, seen_y, unit_x, unit_y):
    """x's tokens explained by y's: what is left, pooled; content of the worst explained; numbers about the explanation"""
    s = unit_x @ unit_y.transpose(0, 2, 1)
    s = np.where(seen_y[:, None, :], s, -9.0)
    best = np.where(seen_x, s.max(2), 1.0)
    e = np.exp(SHARP * (s - s.max(2, keepdims=True)))
    left = np.abs(x - (e / e.sum(2, keepdims=True)) @ y) * seen_x[..., None]
    n = seen_x.sum(1, keepdims=True)
    w = np.exp(LEFT * (1 - best)) * seen_x
    w /= w.sum(1, keepdims=True)
    worst = (w[:, None, :] @ x)[:, 0]
    loss = (1 - best) * seen_x
    numbers = np.stack([loss.max(1), loss.sum(1) / n[:, 0], loss.sum(1)], 1)
    return left.sum(1) / n, left.max(1), worst, numbers


def joint(t, a, b):
    """f32[n][5 * INNER + 2 * DIM + 7]"""
    x, y = t.tokens[a].astype(np.float32), t.tokens[b].astype(np.float32)
    width = max(t.length[a].max(), t.length[b].max())
    x, y = x[:, :width], y[:, :width]
    seen = [np.arange(width)[None] < t.length[i][:, None] for i in (a, b)]
    unit = [v / np.sqrt((v * v).sum(2, keepdims=True) + 1e-6) for v in (x, y)]
    mean_a, max_a, worst_a, number_a = one_side(x, y, seen[0], seen[1], unit[0], unit[1])
    mean_b, max_b, worst_b, number_b = one_side(y, x, seen[1], seen[0], unit[1], unit[0])
    return np.concatenate([mean_a + mean_b, np.maximum(max_a, max_b), worst_a + worst_b, np.abs(worst_a - worst_b), worst_a * worst_b,
                           *vectors_apart(t, a, b), number_a + number_b, np.abs(number_a - number_b), t.cosine(a, b)[:, None]], 1)


def compute(kind, t, pairs, chunk=512):
    """f16[n][..]"""
    a, b = t.index(pairs)
    return np.concatenate([kind(t, a[c:c + chunk], b[c:c + chunk]).astype(np.float16) for c in range(0, len(a), chunk)])


class Head:
    """logit = w2 . relu(w1 z + b1) + b2 + w3 . z"""

    def __init__(self, n, hidden, seed):
        g = np.random.RandomState(seed)
        self.p = {"w1": (g.randn(n, hidden) * n ** -0.5).astype(np.float32), "b1": np.zeros(hidden, np.float32),
                  "w2": (g.randn(hidden) * 0.1).astype(np.float32), "b2": np.zeros(1, np.float32), "w3": np.zeros(n, np.float32)}

    def train(self, z, y, w, epochs, rate, seed, batch=512, say=print):
        """z f16, any scale: standardised inside, the scales go into the weights at the end."""
        g, p = np.random.RandomState(seed), self.p
        sample = z[g.choice(len(z), min(len(z), 8000), replace=False)].astype(np.float32)
        mean, scale = sample.mean(0), 1 / np.maximum(sample.std(0), 1e-2)
        m, v = {k: np.zeros_like(x) for k, x in p.items()}, {k: np.zeros_like(x) for k, x in p.items()}
        steps, t = epochs * (len(z) // batch), 0
        for epoch in range(epochs):
            order, loss = g.permutation(len(z)), 0.0
            for c in range(0, len(z) - batch + 1, batch):
                i = np.sort(order[c:c + batch])
                t += 1
                x = (z[i].astype(np.float32) - mean) * scale
                x *= (g.random_sample(x.shape[1]) < 0.85) / 0.85  # the same features left out for the whole batch: cheap dropout
                h = np.maximum(x @ p["w1"] + p["b1"], 0)
                keep = (g.random_sample(h.shape) < 0.8).astype(np.float32) / 0.8
                hk = h * keep
                o = np.clip(hk @ p["w2"] + x @ p["w3"] + p["b2"], -30, 30)
                q, target = 1 / (1 + np.exp(-o)), y[i] * 0.97 + 0.015
                d = (w[i] * (q - target) / w[i].sum()).astype(np.float32)
                loss += float((w[i] * (np.logaddexp(0, o) - target * o)).sum() / w[i].sum())
                dh = np.outer(d, p["w2"]) * keep * (h > 0)
                grad = {"w1": x.T @ dh, "b1": dh.sum(0), "w2": hk.T @ d, "b2": d.sum(keepdims=True), "w3": x.T @ d}
                lr = rate * min(1.0, t / (0.05 * steps + 1)) * max(0.02, 1 - t / steps)
                for k in p:
                    m[k] += 0.1 * (grad[k] - m[k])
                    v[k] += 0.001 * (grad[k] ** 2 - v[k])
                    p[k] -= lr * ((m[k] / (1 - 0.9 ** t)) / (np.sqrt(v[k] / (1 - 0.999 ** t)) + 1e-8) + (0.05 * p[k] if p[k].ndim > 1 else 0))
            say("  epoch %d loss %.4f" % (epoch + 1, loss / max(1, len(z) // batch)))
        p["w1"] *= scale[:, None]
        p["b1"] -= mean @ p["w1"]
        p["w3"] *= scale
        p["b2"] -= mean @ p["w3"]

    @staticmethod
    def mean_of(heads):
        """One head that gives the mean of several: their hidden units side by side."""
        out = object.__new__(Head)
        n = len(heads)
        out.p = {k: np.concatenate([h.p[k] for h in heads], -1) for k in ("w1", "b1")}
        out.p["w2"] = np.concatenate([h.p["w2"] for h in heads]) / n
        out.p.update({k: sum(h.p[k] for h in heads) / n for k in ("b2", "w3")})
        return out

    def __call__(self, z, chunk=4096):
        p, out = self.p, []
        for c in range(0, len(z), chunk):
            x = z[c:c + chunk].astype(np.float32)
            out.append(np.maximum(x @ p["w1"] + p["b1"], 0) @ p["w2"] + x @ p["w3"] + p["b2"])
        return np.concatenate(out) if out else np.zeros(0, np.float32)
