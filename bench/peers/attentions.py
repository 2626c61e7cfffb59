"""Every attention of `mnemo-bench --all` in eager PyTorch: the formulas of docs/, written as one would write them for speed today.

Letters: B batch, Q queries, M cached rows, K = M + Q keys, T tokens, D width, H heads, d = D / H, n slots, f features, C rows of a chunk,
N chunks, R rounds, m memory rows.
"""
import math
import types

import torch
import torch.nn as nn
import torch.nn.functional as F

from models import Heads, abc_scan, relative_attention, sinusoids

CHUNK = 64


class Tensors:
    """Mnemo's parameters by name; each is used once, some of them fused into one layer, but for those that layers share."""

    def __init__(self, tensors):
        self.left, self.made = dict(tensors), {}

    def shared(self, name):
        if name not in self.made:
            self.made[name] = self.parameter(name)
        return self.made[name]

    def parameter(self, *names):
        return nn.Parameter(torch.cat([self.left.pop(name) for name in names]).clone())

    def map(self, prefix, *names):
        """One linear layer that fuses the layers of those names."""
        prefixes = [f"{prefix}.{name}" for name in names]
        bias = f"{prefixes[0]}.bias" in self.left
        size = self.left[f"{prefixes[0]}.weight"].shape
        layer = nn.Linear(size[1], len(names) * size[0], bias=bias, device="meta")
        layer.weight = self.parameter(*(f"{p}.weight" for p in prefixes))
        if bias:
            layer.bias = self.parameter(*(f"{p}.bias" for p in prefixes))
        return layer

    def norm(self, prefix):
        layer = nn.LayerNorm(self.left[f"{prefix}.weight"].shape, device="meta")
        layer.weight, layer.bias = self.parameter(f"{prefix}.weight"), self.parameter(f"{prefix}.bias")
        return layer


class Stream:
    """SplitMix64 from a list of keys: random numbers that both sides can generate (src/base/random.h)."""
    MASK, STEP = (1 << 64) - 1, 0x9E3779B97F4A7C15

    def __init__(self, *keys):
        self.state = 0
        for key in keys:
            self.state = self.mix(self.state ^ self.mix(key + self.STEP & self.MASK))

    @classmethod
    def mix(cls, z):
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & cls.MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & cls.MASK
        return z ^ z >> 31

    def next(self):
        self.state = self.state + self.STEP & self.MASK
        return self.mix(self.state)

    def below(self, bound):
        while (value := self.next()) < (1 << 64) % bound:
            pass
        return value % bound

    def normal(self, *shape):
        """Box-Muller transform, in pairs."""
        uniform = lambda: ((self.next() >> 11) + 1) * 2.0 ** -53
        numbers = []
        while len(numbers) < math.prod(shape):
            radius, angle = math.sqrt(-2 * math.log(uniform())), 2 * math.pi * uniform()
            numbers += [radius * math.cos(angle), radius * math.sin(angle)]
        return torch.tensor(numbers[:math.prod(shape)], dtype=torch.float64).view(shape)


# Scans and windows: chunks of rows as matrix products. x [B,H,T,..] -> [B,H,N,C,..]


def chunked(*tensors, chunk=CHUNK):
    size = math.gcd(tensors[0].size(2), chunk)
    return [t.unflatten(2, (-1, size)) for t in tensors]


def sums_before(own, first=None):
    """The sums before each chunk and after the last one: own [B,H,N,..]."""
    after = own.cumsum(2)
    if first is not None:
        after = after + first.unsqueeze(2)
    return after - own, after[:, :, -1]


def abc_sums(q, k, v, phi, factor=None):
    """K_t = sum_{i<=t} phi_i k_i^T, V_t likewise; slots are multiplied by `factor` when read. phi, factor [B,1,T,n]."""
    q, k, v, phi = chunked(q / math.sqrt(q.size(-1)), k, v, phi)
    columns = phi.transpose(-1, -2)
    (before_k, _), (before_v, _) = sums_before(columns @ k), sums_before(columns @ v)
    scores = (q @ k.transpose(-1, -2)).tril() @ phi + q @ before_k.transpose(-1, -2)
    if factor is None:
        p = scores.softmax(-1)
    else:
        factor, = chunked(factor)
        p = (scores * factor).softmax(-1) * factor
    return ((p @ columns).tril() @ v + p @ before_v).flatten(2, 3)


