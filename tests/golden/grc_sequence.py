#!/usr/bin/env python3
"""Golden files of the gated recurrent cache with one cache per sequence and bptt_depth 0, 1, 2 and full.

    tests/golden/grc_sequence.py tests/golden/data/grc

Plain Python, scalar by scalar, written from equations 1 to 5 of "Cached Transformers" (Zhang et al. 2024) and with a
differentiation of its own, so that it shares nothing with the code it checks. The loss of segment s is differentiated by
itself: the caches that enter segment s - depth are constants, which is what truncation at `depth` boundaries means.
Every file is checked by central differences, with the constant caches held fixed.

    X  = rows of the segment (after the norm), first C channels, row floor(i*T/N)       i = 0 .. N-1
    r, u = sigma(W [X, C] + b)     n = W [X, r*C] + b     C' = u*n + (1-u)*C
    m_h = softmax(q_m k_m(C)^T / sqrt(d_m)) v_m(C)       y_h = sigma(lambda_h) [m_h, 0] + (1 - sigma(lambda_h)) o_h
    h  <- h + W_o y;  h <- h + W_1 relu(W_0 norm(h) + b_0) + b_1;  causal; a segment reads the C of the one before
"""
import json
import math
import random
import struct
import sys

BATCH, TIME, DIM, HEADS, HIDDEN, LAYERS, SEGMENTS = 2, 4, 8, 2, 6, 2, 4
CHANNELS, LENGTH = 4, 3  # of the cache


class Number:
    """A value with the values it was made of and the derivatives with respect to them."""
    __slots__ = ("value", "parents", "grad")

    def __init__(self, value, parents=()):
        self.value, self.parents, self.grad = value, parents, 0.0

    def __add__(self, other):
        if not isinstance(other, Number):
            return Number(self.value + other, ((self, 1.0),))
        return Number(self.value + other.value, ((self, 1.0), (other, 1.0)))

    __radd__ = __add__

    def __sub__(self, other):
        return self + other * -1.0

    def __mul__(self, other):
        if not isinstance(other, Number):
            return Number(self.value * other, ((self, other),))
        return Number(self.value * other.value, ((self, other.value), (other, self.value)))

    __rmul__ = __mul__


def function(x, value, slope):
    return Number(value, ((x, slope),))


def sigma(x):
    s = 1.0 / (1.0 + math.exp(-x.value))
    return function(x, s, s * (1.0 - s))


def exponential(x, less):
    e = math.exp(x.value - less)
    return function(x, e, e)


def reciprocal(x):
    return function(x, 1.0 / x.value, -1.0 / x.value ** 2)


def root(x):
    r = math.sqrt(x.value)
    return function(x, r, 0.5 / r)


def relu(x):
    return function(x, max(x.value, 0.0), 1.0 if x.value > 0 else 0.0)


def backward(result):
    order, seen, stack = [], set(), [(result, iter(result.parents))]
    seen.add(id(result))
    while stack:
        node, parents = stack[-1]
        for parent, _ in parents:
            if id(parent) not in seen:
                seen.add(id(parent))
                stack.append((parent, iter(parent.parents)))
                break
        else:
            order.append(node)
            stack.pop()
    result.grad += 1.0
    for node in reversed(order):
        if not node.parents:
            continue  # a leaf keeps what it has
        for parent, slope in node.parents:
            parent.grad += node.grad * slope
        node.grad = 0.0


def total(terms):
    """A sum as one node."""
    return Number(sum(t.value for t in terms), tuple((t, 1.0) for t in terms))


def dot(a, b):
    return Number(sum(x.value * y.value for x, y in zip(a, b)),
                  tuple((x, y.value) for x, y in zip(a, b)) + tuple((y, x.value) for x, y in zip(a, b)))


def linear(weight, bias, row):
    out = [dot(w, row) for w in weight]
    return [o + b for o, b in zip(out, bias)] if bias else out


def softmax(scores):
    most = max(s.value for s in scores)
    weights = [exponential(s, most) for s in scores]
    scale = reciprocal(total(weights))
    return [w * scale for w in weights]


def attend(q, keys, values):
    """One query, one head."""
    weights = softmax([dot(q, k) * (1.0 / math.sqrt(len(q))) for k in keys])
    return [dot(weights, [v[c] for v in values]) for c in range(len(values[0]))]


def norm(weight, bias, row):
    mean = total(row) * (1.0 / len(row))
    centred = [x - mean for x in row]
    scale = reciprocal(root(total([c * c for c in centred]) * (1.0 / len(row)) + 1e-5))
    return [c * scale * w + b for c, w, b in zip(centred, weight, bias)]


