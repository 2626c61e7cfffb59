"""The models of `mnemo bench` in plain eager PyTorch: the same sizes and formulas, written as one would write them today.

Letters: B batch, T tokens, M cached rows, K = M + Q keys, D width, H heads, d = D / H, n slots.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def sinusoids(positions, dim):
    frequencies = 10000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    angles = positions[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], -1)


class Relative(nn.Module):
    """Transformer-XL attention; u and v are the decoder's."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.width = heads, dim // heads
        self.q, self.k, self.v, self.o, self.r = (nn.Linear(dim, dim, bias=False) for _ in range(5))

    def split(self, x):
        return x.view(x.size(0), x.size(1), self.heads, self.width).transpose(1, 2)

    def attend(self, q, k, v, r, u, bias, mask):
        content = (q + u[:, None]) @ k.transpose(-1, -2)
        position = (q + bias[:, None]) @ r.transpose(-1, -2)  # [B,H,Q,P], p = K-1 downwards
        queries, keys = q.size(2), k.size(2)
        if position.size(-1) == keys:  # no key on the right: pad, view, slice
            position = F.pad(position, (1, 0)).view(*q.shape[:2], keys + 1, queries)[:, :, 1:].reshape(content.shape)
        else:
            column = torch.arange(keys)[None] + queries - 1 - torch.arange(queries)[:, None]
            position = position.gather(-1, column.expand(*q.shape[:2], -1, -1))
        scores = (content + position) / math.sqrt(self.width)
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)

    def forward(self, x, rows, sinus, u, bias, mask):
        r = self.r(sinus).view(-1, self.heads, self.width).transpose(0, 1)
        return self.o(self.attend(self.split(self.q(x)), self.split(self.k(rows)), self.split(self.v(rows)), r, u, bias, mask))


class Abc(nn.Module):
    """Bounded memory, MLP control with exp: chunks of tokens, inside a chunk every weight is e^(s_i - z_t) <= 1."""

    chunk = 16

    def __init__(self, dim, heads, slots):
        super().__init__()
        self.heads, self.width, self.slots = heads, dim // heads, slots
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))
        self.control = nn.Linear(dim, heads * slots, bias=False)

    def split(self, x):
        return x.view(x.size(0), x.size(1), self.heads, -1).transpose(1, 2)

    def empty(self, batch):
        shape = (batch, self.heads, self.slots)
        return torch.zeros(*shape, self.width), torch.zeros(*shape, self.width), torch.full(shape, float("-inf"))

    def forward(self, x, state):
        q, k, v, s = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x)), self.split(self.control(x))
        q = q / math.sqrt(self.width)
        memory_k, memory_v, z0 = state
        outputs = []
        for qc, kc, vc, sc in zip(*(t.split(self.chunk, 2) for t in (q, k, v, s))):
            z = torch.logaddexp(z0.unsqueeze(2), sc.logcumsumexp(2))  # [B,H,C,n]
            keep = (z0.unsqueeze(2) - z).exp()
            causal = torch.ones(qc.size(2), qc.size(2), dtype=torch.bool).tril()
            weight = (sc.unsqueeze(2) - z.unsqueeze(3)).masked_fill(~causal[..., None], float("-inf")).exp()  # [B,H,t,i,n]
            scores = torch.einsum("bhti,bhtin->bhtn", qc @ kc.transpose(-1, -2), weight) + keep * (qc @ memory_k.transpose(-1, -2))
            p = scores.softmax(-1)
            outputs.append(torch.einsum("bhtn,bhtin->bhti", p, weight) @ vc + (p * keep) @ memory_v)
            last = weight[:, :, -1].transpose(-1, -2)  # [B,H,n,i]
            memory_k = keep[:, :, -1].unsqueeze(-1) * memory_k + last @ kc
            memory_v = keep[:, :, -1].unsqueeze(-1) * memory_v + last @ vc
            z0 = z[:, :, -1]
        return self.o(torch.cat(outputs, 2).transpose(1, 2).flatten(2)), (memory_k, memory_v, z0)

    def step(self, x, state):
        q, k, v, s = (self.split(m(x)) for m in (self.q, self.k, self.v, self.control))
        memory_k, memory_v, z0 = state
        s = s.squeeze(2)
        z = torch.logaddexp(z0, s)
        keep, write = (z0 - z).exp().unsqueeze(-1), (s - z).exp().unsqueeze(-1)
        memory_k, memory_v = keep * memory_k + write * k, keep * memory_v + write * v
        p = (q @ memory_k.transpose(-1, -2) / math.sqrt(self.width)).softmax(-1)
        return self.o((p @ memory_v).transpose(1, 2).flatten(2)), (memory_k, memory_v, z)