def linear_scan(q, k, v, state, divisor):
    """Causal linear attention of features; the sum of weights is an additional column of v. Returns o and the sums [B,H,f,d+1]."""
    q, k, v = chunked(q, k, F.pad(v, (0, 1), value=1.0))
    before, state = sums_before(k.transpose(-1, -2) @ v, state)
    both = ((q @ k.transpose(-1, -2)).tril() @ v + q @ before).flatten(2, 3)
    return both[..., :-1] / divisor(both[..., -1:]), state


def window(q, k, v, reach, zeros=False):
    """Softmax attention to the last `reach` keys, in blocks of queries; before the first key there is nothing, or with `zeros` rows of zeros."""
    q, k, v = chunked(q, k, v, chunk=128)
    count, chunk = q.shape[2:4]
    back = -(-(reach - 1) // chunk)  # blocks of keys before that of the queries

    def with_earlier(x):
        padded = F.pad(x, (0, 0, 0, 0, back, 0))
        return torch.cat([padded[:, :, i:i + count] for i in range(back + 1)], 3)

    row, column = torch.arange(chunk)[:, None], torch.arange(chunk * (back + 1)) - chunk * back
    mask = ((column <= row) & (column > row - reach)).expand(count, 1, -1, -1)
    if not zeros:
        mask = mask & (torch.arange(count).view(-1, 1, 1, 1) * chunk + column >= 0)
    blocks = lambda x: x.transpose(1, 2).flatten(0, 1)  # [B*N,H,..]
    o = F.scaled_dot_product_attention(blocks(q), blocks(with_earlier(k)), blocks(with_earlier(v)), attn_mask=mask.repeat(q.size(0), 1, 1, 1))
    return o.unflatten(0, (-1, count)).transpose(1, 2).flatten(2, 3)


class Attention(Heads):
    """options: Mnemo's options of this attention; place: dim, heads, layer, causal. heads() returns joined heads, before the output projection.
    q, k, v of the segment stay in self.rows."""
    maps = ("q", "k", "v")

    def __init__(self, take, prefix, options, place):
        super().__init__(place.dim, place.heads)
        self.options, self.place, self.prefix = options, place, prefix
        self.qkv, self.o = take.map(prefix, *self.maps), take.map(prefix, "o")
        self.prepare(take)

    def prepare(self, take):
        pass

    def heads_of(self, x, past, state, call):
        self.rows = q, k, v = self.split(self.qkv(x), 3)
        o, state = self.attend(q, k, v, x, state, call)
        return self.join(o), state

    def forward(self, x, past, state, call):
        heads, state = self.heads_of(x, past, state, call)
        return self.o(heads), state


class Softmax(Attention):
    def heads_of(self, x, past, state, call):
        self.rows = q, k, v = self.split(self.qkv(x), 3)
        if past is None or not past.size(1):
            return self.join(F.scaled_dot_product_attention(q, k, v, is_causal=self.place.causal)), state
        width = x.size(-1)
        earlier = F.linear(past, self.qkv.weight[width:], None if self.qkv.bias is None else self.qkv.bias[width:])
        k, v = (torch.cat(both, 2) for both in zip(self.split(earlier, 2), (k, v)))
        return self.join(F.scaled_dot_product_attention(q, k, v, attn_mask=call.causal(x.size(1), k.size(2)))), state


class RelativeBuckets(Attention):
    """T5: a bias for each distance, from a table of all layers; docs/relative_buckets.md."""

    def prepare(self, take):
        self.table = take.shared("backbone.relative_bias")

    def attend(self, q, k, v, x, state, call):
        tokens, last = q.size(2), self.options["max_distance"]
        count = self.options["num_buckets"]

        def buckets():
            exact = count // 2
            far = torch.arange(tokens).clamp(min=exact).double() / exact
            grown = exact + (far.log() / math.log(last / exact) * (count - exact)).long()
            return torch.where(torch.arange(tokens) < exact, torch.arange(tokens), grown.clamp(max=count - 1))

        past = self.table[call.kept(("buckets", tokens), buckets)].T  # [H,T], by distance from 0 on
        row = torch.cat([past.flip(1), past.new_full((self.heads, tokens - 1), float("-inf"))], 1)
        mask = row.unfold(1, tokens, 1).flip(1)  # [H,T,T]
        scale = 1 / math.sqrt(q.size(-1)) if self.options["scaled"] else 1.0
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask.unsqueeze(0), scale=scale), state


