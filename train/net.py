"""The two towers of engine/model/pair_net.h in JAX, on packed rows: the tokens of all texts of a batch lie one after the other, so that
no arithmetic goes into padding; only attention sees padded segments."""
import jax
import jax.numpy as jnp
import numpy as np

DIM, HEADS, EPS = 384, 12, 1e-12
WIDTHS = (24, 32, 48, 96)  # tokens of the longest segment; few values, each is compiled


def unit(x):
    return x * jax.lax.rsqrt((x * x).sum(-1, keepdims=True) + 1e-9)


def layernorm(x, w, b):
    d = x - x.mean(-1, keepdims=True)
    return d * jax.lax.rsqrt((d * d).mean(-1, keepdims=True) + EPS) * w + b


@jax.custom_vjp
def move(x, take, back, mask):
    """x[take]; back is the inverse, so that the gradient is a gather as well. mask: rows of x that anybody takes."""
    return x[take]


move.defvjp(lambda x, take, back, mask: (x[take], (back, mask)), lambda r, g: (g[r[0]] * r[1][:, None], None, None, None))


def layers(stack, x, at, n, width, cross=None):
    """at: the packing of pack(). cross [layers][heads]: bias between the two sides of a segment."""
    hd = DIM // HEADS
    seen = jnp.where(at["seen"] > 0, 0.0, -1e9)[:, None, None, :]
    other = None if cross is None else (at["side"][:, :, None] != at["side"][:, None, :])[:, None]
    for i in range(stack["qw"].shape[0]):
        l = {k: v[i] for k, v in stack.items()}

        def heads(w, b):
            return move(x @ w + b, at["slot_row"], at["row_slot"], at["row"]).reshape(n, width, HEADS, hd).transpose(0, 2, 1, 3)

        q, k, v = heads(l["qw"], l["qb"]), heads(l["kw"], l["kb"]), heads(l["vw"], l["vb"])
        a = q @ k.transpose(0, 1, 3, 2) * (1 / np.sqrt(hd)) + seen
        if cross is not None:
            a = a + other * cross[i][None, :, None, None]
        o = (jax.nn.softmax(a, -1) @ v).transpose(0, 2, 1, 3).reshape(n * width, DIM)
        o = move(o, at["row_slot"], at["slot_row"], at["seen"].reshape(-1))
        x = layernorm(x + o @ l["aow"] + l["aob"], l["alnw"], l["alnb"])
        x = layernorm(x + jax.nn.gelu(x @ l["fiw"] + l["fib"], approximate=False) @ l["fow"] + l["fob"], l["olnw"], l["olnb"])
    return move(x, at["slot_row"], at["row_slot"], at["row"]).reshape(n, width, DIM)


def pool(z, mask):
    m = mask[..., None]
    count = m.sum(1)
    # a filler segment has no token: its maximum must stay a number
    return (z * m).sum(1) / jnp.maximum(count, 1), jnp.where(count > 0, jnp.where(m > 0, z, -1e4).max(1), 0.0)


def head(p, u, v, max_u, max_v, cosine, key=None):
    z = jnp.concatenate([jnp.abs(u - v), u * v, u + v, jnp.abs(max_u - max_v)], -1)
    if key is not None:
        z = z * jax.random.bernoulli(key, 0.9, z.shape) / 0.9
    h = jax.nn.relu(z @ p["w1"] + p["b1"]) @ p["w2"]
    s = p["scalars"]
    return h + s[0] + s[1] * ((unit(u) * unit(v)).sum(-1) - s[2]) + s[3] * (cosine - 0.9)


def alone(p, x, at, n, width):
    """-> mean, maximum [n][DIM]"""
    return pool(layers(p["stack"], x, at, n, width), at["seen"])


def joint(p, x, at, n, width, cosine, key=None):
    x = x + p["marks"][at["mark"]] * at["row"][:, None]
    z = layers(p["stack"], x, at, n, width, p["cross"])
    u, max_u = pool(z, at["seen"] * (at["side"] == 0))
    v, max_v = pool(z, at["seen"] * (at["side"] == 1))
    return head(p, u, v, max_u, max_v, cosine, key)


def pack(states, segments, n, rows):
    """segments: up to n lists of one text (alone) or two (joint), fewer than rows tokens together. Fixed shapes: what is compiled once
    serves every batch of a width. -> x f32[rows][DIM], at, n, width"""
    lengths = [sum(len(states.ids[t]) for t in s) for s in segments]
    assert len(segments) <= n and sum(lengths) < rows
    width = next(w for w in WIDTHS if w >= max(lengths))
    x = np.zeros((rows, DIM), np.float32)
    at = {"slot_row": np.full(n * width, rows - 1, np.int32), "row_slot": np.zeros(rows, np.int32), "row": np.zeros(rows, np.float32),
          "seen": np.zeros((n, width), np.float32), "side": np.zeros((n, width), np.int32), "mark": np.zeros(rows, np.int32)}
    r = 0
    for i, s in enumerate(segments):
        k = 0
        for side, t in enumerate(s):
            m = len(states.ids[t])
            x[r:r + m] = states.rows[t]
            at["slot_row"][i * width + k:i * width + k + m] = np.arange(r, r + m)
            at["row_slot"][r:r + m] = np.arange(i * width + k, i * width + k + m)
            at["row"][r:r + m] = 1
            at["seen"][i, k:k + m], at["side"][i, k:k + m] = 1, side
            if len(s) == 2:
                at["mark"][r:r + m] = np.isin(states.ids[t], states.ids[s[1 - side]])
            k, r = k + m, r + m
    return x, at, n, width


def new_head(seed, hidden=128):
    g = np.random.RandomState(seed)
    return {"w1": jnp.asarray(g.randn(4 * DIM, hidden) * 0.02, jnp.float32), "b1": jnp.zeros(hidden),
            "w2": jnp.asarray(g.randn(hidden) * 0.05, jnp.float32), "scalars": jnp.asarray([0.0, 6.0, 0.85, 0.0])}


def adam(loss):
    """One step of AdamW (Loshchilov & Hutter 2019) with clipping and learning rates by kind of parameter."""
    faster = {"stack": 1.0, "w1": 8.0, "b1": 8.0, "w2": 8.0, "scalars": 50.0, "cross": 50.0, "marks": 20.0}

    def step(p, m, v, t, lr, x, at, n, width, *rest):
        value, g = jax.value_and_grad(loss)(p, x, at, n, width, *rest)
        size = jnp.sqrt(sum((a ** 2).sum() for a in jax.tree.leaves(g)))
        g = jax.tree.map(lambda a: a * jnp.minimum(1.0, 1.0 / (size + 1e-6)), g)
        m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
        v = jax.tree.map(lambda a, b: 0.999 * a + 0.001 * b * b, v, g)
        out = {}
        for name in p:
            def update(q, a, b, name=name):
                rate = lr * faster[name]
                if name == "stack":
                    depth = jnp.asarray([0.9 ** (q.shape[0] - 1 - i) for i in range(q.shape[0])])
                    rate = rate * depth.reshape((-1,) + (1,) * (q.ndim - 1))
                decay = 0.01 * q if name == "stack" and q.ndim > 2 else 0.0
                return q - rate * ((a / (1 - 0.9 ** t)) / (jnp.sqrt(b / (1 - 0.999 ** t)) + 1e-8) + decay)
            out[name] = jax.tree.map(update, p[name], m[name], v[name])
        return out, m, v, value

    return jax.jit(step, static_argnums=(7, 8), donate_argnums=(0, 1, 2))
