"""The models of `mnemo-bench` in plain eager PyTorch: the same functions, written as one would write them today.

Letters: B batch, Q queries, M cached rows, K = M + Q keys, P distances, D width, H heads, d = D / H, n slots, m memory tokens.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def sinusoids(positions, dim):
    frequencies = 10000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64, device=positions.device) / dim)
    angles = positions.double()[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], -1).float()


class Heads(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.width = heads, dim // heads

    def split(self, x, parts=1):
        """[B,T,parts*D] -> `parts` tensors [B,H,T,d]."""
        x = x.view(*x.shape[:2], parts, self.heads, -1).permute(2, 0, 3, 1, 4)
        return x if parts > 1 else x[0]

    @staticmethod
    def join(x):
        return x.transpose(1, 2).flatten(2)


class Softmax(Heads):
    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        self.qkv, self.o = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = self.split(self.qkv(x), 3)
        return self.o(self.join(F.scaled_dot_product_attention(q, k, v, is_causal=True)))


def relative_attention(q, k, v, r, u, bias, mask):
    """Transformer-XL attention: the position term is passed to the fused attention as its mask. r: distances from K-1 down to 0 or,
    if queries look right, to 1-Q."""
    position = (q + bias[:, None]) @ r
    queries, keys, distances = q.size(2), k.size(2), r.size(-1)
    if queries > 1 and distances == keys:
        position = F.pad(position, (1, 0)).view(*q.shape[:2], keys + 1, queries)[:, :, 1:].view(*q.shape[:3], keys)
    elif queries > 1:  # each row starts one distance further left
        flat = position.flatten(2)[..., queries - 1:queries - 1 + queries * (distances - 1)]
        position = flat.view(*q.shape[:3], distances - 1)[..., :keys]
    position = position * (1 / math.sqrt(q.size(-1)))
    if mask is not None:
        position = position.masked_fill(~mask, float("-inf"))
    return F.scaled_dot_product_attention(q + u[:, None], k, v, attn_mask=position)


class Relative(Heads):
    """Transformer-XL attention; u and v belong to the decoder."""

    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        self.q, self.r, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.kv = nn.Linear(dim, 2 * dim, bias=False)

    def distances(self, sinus):
        return self.r(sinus).view(-1, self.heads, self.width).permute(1, 2, 0)  # [H,d,P]

    def attend(self, q, k, v, r, u, bias, mask):
        return self.o(self.join(relative_attention(q, k, v, r, u, bias, mask)))

    def forward(self, x, past, sinus, u, bias, mask):
        rows = torch.cat([past, x], 1) if past.size(1) else x
        k, v = self.split(self.kv(rows), 2)
        return self.attend(self.split(self.q(x)), k, v, self.distances(sinus), u, bias, mask)


def abc_scan(q, k, v, s, state):
    """Bounded memory with exp, in chunks as matrix products: [B,H,T,d] -> the same, state. The products of all chunks are batched; a loop carries
    the memory from chunk to chunk. Among chunks of 16 to 128, batched or one by one, this was the fastest, forward and backward.
    e^(end - z) stays in float32's range as long as the log of the sum of weights grows by less than 80 inside a chunk."""
    memory_k, memory_v, z0 = state
    s = s.float()
    z = torch.logaddexp(z0.unsqueeze(2), s.logcumsumexp(2))  # [B,H,T,n]
    q = q / math.sqrt(q.size(-1))
    q, k, v, s, z = (t.unflatten(2, (-1, math.gcd(q.size(2), 64))) for t in (q, k, v, s, z))  # [B,H,N,C,..]
    end = z[:, :, :, -1:]
    begin = torch.cat([z0[:, :, None, None], end[:, :, :-1]], 2)
    weight, back, keep = (s - end).exp().to(q.dtype), (end - z).exp().to(q.dtype), (begin - end).exp()
    columns = weight.transpose(-1, -2)
    before_k, before_v = [memory_k], [memory_v]
    for more_k, more_v, share in zip((columns @ k).unbind(2), (columns @ v).unbind(2), keep.transpose(-1, -2).unbind(2)):
        before_k.append(torch.addcmul(more_k, share, before_k[-1]))
        before_v.append(torch.addcmul(more_v, share, before_v[-1]))
    *before_k, memory_k = before_k
    *before_v, memory_v = before_v
    before_k, before_v, keep = (t.to(q.dtype) for t in (torch.stack(before_k, 2), torch.stack(before_v, 2), keep))
    scores = ((q @ k.transpose(-1, -2)).tril() @ weight + keep * (q @ before_k.transpose(-1, -2))) * back
    p = scores.softmax(-1) * back  # [B,H,N,C,n]
    o = (p @ columns).tril() @ v + (p * keep) @ before_v
    return o.flatten(2, 3), (memory_k, memory_v, z[:, :, -1, -1])