class Disentangled(Attention):
    """DeBERTa, in an encoder, with positions through the layer's own q and k; docs/disentangled.md."""

    def prepare(self, take):
        self.table = take.shared("backbone.rel_embeddings")
        self.norm = [take.shared(f"backbone.rel_norm.{name}") for name in ("weight", "bias")]

    def attend(self, q, k, v, x, state, call):
        tokens, span, middle = q.size(2), self.options["num_buckets"], self.options["num_buckets"] // 2

        def rows():
            distance = torch.arange(tokens)[:, None] - torch.arange(tokens)
            far = distance.abs().clamp(min=middle).double() / middle
            grown = middle + (far.log() / math.log((self.options["max_distance"] - 1) / middle) * (middle - 1)).ceil().long()
            return (torch.where(distance.abs() <= middle, distance, distance.sign() * grown) + span).clamp(0, 2 * span - 1)

        index = call.kept(("rows", tokens), rows)
        positions = F.layer_norm(self.table, self.table.shape[1:], *self.norm, eps=self.options["norm_eps"])
        width = positions.size(1)
        project = lambda part: F.linear(positions, self.qkv.weight[part * width:(part + 1) * width], self.qkv.bias[part * width:(part + 1) * width])
        asked, told = (project(part).unflatten(1, (self.heads, -1)).permute(1, 2, 0) for part in (0, 1))  # [H,d,2P]
        expand = lambda rows: rows.expand(*q.shape[:2], -1, -1)
        bias = (q @ told).gather(-1, expand(index)) + (k @ asked).gather(-1, expand(index.T)).transpose(-1, -2)
        scale = 1 / math.sqrt(3 * q.size(-1))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias * scale, scale=scale), state


class Relative(Attention):
    """Transformer-XL attention, span by span: call.spans are (first query, one past the last, first key, whether queries look right)."""
    maps = ("q",)

    def prepare(self, take):
        self.kv, self.r = take.map(self.prefix, "k", "v"), take.map(self.prefix, "r")

    def heads_of(self, x, past, state, call):
        rows = x if past is None or not past.size(1) else torch.cat([past, x], 1)
        q, (k, v) = self.split(self.qkv(x)), self.split(self.kv(rows), 2)
        cached, keys, o = rows.size(1) - x.size(1), rows.size(1), []
        self.rows = q, k[:, :, cached:], v[:, :, cached:]
        r = self.r(call.sinusoids(keys)).view(-1, self.heads, self.width).permute(1, 2, 0)  # [H,d,P], distances from keys - 1 down
        for begin, end, first, both_ways in call.spans(x.size(1), cached):
            queries, count = end - begin, cached + end - first
            distances = r[:, :, keys - count:keys + (queries - 1 if both_ways else 0)]
            mask = None if both_ways else call.causal(queries, count)
            o.append(relative_attention(q[:, :, begin:end], k[:, :, first:first + count], v[:, :, first:first + count], distances, call.u, call.v,
                                        mask))
        return self.join(torch.cat(o, 2) if len(o) > 1 else o[0]), state


class SlidingWindow(Attention):
    def attend(self, q, k, v, x, state, call):
        return window(q, k, v, self.options["window_size"]), state