def layer(p, name, rows, cache):
    """rows [T][D] of one sequence, cache [N][C] -> rows, cache'."""
    def of(key):
        return p.get(f"backbone.layers.{name}.{key}")

    normed = [norm(of("norm1.weight"), of("norm1.bias"), row) for row in rows]
    width, narrow = DIM // HEADS, CHANNELS // HEADS
    q, k, v = ([linear(of(f"attn.{m}.weight"), None, row) for row in normed] for m in "qkv")
    first = [row[:CHANNELS] for row in normed]
    qm = [linear(of("attn.grc.q.weight"), None, row) for row in first]
    km, vm = ([linear(of(f"attn.grc.{m}.weight"), None, row) for row in cache] for m in "kv")
    out = []
    for t, row in enumerate(rows):
        joined = []
        for h in range(HEADS):
            a, b, c, d = h * width, (h + 1) * width, h * narrow, (h + 1) * narrow
            own = attend(q[t][a:b], [x[a:b] for x in k[:t + 1]], [x[a:b] for x in v[:t + 1]])
            read = attend(qm[t][c:d], [x[c:d] for x in km], [x[c:d] for x in vm])
            share = sigma(of("attn.grc.lambda")[h])
            rest = share * -1.0 + 1.0
            joined += [rest * o + share * read[i] if i < narrow else rest * o for i, o in enumerate(own)]
        row = [x + y for x, y in zip(row, linear(of("attn.o.weight"), None, joined))]
        hidden = [relu(x) for x in linear(of("ffn.0.weight"), of("ffn.0.bias"),
                                          norm(of("norm2.weight"), of("norm2.bias"), row))]
        out.append([x + y for x, y in zip(row, linear(of("ffn.1.weight"), of("ffn.1.bias"), hidden))])
    after = []
    for i in range(LENGTH):
        x, old = first[i * TIME // LENGTH], cache[i]
        reset, update = ([sigma(z) for z in linear(of(f"attn.grc.{g}_gate.weight"), of(f"attn.grc.{g}_gate.bias"), x + old)]
                         for g in ("reset", "update"))
        fresh = linear(of("attn.grc.candidate.weight"), of("attn.grc.candidate.bias"), x + [r * c for r, c in zip(reset, old)])
        after.append([u * n + (u * -1.0 + 1.0) * c for u, n, c in zip(update, fresh, old)])
    return out, after


def segment(p, rows, caches):
    """rows [B][T][D], caches [layer][B][N][C] -> hidden, caches'."""
    result, after = [], [[] for _ in range(LAYERS)]
    for b in range(BATCH):
        h = rows[b]
        for n in range(LAYERS):
            h, cache = layer(p, n, h, caches[n][b])
            after[n].append(cache)
        result.append(h)
    return result, after


def constants(x):
    return Number(x.value) if isinstance(x, Number) else [constants(y) for y in x]


def values(x):
    return x.value if isinstance(x, Number) else [values(y) for y in x]


def grads(x):
    return x.grad if isinstance(x, Number) else [grads(y) for y in x]


def flat(x):
    return [z for y in x for z in flat(y)] if isinstance(x, list) else [x]


def shape(x):
    return [len(x)] + shape(x[0]) if isinstance(x, list) else []


def weighted(hidden, cotangent):
    return dot(flat(hidden), [Number(c) for c in flat(cotangent)])


def enter(caches, resets):
    zero = [[Number(0.0)] * CHANNELS for _ in range(LENGTH)]
    return [[zero if resets[b] else layer_caches[b] for b in range(BATCH)] for layer_caches in caches]


def make(folder, name, case, depth, reset_at=None, given=False):
    draw = random.Random(sum(name.encode()))

    def normal(*sizes, scale=1.0):
        if not sizes:
            return Number(draw.gauss(0.0, scale))
        return [normal(*sizes[1:], scale=scale) for _ in range(sizes[0])]

    p = {}
    for n in range(LAYERS):
        at = f"backbone.layers.{n}."
        for m in "qkvo":
            p[at + f"attn.{m}.weight"] = normal(DIM, DIM, scale=0.5)
        for m in "qkv":
            p[at + f"attn.grc.{m}.weight"] = normal(CHANNELS, CHANNELS, scale=0.7)
        for gate in ("reset_gate", "update_gate", "candidate"):
            p[at + f"attn.grc.{gate}.weight"] = normal(CHANNELS, 2 * CHANNELS, scale=0.6)
            p[at + f"attn.grc.{gate}.bias"] = normal(CHANNELS, scale=0.5)
        p[at + "attn.grc.lambda"] = normal(HEADS)
        for m in ("norm1", "norm2"):
            p[at + m + ".weight"] = normal(DIM, scale=0.3)
            for w in p[at + m + ".weight"]:
                w.value += 1.0
            p[at + m + ".bias"] = normal(DIM, scale=0.2)
        p[at + "ffn.0.weight"], p[at + "ffn.0.bias"] = normal(HIDDEN, DIM, scale=0.4), normal(HIDDEN, scale=0.3)
        p[at + "ffn.1.weight"], p[at + "ffn.1.bias"] = normal(DIM, HIDDEN, scale=0.4), normal(DIM, scale=0.3)
    inputs = [normal(BATCH, TIME, DIM) for _ in range(SEGMENTS)]
    cotangents = [values(normal(BATCH, TIME, DIM)) for _ in range(SEGMENTS)]
    initial = [normal(BATCH, LENGTH, CHANNELS) if given
               else [[[Number(0.0) for _ in range(CHANNELS)] for _ in range(LENGTH)] for _ in range(BATCH)]
               for _ in range(LAYERS)]
    resets = [[s == reset_at and b == 1 for b in range(BATCH)] for s in range(SEGMENTS)]

    hidden, states = [], [initial]
    for s in range(SEGMENTS):
        result, after = segment(p, inputs[s], enter(states[s], resets[s]))
        hidden.append(values(result))
        states.append(constants(after))

    def loss_of(s):
        """The loss of segment s, with the caches that enter segment s - depth held fixed."""
        begin = 0 if depth is None else max(0, s - depth)
        caches = states[begin]
        for t in range(begin, s + 1):
            result, caches = segment(p, inputs[t], enter(caches, resets[t]))
        return weighted(result, cotangents[s])

    leaves = [x for tensor in list(p.values()) + inputs + [initial] for x in flat(tensor)]
    for x in flat(states[1:]):
        x.grad = 0.0
    for s in range(SEGMENTS):
        backward(loss_of(s))
    worst = 0.0
    for leaf in draw.sample(leaves, 12):
        kept, step = leaf.value, 1e-5
        sides = []
        for sign in (1, -1):
            leaf.value = kept + sign * step
            sides.append(sum(loss_of(s).value for s in range(SEGMENTS)))
        leaf.value = kept
        worst = max(worst, abs((sides[0] - sides[1]) / (2 * step) - leaf.grad))
    assert worst < 1e-7, worst

    tensors = {}
    for key, tensor in p.items():
        tensors["param." + key], tensors["grad.param." + key] = values(tensor), grads(tensor)
    for n in range(LAYERS):
        if given:
            tensors[f"state.init.grc.layers.{n}.cache"] = values(initial[n])
            tensors[f"grad.state.init.grc.layers.{n}.cache"] = grads(initial[n])
    for s in range(SEGMENTS):
        at = f"step.{s}."
        tensors[at + "input.x"], tensors["grad." + at + "input.x"] = values(inputs[s]), grads(inputs[s])
        if reset_at is not None:
            tensors[at + "input.reset"] = resets[s]
        tensors[at + "output.hidden"], tensors[at + "cotangent.hidden"] = hidden[s], cotangents[s]
        for n in range(LAYERS):
            tensors[at + f"state.grc.layers.{n}.cache"] = values(states[s + 1][n])
    config = {
        "kind": "layer_stack",
        "backbone": {"type": "decoder", "num_layers": LAYERS, "dim": DIM, "num_heads": HEADS, "ffn_dim": HIDDEN,
                     "activation": "relu", "norm": "pre", "norm_eps": 1e-5, "final_norm": False,
                     "attention": {"type": "softmax", "bias": False}},
        "memory": [{"type": "grc", "variant": "paper", "cache_ratio": CHANNELS / DIM, "cache_len": LENGTH,
                    "lifetime": "sequence", "bptt_depth": "full" if depth is None else depth}],
    }
    metadata = {"format": "mnemo-golden/1", "case": case, "config": json.dumps(config), "training": "true",
                "seed": str(sum(name.encode())), "tolerance": "1e-11",
                "source": "Zhang et al. 2024 (Cached Transformers) eq. 1-5 with one cache per sequence; "
                          "tests/golden/grc_sequence.py, plain Python; central differences of 12 numbers: "
                          f"{worst:.1e}"}
    write(f"{folder}/{name}.safetensors", tensors, metadata)
    print(f"{name}: {len(tensors)} tensors, central differences {worst:.1e}")


def write(path, tensors, metadata):
    header, data = {"__metadata__": metadata}, b""
    for key in sorted(tensors):
        numbers = flat(tensors[key])
        boolean = isinstance(numbers[0], bool)
        packed = bytes(numbers) if boolean else struct.pack(f"<{len(numbers)}d", *numbers)
        header[key] = {"dtype": "BOOL" if boolean else "F64", "shape": shape(tensors[key]),
                       "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    to = sys.argv[1]
    for depth in (0, 1, 2, None):
        word = "full" if depth is None else depth
        make(to, f"sequence_bptt_{word}", f"GRC with one cache per sequence, bptt_depth {word}", depth)
    make(to, "sequence_bptt_2_given", "the same from given caches, bptt_depth 2", 2, given=True)
    make(to, "sequence_reset", "the same, bptt_depth full, one sequence begins anew in segment 2", None, reset_at=2, given=True)
