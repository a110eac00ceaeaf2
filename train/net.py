"""The two towers of engine/model/pair_net.h in JAX. Texts are padded to WIDTH tokens; what goes in are the encoder's frozen token states
f[n][WIDTH][DIM] and its unit vectors f[n][DIM]."""
import jax
import jax.numpy as jnp
import numpy as np

DIM, INNER, HEADS, HIDDEN, WIDTH, EPS = 384, 128, 4, 64, 24, 1e-6


def unit(x):
    return x * jax.lax.rsqrt((x * x).sum(-1, keepdims=True) + 1e-9)


def layernorm(x, w, b):
    d = x - x.mean(-1, keepdims=True)
    return d * jax.lax.rsqrt((d * d).mean(-1, keepdims=True) + EPS) * w + b


def attention(p, x, y, seen):
    """Every token of x looks at the tokens of y. seen: mask of y. -> the heads side by side"""
    n, w, _ = x.shape
    split = lambda t: t.reshape(n, w, HEADS, INNER // HEADS).transpose(0, 2, 1, 3)  # noqa: E731
    q, k, v = split(x @ p["qw"] + p["qb"]), split(y @ p["kw"] + p["kb"]), split(y @ p["vw"] + p["vb"])
    a = q @ k.transpose(0, 1, 3, 2) * (HEADS / INNER) ** 0.5 + jnp.where(seen > 0, 0.0, -1e9)[:, None, None, :]
    return (jax.nn.softmax(a, -1) @ v).transpose(0, 2, 1, 3).reshape(n, w, INNER)


def pool(x, seen):
    m = seen[..., None]
    return jnp.concatenate([(x * m).sum(1) / jnp.maximum(m.sum(1), 1), jnp.where(m > 0, x, -1e4).max(1)], -1)


def drop(key, x, share=0.1):
    return x if key is None else x * jax.random.bernoulli(key, 1 - share, x.shape) / (1 - share)


def head(p, z, cosine, key):
    return jax.nn.relu(drop(key, z) @ p["w1"] + p["b1"]) @ p["w2"] + p["scalars"][0] + p["scalars"][1] * (cosine - 0.9)


def tokens(p, states):
    return layernorm(states @ p["inw"] + p["inb"], p["inlnw"], p["inlnb"])


def alone(p, states, seen):
    """-> sketch f[n][2 * INNER]: mean and maximum over the tokens of one transformer layer"""
    x = tokens(p, states)
    x = layernorm(x + attention(p, x, x, seen) @ p["aow"] + p["aob"], p["alnw"], p["alnb"])
    x = layernorm(x + jax.nn.gelu(x @ p["fiw"] + p["fib"], approximate=False) @ p["fow"] + p["fob"], p["olnw"], p["olnb"])
    return pool(x, seen)


def alone_logit(p, a, b, va, vb, key=None):
    """a, b: sketches; va, vb: the encoder's vectors, scaled to numbers of about 1"""
    return head(p, jnp.concatenate([jnp.abs(a - b), a * b, jnp.abs(va - vb), va * vb], -1), (va * vb).mean(-1), key)


def joint_tokens(p, states):
    return tokens(p, states)


def compare(p, x, y, seen_y):
    c = attention(p, x, y, seen_y)
    z = jnp.concatenate([x, c, jnp.abs(x - c), x * c], -1)
    return layernorm(x + jax.nn.gelu(z @ p["fiw"] + p["fib"], approximate=False) @ p["fow"] + p["fob"], p["olnw"], p["olnb"])


def joint_logit(p, x, y, seen_x, seen_y, mark_x, mark_y, va, vb, key=None):
    """x, y: joint_tokens of the two texts; mark: 1 where the same piece stands in the other text"""
    x, y = x + p["marks"][mark_x], y + p["marks"][mark_y]
    u, v = pool(compare(p, x, y, seen_y), seen_x), pool(compare(p, y, x, seen_x), seen_y)
    return head(p, jnp.concatenate([u + v, jnp.abs(u - v), jnp.abs(va - vb), va * vb], -1), (va * vb).mean(-1), key)


def new_tower(seed, joint):
    g = np.random.RandomState(seed)
    mat = lambda i, o, s=None: jnp.asarray(g.randn(i, o) * (s or i ** -0.5), jnp.float32)  # noqa: E731
    same = mat(INNER, INNER)  # queries and keys alike: attention begins as similarity
    p = {"inw": mat(DIM, INNER), "inb": jnp.zeros(INNER), "inlnw": jnp.ones(INNER), "inlnb": jnp.zeros(INNER),
         "qw": same, "kw": jnp.array(same), "vw": jnp.eye(INNER), "qb": jnp.zeros(INNER), "kb": jnp.zeros(INNER), "vb": jnp.zeros(INNER),
         "fib": jnp.zeros(INNER), "fow": mat(INNER, INNER), "fob": jnp.zeros(INNER),
         "olnw": jnp.ones(INNER), "olnb": jnp.zeros(INNER),
         "b1": jnp.zeros(HIDDEN), "w2": mat(HIDDEN, 1)[:, 0], "scalars": jnp.asarray([0.0, 6.0])}
    p["w1"] = mat(4 * INNER + 2 * DIM, HIDDEN, 0.02)
    if joint:
        p.update(fiw=mat(4 * INNER, INNER), marks=mat(2, INNER, 0.1), w1=mat(4 * INNER + 2 * DIM, HIDDEN, 0.02))
    else:
        p.update(fiw=mat(INNER, INNER), aow=mat(INNER, INNER), aob=jnp.zeros(INNER), alnw=jnp.ones(INNER), alnb=jnp.zeros(INNER))
    return p


def pad(states, texts, n):
    """-> rows f[n][WIDTH][DIM], seen f[n][WIDTH], scaled vectors f[n][DIM]"""
    rows, seen, vector = np.zeros((n, WIDTH, DIM), np.float32), np.zeros((n, WIDTH), np.float32), np.zeros((n, DIM), np.float32)
    seen[len(texts):, 0] = 1
    for i, t in enumerate(texts):
        m = min(len(states.ids[t]), WIDTH)
        rows[i, :m], seen[i, :m], vector[i] = states.rows[t][:m], 1, states.vector[t] * DIM ** 0.5
    return rows, seen, vector


def marks(states, a, b):
    out = np.zeros((2, WIDTH), np.int32)
    for i, (t, o) in enumerate(((a, b), (b, a))):
        m = np.isin(states.ids[t][:WIDTH], states.ids[o])
        out[i, :len(m)] = m
    return out


def adam(loss):
    """One step of AdamW (Loshchilov & Hutter 2019) with clipping."""
    def step(p, m, v, t, lr, *rest):
        value, g = jax.value_and_grad(loss)(p, *rest)
        size = jnp.sqrt(sum((a ** 2).sum() for a in jax.tree.leaves(g)))
        g = jax.tree.map(lambda a: a * jnp.minimum(1.0, 1.0 / (size + 1e-6)), g)
        m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
        v = jax.tree.map(lambda a, b: 0.999 * a + 0.001 * b * b, v, g)
        def update(q, a, b):
            decay = 0.02 * q if q.ndim > 1 else 0.0
            return q - lr * ((a / (1 - 0.9 ** t)) / (jnp.sqrt(b / (1 - 0.999 ** t)) + 1e-8) + decay)
        return jax.tree.map(update, p, m, v), m, v, value
    return jax.jit(step, donate_argnums=(0, 1, 2))