class Linear(Attention):
    """elu, t2r, rfa."""

    def prepare(self, take):
        o = self.options
        self.kind = o["feature_map"]
        if self.kind == "t2r":
            self.weight, self.bias = take.parameter(f"{self.prefix}.feature.weight"), take.parameter(f"{self.prefix}.feature.bias")
        if self.kind == "rfa":
            self.sigma = take.parameter(f"{self.prefix}.feature.sigma")
            count = o.get("num_features") or 32
            random = Stream(o.get("seed") or 0, self.place.layer).normal(self.heads, count, self.width) / (o.get("tau") or 1.0)
            self.register_buffer("random", random.to(self.sigma.dtype), persistent=False)
        self.eps = 0.0 if self.kind == "rfa" else o.get("eps") or 1e-6

    def features(self, x):
        if self.kind == "elu":
            return F.elu(x) + 1
        if self.kind == "t2r":
            return F.relu(x @ self.weight.transpose(-1, -2) + self.bias[:, None])
        angle = F.normalize(x, dim=-1) @ (self.random * self.sigma).transpose(-1, -2)
        return torch.cat([angle.sin(), angle.cos()], -1) / math.sqrt(self.random.size(1))

    def attend(self, q, k, v, x, state, call):
        return linear_scan(self.features(q), self.features(k), v, state, lambda a: a + self.eps)