class Abc(Heads):
    """Bounded memory, MLP control."""

    def __init__(self, dim, heads, slots):
        super().__init__(dim, heads)
        self.slots = slots
        self.qkv, self.o = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.control = nn.Linear(dim, heads * slots, bias=False)

    def empty(self, batch):
        shape = (batch, self.heads, self.slots)
        return torch.zeros(*shape, self.width), torch.zeros(*shape, self.width), torch.full(shape, float("-inf"))

    def forward(self, x, state):
        q, k, v = self.split(self.qkv(x), 3)
        y, state = abc_scan(q, k, v, self.split(self.control(x)), state)
        return self.o(self.join(y)), state

    def step(self, x, state):
        """One token."""
        q, k, v = self.split(self.qkv(x), 3)
        s = self.split(self.control(x)).squeeze(2)
        memory_k, memory_v, z0 = state
        z = torch.logaddexp(z0, s)
        keep, weight = (z0 - z).exp().unsqueeze(-1), (s - z).exp().unsqueeze(-1)
        memory_k, memory_v = keep * memory_k + weight * k, keep * memory_v + weight * v
        return self.o(self.join(F.scaled_dot_product_attention(q, memory_k, memory_v))), (memory_k, memory_v, z)


class Layer(nn.Module):
    def __init__(self, attn, dim, ffn):
        super().__init__()
        self.attn, self.norm1, self.norm2 = attn, nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.ffn = nn.Sequential(nn.Linear(dim, ffn), nn.ReLU(), nn.Linear(ffn, dim))

    def add(self, h, y):
        h = h + y
        return h + self.ffn(self.norm2(h))