class Decoder(nn.Module):
    """Pre-norm decoder language model with tied softmax: segment cache, RMT tokens, or ABC in place of attention."""

    def __init__(self, vocab, layers, dim, heads, ffn, mem_len=0, mem_tokens=0, slots=0, segment=64):
        super().__init__()
        self.dim, self.heads, self.mem_len, self.mem_tokens, self.slots, self.segment = dim, heads, mem_len, mem_tokens, slots, segment
        self.embed = nn.Embedding(vocab, dim)
        self.bias = nn.Parameter(torch.zeros(vocab))
        if mem_tokens:
            self.memory = nn.Parameter(torch.randn(mem_tokens, dim))
        if not slots:
            self.u, self.v = (nn.Parameter(torch.randn(heads, dim // heads) * 0.02) for _ in range(2))
        self.layers = nn.ModuleList(
            nn.ModuleDict(dict(attn=Abc(dim, heads, slots) if slots else Relative(dim, heads), norm1=nn.LayerNorm(dim),
                               norm2=nn.LayerNorm(dim), ffn=nn.Sequential(nn.Linear(dim, ffn), nn.ReLU(), nn.Linear(ffn, dim))))
            for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        for name, p in self.named_parameters():
            if p.dim() == 2 and name != "memory":
                nn.init.normal_(p, std=0.02)

    def initial(self, batch):
        if self.slots:
            return [layer["attn"].empty(batch) for layer in self.layers]
        state = {"cache": [torch.zeros(batch, 0, self.dim) for _ in self.layers]}
        if self.mem_tokens:
            state["memory"] = self.memory.expand(batch, -1, -1)
        return state

    def logits(self, h):
        return F.linear(self.norm(h), self.embed.weight, self.bias)

    def mask(self, tokens, cached):
        m, queries = self.mem_tokens, tokens + 2 * self.mem_tokens
        mask = torch.ones(queries, cached + queries, dtype=torch.bool).tril(cached)
        if m:
            mask[:m, cached:cached + m] = True
            mask[-m:, -m:] = True
            mask[:m, :cached] = False
            mask[-m:, :cached] = False
        return mask

    def forward(self, tokens, state):
        """A whole segment [B,T] -> hidden [B,T,D], state."""
        h = self.embed(tokens) * math.sqrt(self.dim)
        if self.slots:
            new = []
            for layer, s in zip(self.layers, state):
                y, s = layer["attn"](layer["norm1"](h), s)
                new.append(s)
                h = h + y
                h = h + layer["ffn"](layer["norm2"](h))
            return h, new
        m = self.mem_tokens
        if m:
            h = torch.cat([state["memory"], h, state["memory"]], 1)
        cached = state["cache"][0].size(1)
        keys = cached + h.size(1)
        sinus = sinusoids(torch.arange(keys - 1, -h.size(1) if m > 1 else -1, -1.0), self.dim)
        mask = self.mask(tokens.size(1), cached)
        cache = []
        for layer, past in zip(self.layers, state["cache"]):
            cache.append(torch.cat([past, h.detach()], 1)[:, -self.mem_len:] if self.mem_len else past)
            rows = layer["norm1"](torch.cat([past, h], 1))
            h = h + layer["attn"](rows[:, cached:], rows, sinus, self.u, self.v, mask)
            h = h + layer["ffn"](layer["norm2"](h))
        new = {"cache": cache}
        if m:
            new["memory"] = self.norm(h[:, -m:])
            h = h[:, m:-m]
        return h, new


class Generator:
    """One token at a time with keys, values and projected distances kept; memories move where a segment ends."""

    def __init__(self, model):
        self.model, self.count = model, 0
        self.state = model.initial(1)
        if not model.slots:
            longest = model.mem_len + model.segment + 2 * model.mem_tokens
            # Negative distances are needed inside memory blocks only.
            self.lowest = -model.mem_tokens
            sinus = sinusoids(torch.arange(longest, self.lowest - 1, -1.0), model.dim)
            self.longest = longest
            self.r = [l["attn"].r(sinus).view(-1, model.heads, model.dim // model.heads).transpose(0, 1) for l in model.layers]

    def rows(self, h, write=False):
        """Rows [1,Q,D] behind what is kept."""
        model, queries = self.model, h.size(1)
        right = queries > 1 and model.mem_tokens > 0
        for i, layer in enumerate(model.layers):
            self.hidden[i] = torch.cat([self.hidden[i], h], 1)
            x = layer["norm1"](h)
            a = layer["attn"]
            self.k[i] = torch.cat([self.k[i], a.split(a.k(x))], 2)
            self.v[i] = torch.cat([self.v[i], a.split(a.v(x))], 2)
            keys = self.k[i].size(2)
            low = queries - 1 if right else 0
            r = self.r[i][:, self.longest - (keys - 1):self.longest + low + 1]
            mask = None
            if queries > 1:
                mask = torch.ones(queries, keys, dtype=torch.bool)
                if self.cached:
                    mask[:, :self.cached] = False
            h = h + a.o(a.attend(a.split(a.q(x)), self.k[i], self.v[i], r, model.u, model.v, mask))
            h = h + layer["ffn"](layer["norm2"](h))
        return h

    def start(self):
        model = self.model
        cache = self.state["cache"]
        self.cached = cache[0].size(1)
        self.hidden = list(cache)
        self.k, self.v = [], []
        for layer, rows in zip(model.layers, cache):
            a, x = layer["attn"], layer["norm1"](rows)
            self.k.append(a.split(a.k(x)))
            self.v.append(a.split(a.v(x)))
        if model.mem_tokens:
            self.rows(self.state["memory"])

    def end(self):
        model = self.model
        new = {}
        if model.mem_tokens:
            new["memory"] = model.norm(self.rows(self.state["memory"], True))
        new["cache"] = [h[:, -model.mem_len:] if model.mem_len else h[:, :0] for h in self.hidden]
        self.state = new

    def step(self, token):
        model = self.model
        h = model.embed(token) * math.sqrt(model.dim)
        if model.slots:
            for i, layer in enumerate(model.layers):
                y, self.state[i] = layer["attn"].step(layer["norm1"](h), self.state[i])
                h = h + y
                h = h + layer["ffn"](layer["norm2"](h))
        else:
            if self.count % model.segment == 0:
                self.start()
            h = self.rows(h)
            if (self.count + 1) % model.segment == 0:
                self.end()
        self.count += 1
        return model.logits(h).argmax(-1)