class BigBird(Attention):
    """Blocks of queries in the middle gather the key blocks that they see; the first and the last block see all."""

    def pattern(self, count):
        sees = []
        for i in range(1, count - 1):
            row = {0, count - 1, i - 1, i, i + 1}
            others, stream = [j for j in range(count) if j not in row], Stream(self.options["seed"], self.place.layer, i)
            for n in range(min(len(others), self.options["num_random_blocks"])):
                m = n + stream.below(len(others) - n)
                others[n], others[m] = others[m], others[n]
            sees.append(sorted(row) + others[:self.options["num_random_blocks"]])
        widest = max(map(len, sees))
        real = torch.tensor([[True] * len(row) + [False] * (widest - len(row)) for row in sees])
        return torch.tensor([row + [0] * (widest - len(row)) for row in sees]), real

    def attend(self, q, k, v, x, state, call):
        size = self.options["block_size"]
        index, real = call.kept(("bigbird", self.place.layer, q.size(2)), lambda: self.pattern(q.size(2) // size))
        gather = lambda t: t.unflatten(2, (-1, size))[0].index_select(1, index.flatten()).unflatten(1, index.shape).flatten(2, 3).transpose(0, 1)
        mask = None if real.all() else real.repeat_interleave(size, 1)[:, None, None]
        middle = F.scaled_dot_product_attention(q[0, :, size:-size].unflatten(1, (-1, size)).transpose(0, 1), gather(k), gather(v), attn_mask=mask)
        ends = F.scaled_dot_product_attention(torch.cat([q[:, :, :size], q[:, :, -size:]], 2), k, v)
        return torch.cat([ends[:, :, :size], middle.transpose(0, 1).flatten(1, 2)[None], ends[:, :, size:]], 2), state


class Lsh(Attention):
    """Reformer: rows sorted by bucket; a chunk sees itself and the previous one."""
    maps = ("qk", "v")

    def prepare(self, take):
        o = self.options
        self.buckets, self.rounds, self.chunk = o.get("num_buckets") or 16, o.get("num_hashes") or 2, o.get("chunk_len") or 32
        rotations = Stream(o["seed"], self.place.layer).normal(self.rounds, self.heads, self.width, self.buckets // 2)
        self.register_buffer("rotations", rotations.transpose(0, 1).to(self.qkv.weight.dtype), persistent=False)

    def heads_of(self, x, past, state, call):
        qk, v = self.split(self.qkv(x), 2)
        time = qk.size(2)
        with torch.no_grad():
            turned = qk.unsqueeze(2) @ self.rotations
            bucket, order = torch.cat([turned, -turned], -1).argmax(-1).sort(dim=-1, stable=True)  # [B,H,R,T]
            back = order.argsort(-1)
            chunks = lambda t: t.unflatten(-1, (-1, self.chunk))
            earlier = lambda t, dim: torch.cat([t, t.roll(1, 3)], dim)
            place, bucket = chunks(order), chunks(bucket)
            hidden = bucket.unsqueeze(-1) != earlier(bucket, 4).unsqueeze(-2)
            if self.place.causal:
                hidden |= place.unsqueeze(-1) < earlier(place, 4).unsqueeze(-2)
            self_seen = torch.eye(self.chunk, 2 * self.chunk, dtype=torch.bool)
        places = order.unsqueeze(-1).expand(-1, -1, -1, -1, self.width)
        pick = lambda t: t.unsqueeze(2).expand_as(places).gather(3, places).unflatten(3, (-1, self.chunk))
        q, values = pick(qk), pick(v)
        scores = q @ earlier(F.normalize(q, dim=-1), 4).transpose(-1, -2) / math.sqrt(self.width)
        scores = scores.masked_fill(hidden, -math.inf).masked_fill(self_seen, -1e5)
        total = scores.logsumexp(-1, keepdim=True)
        o = ((scores - total).exp() @ earlier(values, 4)).flatten(3, 4)
        o = o.gather(3, back.unsqueeze(-1).expand_as(o))
        weight = total.flatten(3).gather(3, back).softmax(2).unsqueeze(-1)
        return self.join((o * weight).sum(2)), state


class Linformer(Attention):
    def prepare(self, take):
        self.e, self.f = (take.parameter(f"{self.prefix}.linformer.{name}.weight") for name in "kv")

    def attend(self, q, k, v, x, state, call):
        time = k.size(2)
        return F.scaled_dot_product_attention(q, self.e[:, :time] @ k, self.f[:, :time] @ v), state


# ABC: one function per control.


class Abc(Attention):
    def prepare(self, take):
        self.slots, self.control_options = self.options["num_slots"], self.options["control"]
        self.kind = self.control_options["type"]
        if self.kind in ("mlp", "linformer"):
            self.weight = take.parameter(f"{self.prefix}.control.weight")
        if self.kind == "luna":
            self.control_q, self.control_k = (take.map(f"{self.prefix}.control", name) for name in "qk")
            if self.place.layer == 0:
                self.first = take.parameter("backbone.attn_control.slots")

    def attend(self, q, k, v, x, state, call):
        return getattr(self, self.kind)(q, k, v, x, call), state

    def mlp(self, q, k, v, x, call):
        s = self.split(F.linear(x, self.weight))
        zeros = q.new_zeros(*s.shape[:2], self.slots, self.width)
        return abc_scan(q, k, v, s, (zeros, zeros, q.new_full(zeros.shape[:3], -math.inf)))[0]

    def one_hot(self, slots):
        return F.one_hot(slots, self.slots).to(self.o.weight.dtype)[None, None]

    def random(self, q, k, v, x, call):
        seed, layer, mix, step = self.control_options["seed"], self.place.layer, Stream.mix, Stream.STEP
        split = lambda z: mix(z + step & Stream.MASK)
        draw = lambda: torch.tensor([(split(split(split(seed) ^ layer) ^ p) >> 32) * self.slots >> 32 for p in range(q.size(2))])
        return abc_sums(q, k, v, self.one_hot(call.kept(("random", layer, q.size(2)), draw)))

    def linformer(self, q, k, v, x, call):
        return abc_sums(q, k, v, self.weight[:, :q.size(2)].t()[None, None])

    def clustering(self, q, k, v, x, call):
        with torch.no_grad():  # online k-means: one row after another
            rows, time = self.join(k)[0], k.size(2)
            sums, counts, slots = rows[:self.slots].clone(), torch.ones(self.slots, dtype=rows.dtype), torch.arange(time)
            squares = sums.square().sum(1)
            for t in range(self.slots, time):
                j = int(((squares / counts - 2 * (sums @ rows[t])) / counts).argmin())
                sums[j] += rows[t]
                counts[j] += 1
                squares[j] = sums[j] @ sums[j]
                slots[t] = j
            phi = self.one_hot(slots)
            factor = phi.cumsum(2).clamp_min(1).reciprocal()
        return abc_sums(q, k, v, phi, factor)

    def window(self, q, k, v, x, call):
        return window(q, k, v, self.slots, zeros=True)

    def dilated(self, q, k, v, x, call):
        lanes = lambda t: t.unflatten(2, (-1, 2)).transpose(2, 3).flatten(1, 2)  # [B,2H,T/2,d], tokens 0, 2, 4 .. and 1, 3, 5 ..
        o = window(lanes(q), lanes(k), lanes(v), self.slots, zeros=True)
        return o.unflatten(1, (-1, 2)).transpose(2, 3).flatten(2, 3)

    def local_to_global(self, q, k, v, x, call):
        """The global tokens are the keys; later ones are zeros."""
        places = torch.tensor(self.control_options["global_positions"])
        places = places[places < q.size(2)]
        seen = (places <= torch.arange(q.size(2))[:, None]).to(q.dtype)
        scores = F.pad(q @ k[:, :, places].transpose(-1, -2) / math.sqrt(self.width) * seen, (0, self.slots - len(places)))
        return (scores.softmax(-1)[..., :len(places)] * seen) @ v[:, :, places]

    def compressive(self, q, k, v, x, call):
        """Full slots are means of c tokens; in the slot being filled, each query reads its own sum; the others are zeros."""
        c = self.control_options["compression"]
        q, k, v = (t.unflatten(2, (-1, c)) for t in (q / math.sqrt(self.width), k, v))  # [B,H,N,c,d]
        filling_k, filling_v = k.cumsum(3) / c, v.cumsum(3) / c
        count = q.size(2)
        full = torch.ones(count, count, dtype=torch.bool).tril(-1)[:, None].to(q.dtype)  # [N,1,N]
        scores = (q.flatten(2, 3) @ filling_k[:, :, :, -1].transpose(-1, -2)).unflatten(2, (-1, c)) * full
        own = (q * filling_k).sum(-1, keepdim=True)
        # The slot being filled counts once: as the first column.
        scores = scores.masked_fill(torch.eye(count, dtype=torch.bool)[:, None], -math.inf)
        p = torch.cat([own, scores, q.new_zeros(*q.shape[:4], self.slots - count)], -1).softmax(-1)
        weights = (p[..., 1:1 + count] * full).flatten(2, 3)
        return (weights @ filling_v[:, :, :, -1]).unflatten(2, (-1, c)).add(p[..., :1] * filling_v).flatten(2, 3)

    def luna(self, q, k, v, x, call):
        slots = self.first[None] if self.place.layer == 0 else call.slots
        s = self.split(self.control_q(slots)) @ self.split(self.control_k(x)).transpose(-1, -2) / math.sqrt(self.width)
        phi = s.softmax(-1)
        memory = phi @ v
        call.slots = self.join(memory)
        return F.scaled_dot_product_attention(q, phi @ k, memory)


class Grc(nn.Module):
    """A gated recurrent cache around another attention (variant "paper"). Causal: queries read the cache as it was before the segment."""

    def __init__(self, take, prefix, options, place, core):
        super().__init__()
        self.core, self.causal, self.heads = core, place.causal, place.heads
        self.channels, self.rows = int(place.dim * options["cache_ratio"]), options["cache_len"]
        self.q, self.kv = take.map(f"{prefix}.grc", "q"), take.map(f"{prefix}.grc", "k", "v")
        self.gates, self.candidate = take.map(f"{prefix}.grc", "reset_gate", "update_gate"), take.map(f"{prefix}.grc", "candidate")
        self.mix = take.parameter(f"{prefix}.grc.lambda")

    def split(self, x, parts=1):
        x = x.unflatten(-1, (parts, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return x if parts > 1 else x[0]

    def update(self, cache, x):
        index = torch.arange(self.rows) * x.size(1) // self.rows
        rows, cache = x[:, index, :self.channels], cache.expand(x.size(0), -1, -1)
        reset, update = self.gates(torch.cat([rows, cache], -1)).sigmoid().chunk(2, -1)
        return torch.lerp(cache, self.candidate(torch.cat([rows, reset * cache], -1)), update)

    def forward(self, x, past, state, call):
        cache, inner = state or (x.new_zeros(1, self.rows, self.channels), None)
        o, inner = self.core.heads_of(x, past, inner, call)
        updated = self.update(cache.detach(), x)
        read = cache if self.causal else updated
        k, v = self.split(self.kv(read), 2)
        q = self.split(self.q(x[..., :self.channels]))
        m = F.scaled_dot_product_attention(q, k.expand(q.size(0), -1, -1, -1), v.expand(q.size(0), -1, -1, -1))
        m, gate = m.transpose(1, 2), self.mix.sigmoid()[:, None]
        o = o.unflatten(-1, (self.heads, -1))
        width = m.size(-1)
        y = torch.cat([torch.lerp(o[..., :width], m, gate), o[..., width:] * (1 - gate)], -1).flatten(-2)
        after = updated.mean(0, keepdim=True)
        return self.core.o(y), (after if self.causal else after.detach(), inner)


class Knn(nn.Module):
    """A memory of keys and values without gradient, of which every query takes the best, around another attention."""

    def __init__(self, take, prefix, options, place, core):
        super().__init__()
        self.core, self.rows, self.best = core, options["memory_len"], options["top_k"]
        self.gate, self.scale = take.parameter(f"{prefix}.knn.gate"), take.parameter(f"{prefix}.knn.scale")

    def read(self, q, keys, values):
        with torch.no_grad():
            chosen = (q @ keys.transpose(-1, -2)).topk(min(self.best, keys.size(2)), sorted=False).indices  # [B,H,Q,K]
        flat = chosen + torch.arange(keys[..., 0, 0].numel()).view(*keys.shape[:2], 1, 1) * keys.size(2)
        pick = lambda rows: F.embedding(flat, rows.reshape(-1, rows.size(-1)))  # [B,H,Q,K,d]
        weights = (pick(keys) @ q.unsqueeze(-1)).softmax(-2)
        return (weights.transpose(-1, -2) @ pick(values)).squeeze(-2)

    def forward(self, x, past, state, call):
        memory, inner = state or (None, None)
        o, inner = self.core.heads_of(x, past, inner, call)
        q, k, v = self.core.rows
        with torch.no_grad():
            fresh = F.normalize(k, dim=-1), v
            after = fresh if memory is None else tuple(torch.cat(both, 2) for both in zip(memory, fresh))
            after = tuple(rows[:, :, -self.rows:].detach() for rows in after)
        if memory is not None:
            far = self.read(F.normalize(q, dim=-1) * self.scale[:, None, None], *memory)
            near = o.unflatten(-1, (self.core.heads, -1))
            o = torch.lerp(near, far.transpose(1, 2), self.gate.sigmoid()[:, None]).flatten(-2)
        return self.core.o(o), (after, inner)


ATTENTIONS = {"softmax": Softmax, "relative": Relative, "relative_buckets": RelativeBuckets, "disentangled": Disentangled,
              "sliding_window": SlidingWindow, "linear": Linear, "bigbird": BigBird, "lsh": Lsh, "linformer": Linformer, "abc": Abc}
AROUND = {"grc": Grc, "knn": Knn}  # memories that stand around an attention


def make_attention(take, prefix, options, around, place):
    """around: a memory's type and options, or nothing."""
    core = ATTENTIONS[options["type"]](take, prefix, options, place)
    return AROUND[around["type"]](take, prefix, around, place, core) if around else core


class Call(types.SimpleNamespace):
    """What the attentions of one segment share: dim; u, v of relative attention; m memory rows before the tokens (and after, with `write`), which
    attend only to themselves, or to all; slots passed to the next layer. Tables that only depend on lengths are cached."""
    tables = {}

    def kept(self, key, make):
        if key not in self.tables:
            self.tables[key] = make()
        return self.tables[key]

    def causal(self, queries, keys):
        return self.kept(("causal", queries, keys), lambda: torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries))

    def sinusoids(self, keys):
        """Distances from keys - 1 down to 0, or further if memory rows look right."""
        last = -max(1, self.m)
        return self.kept(("distances", keys, last, self.dtype), lambda: sinusoids(torch.arange(keys - 1, last, -1), self.dim).to(self.dtype))

    def spans(self, rows, cached):
        if not self.m:
            return [(0, rows, 0, False)]
        m, write = self.m, self.m if self.write else 0
        spans = [(0, m, cached, True), (m, rows - write, 0, False)]
        return spans + [(rows - m, rows, cached, True)] if write else spans