class Decoder(nn.Module):
    """Pre-norm language model with tied softmax. `case` selects it: attention "softmax" (sinusoidal positions), "relative" (with a
    segment cache or RMT tokens) or "abc"."""

    def __init__(self, case):
        super().__init__()
        dim, heads = case["dim"], case["heads"]
        self.dim, self.kind, self.segment = dim, case["attention"], case["segment"]
        self.mem_len, self.mem_tokens = case["mem_len"], case["mem_tokens"]
        self.embed = nn.Embedding(case["vocab"], dim)
        self.bias = nn.Parameter(torch.zeros(case["vocab"]))
        if self.mem_tokens:
            self.memory = nn.Parameter(torch.zeros(self.mem_tokens, dim))
        if self.kind == "relative":
            self.u, self.v = (nn.Parameter(torch.zeros(heads, dim // heads)) for _ in range(2))
        if self.kind == "softmax":
            self.register_buffer("positions", sinusoids(torch.arange(self.segment), dim), persistent=False)
        make = {"softmax": lambda: Softmax(dim, heads), "relative": lambda: Relative(dim, heads),
                "abc": lambda: Abc(dim, heads, case["slots"])}[self.kind]
        self.layers = nn.ModuleList(Layer(make(), dim, case["ffn"]) for _ in range(case["layers"]))
        self.norm = nn.LayerNorm(dim)
        self.tables = {}

    def load(self, theirs):
        """Loads Mnemo's parameters; some layers are fused here."""
        mine = {"embed.weight": "embed.weight", "bias": "head.bias", "memory": "memory.tokens", "u": "backbone.u", "v": "backbone.v"}
        values = {}
        for name in self.state_dict():
            their = mine.get(name) or "backbone." + name.replace("ffn.2.", "ffn.1.")
            their = their.replace("backbone.norm.", "backbone.final_norm.")
            together = {"qkv": "qkv", "kv": "kv"}.get(name.split(".")[-2] if "." in name else "")
            parts = [their.replace(f".{together}.", f".{part}.") for part in together] if together else [their]
            values[name] = torch.cat([theirs.pop(part) for part in parts])
        self.load_state_dict(values)
        if theirs:
            raise ValueError(f"parameters that the peer does not have: {sorted(theirs)}")

    def initial(self, batch):
        if self.kind == "abc":
            return [layer.attn.empty(batch) for layer in self.layers]
        if self.mem_tokens:
            return self.memory.expand(batch, -1, -1)
        return [torch.zeros(batch, 0, self.dim) for _ in self.layers]

    def logits(self, hidden):
        return F.linear(hidden, self.embed.weight, self.bias)

    def table(self, queries, cached):
        """Distances and mask of a segment, cached: they only depend on the lengths."""
        key = queries, cached
        if key not in self.tables:
            m, keys = self.mem_tokens, cached + queries
            mask = torch.ones(queries, keys, dtype=torch.bool, device=self.embed.weight.device).tril(cached)
            if m:  # rows [read; tokens; write], open inside the memory
                mask[:m, :m] = True
                mask[-m:, -m:] = True
            sinus = sinusoids(torch.arange(keys - 1, -queries if m > 1 else -1, -1, device=self.embed.weight.device), self.dim)
            self.tables[key] = sinus.to(self.embed.weight.dtype), mask
        return self.tables[key]

    def forward(self, tokens, state):
        """A whole segment [B,T] -> hidden [B,T,D], state."""
        h = self.embed(tokens) * math.sqrt(self.dim)
        if self.kind == "softmax":
            h = h + self.positions[:h.size(1)]
            for layer in self.layers:
                h = layer.add(h, layer.attn(layer.norm1(h)))
            return self.norm(h), state
        new = []
        if self.kind == "abc":
            for layer, memory in zip(self.layers, state):
                y, memory = layer.attn(layer.norm1(h), memory)
                new.append(memory)
                h = layer.add(h, y)
            return self.norm(h), new
        m = self.mem_tokens
        cache = [h[:, :0]] * len(self.layers) if m else state
        if m:
            h = torch.cat([state, h, state], 1)
        sinus, mask = self.table(h.size(1), cache[0].size(1))
        for layer, past in zip(self.layers, cache):
            new.append(torch.cat([past, h.detach()], 1)[:, -self.mem_len:] if self.mem_len else past)
            y = layer.attn(layer.norm1(h), layer.norm1(past) if past.size(1) else past, sinus, self.u, self.v, mask)
            h = layer.add(h, y)
        h = self.norm(h)
        return (h[:, m:-m], h[:, -m:]) if m else (h, new)


class Generator:
    """One token at a time. Keys and values of the open segment and of the cache are in buffers; distances are projected once."""

    def __init__(self, model):
        self.model, self.count, self.filled = model, 0, 0
        self.memory = model.initial(1)
        if model.kind == "abc":
            return
        longest = model.mem_len + model.segment + 2 * model.mem_tokens
        shape = len(model.layers), 1, model.layers[0].attn.heads, longest, model.layers[0].attn.width
        self.k, self.v = torch.zeros(shape), torch.zeros(shape)
        if model.kind == "relative":
            self.longest = longest
            sinus = sinusoids(torch.arange(longest - 1, -max(1, model.mem_tokens), -1), model.dim)
            self.r = [layer.attn.distances(sinus) for layer in model.layers]

    def rows(self, h):
        """Rows [1,Q,D] after those in the buffers; several rows attend to each other in both directions."""
        model, queries = self.model, h.size(1)
        begin, end = self.filled, self.filled + h.size(1)
        for i, layer in enumerate(model.layers):
            a, x = layer.attn, layer.norm1(h)
            if model.kind == "softmax":
                q, k, v = a.split(a.qkv(x), 3)
            else:
                q, (k, v) = a.split(a.q(x)), a.split(a.kv(x), 2)
            self.k[i, :, :, begin:end], self.v[i, :, :, begin:end] = k, v
            k, v = self.k[i, :, :, :end], self.v[i, :, :, :end]
            if model.kind == "softmax":
                y = a.o(a.join(F.scaled_dot_product_attention(q, k, v)))
            else:
                r = self.r[i][:, :, self.longest - end:self.longest + queries - 1]
                y = a.attend(q, k, v, r, model.u, model.v, None)
            h = layer.add(h, y)
        self.filled = end
        return model.norm(h)

    def read(self, tokens):
        """Whole segments [1,T], starting at a segment boundary."""
        model, state = self.model, self.memory
        for begin in range(0, tokens.size(1), model.segment):
            _, state = model(tokens[:, begin:begin + model.segment], state)
        self.count += tokens.size(1)
        if model.kind == "abc" or model.mem_tokens:
            self.memory = state
        elif state[0].size(1):
            self.filled = state[0].size(1)
            for i, (layer, past) in enumerate(zip(model.layers, state)):
                self.k[i, :, :, :self.filled], self.v[i, :, :, :self.filled] = layer.attn.split(layer.attn.kv(layer.norm1(past)), 2)

    def start(self):
        keep = min(self.filled, self.model.mem_len)
        for buffer in (self.k, self.v):
            buffer[:, :, :, :keep] = buffer[:, :, :, self.filled - keep:self.filled].clone()
        self.filled = keep
        if self.model.mem_tokens:
            self.rows(self.memory)

    def step(self, token):
        """token [1,1] -> the most likely next one."""
        model = self.model
        h = model.embed(token) * math.sqrt(model.dim)
        if model.kind == "abc":
            for i, layer in enumerate(model.layers):
                y, self.memory[i] = layer.attn.step(layer.norm1(h), self.memory[i])
                h = layer.add(h, y)
            h = model.norm(h)
        else:
            place = self.count % model.segment
            if place == 0:
                self.start()
            if model.kind == "softmax":
                h = h + model.positions[place]
            h = self.rows(h)
            if place == model.segment - 1 and model.mem_tokens:
                self.memory = self.rows(self.memory)
        self.count += 1
        return model.logits(h).argmax(-1)
