"""A long-lived peer of `mnemo-bench --all`: one model of Mnemo in eager PyTorch; reads one request per line, answers with one line.

  mechanisms.py CASE_JSON TENSORS [--fused]     CASE_JSON: config (the model's own), segment (tokens; 0: all in one piece), bptt_depth (-1: full), threads
                                                TENSORS: safetensors with Mnemo's parameters, tokens, labels, and outputs of a test text
  check SEGMENT TOLERANCE -> JSON: loss and gradient norm on the test text, and the share of outputs that agree with Mnemo's
  train T                 -> seconds for one training step over T tokens, or "out of memory"
  memory T                -> memory in bytes of pages that such a step adds to what was in use before it

The state between segments is a pair: that of the layer contexts and recurrent tokens, and a list with that of each attention.
"""
import ctypes
import gc
import json
import math
import resource
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import load_file

from attentions import AROUND, Call, Tensors, make_attention
from models import sinusoids


class Nothing(nn.Module):
    """The memory of a model without memory. first() is the initial state; enter() adds rows; before() returns the rows to the left of a layer;
    leave() returns the token rows, the next state and the auxiliary loss, given the last layer's rows and those that entered each layer."""
    m, write = 0, False

    def __init__(self, take, options, model):
        super().__init__()
        self.options, self.model = options, model
        self.prepare(take)

    def prepare(self, take):
        pass

    def first(self, batch):
        return None

    def enter(self, h, state):
        return h

    def before(self, layer, state):
        return None

    def leave(self, h, entered, state):
        return h, state, 0


class SegmentCache(Nothing):
    def first(self, batch):
        return [torch.zeros(batch, 0, self.model.dim)] * len(self.model.layers)

    def before(self, layer, state):
        return state[layer]

    def leave(self, h, entered, state):
        return h, [torch.cat([past, rows.detach()], 1)[:, -self.options["mem_len"]:] for past, rows in zip(state, entered)], 0


class Compressive(SegmentCache):
    """With compression "conv": each block of c rows that leaves the memory becomes one; the reconstruction loss trains only the convolution."""

    def prepare(self, take):
        self.convolutions = nn.ModuleList(take.map("memory.compression.layers", str(i)) for i in range(len(self.model.layers)))

    def first(self, batch):
        return [(torch.zeros(batch, 0, self.model.dim),) * 2] * len(self.model.layers)

    def before(self, layer, state):
        return torch.cat(state[layer], 1)

    def leave(self, h, entered, state):
        o, new, loss = self.options, [], 0
        for layer, convolution, (compressed, plain), rows in zip(self.model.layers, self.convolutions, state, entered):
            rows = rows.detach()
            plain = torch.cat([plain, rows], 1)
            count = max(0, plain.size(1) - o["mem_len"]) // o["compression_rate"] * o["compression_rate"]
            if count:
                old, plain = plain[:, :count], plain[:, count:]
                made = convolution(old.unflatten(1, (-1, o["compression_rate"])).flatten(2))
                compressed = torch.cat([compressed, made.detach()], 1)[:, -o["compressed_len"]:]
                if torch.is_grad_enabled():
                    loss = loss + self.reconstruction(layer, rows, old, made)
            new.append((compressed, plain))
        return h, new, loss * o["loss_weight"]

    @staticmethod
    def reconstruction(layer, rows, old, made):
        """Content-based attention in which all parameters except the convolution's are constant."""
        attn, norm = layer.attn, layer.norm1
        still = lambda x: F.layer_norm(x, norm.normalized_shape, norm.weight.detach(), norm.bias.detach())
        kv = attn.kv.weight.detach()
        q = attn.split(F.linear(still(rows), attn.qkv.weight.detach()))
        read = lambda x: F.scaled_dot_product_attention(q, *attn.split(F.linear(still(x), kv), 2))
        return F.mse_loss(read(made), read(old))


class MemoryTokens(Nothing):
    def prepare(self, take):
        self.tokens = take.parameter("memory.tokens")
        self.m = len(self.tokens)

    def enter(self, h, state):
        return torch.cat([self.tokens.expand(h.size(0), -1, -1), h], 1)

    def leave(self, h, entered, state):
        return h[:, self.m:], state, 0


class RecurrentTokens(MemoryTokens):
    write = True

    def prepare(self, take):
        super().prepare(take)
        self.encoder = self.options["layout"] == "encoder"
        if self.encoder:  # [CLS] mem [SEP] x [SEP], all open
            self.count, self.m = self.m, 0

    def first(self, batch):
        return self.tokens.expand(batch, -1, -1)

    def enter(self, h, state):
        if not self.encoder:
            return torch.cat([state, h, state], 1)
        cls, sep = self.model.rows(torch.tensor([[self.options["cls_token"], self.options["sep_token"]]])).expand(h.size(0), -1, -1).split(1, 1)
        return torch.cat([cls, state, sep, h, sep], 1)

    def leave(self, h, entered, state):
        if self.encoder:
            return h[:, :1], h[:, 1:1 + self.count], 0
        return h[:, self.m:-self.m], h[:, -self.m:], 0


MEMORIES = {"segment_cache": SegmentCache, "attention_cache": SegmentCache, "compressive": Compressive, "memory_tokens": MemoryTokens,
            "recurrent_tokens": RecurrentTokens}


class Layer(nn.Module):
    def __init__(self, take, prefix, options, around, place):
        super().__init__()
        self.attn = make_attention(take, f"{prefix}.attn", options, around, place)
        self.norm1, self.norm2 = take.norm(f"{prefix}.norm1"), take.norm(f"{prefix}.norm2")
        self.ffn = nn.Sequential(take.map(f"{prefix}.ffn", "0"), nn.ReLU(), take.map(f"{prefix}.ffn", "1"))

    def forward(self, h, past, state, call):
        y, state = self.attn(self.norm1(h), None if past is None or not past.size(1) else self.norm1(past), state, call)
        h = h + y
        return h + self.ffn(self.norm2(h)), state


class Model(nn.Module):
    """Pre-norm layers, tied softmax or a classifier."""

    def __init__(self, config, tensors):
        super().__init__()
        take, backbone = Tensors(tensors), config["backbone"]
        self.dim, self.causal = backbone["dim"], backbone["type"] == "decoder"
        self.positions, self.head = backbone["position"]["type"] == "sinusoidal", config["head"]
        self.embed = take.parameter("embed.weight")
        relative = "backbone.u" in take.left
        self.u, self.v = (take.parameter(f"backbone.{name}") if relative else None for name in "uv")
        options = {memory["type"]: memory for memory in config["memory"]}
        around = next((options.pop(name) for name in AROUND if name in options), None)
        self.layers = nn.ModuleList(
            Layer(take, f"backbone.layers.{i}", backbone["attention"], around,
                  Call(dim=self.dim, heads=backbone["num_heads"], layer=i, causal=self.causal)) for i in range(backbone["num_layers"]))
        self.norm = take.norm("backbone.final_norm")
        kind, own = next(iter(options.items()), ("", {}))
        self.memory = MEMORIES.get(kind, Nothing)(take, own, self)
        if self.head["type"] == "classification":
            self.classifier = take.map("head", "classifier")
        else:
            self.bias = take.parameter("head.bias")
        if take.left:
            raise ValueError(f"parameters that the peer does not have: {sorted(take.left)}")

    def rows(self, tokens):
        return F.embedding(tokens, self.embed) * math.sqrt(self.dim)

    def forward(self, tokens, state):
        """A whole segment [B,T] -> input of the head, state, auxiliary loss of the memory."""
        kept, own = state if state is not None else (self.memory.first(tokens.size(0)), [None] * len(self.layers))
        call = Call(dim=self.dim, u=self.u, v=self.v, m=self.memory.m, write=self.memory.write, slots=None, dtype=self.embed.dtype)
        h, entered, states = self.memory.enter(self.rows(tokens), kept), [], []
        if self.positions:
            h = h + call.kept(("positions", h.size(1), h.dtype), lambda: sinusoids(torch.arange(h.size(1)), self.dim).to(h.dtype))
        for i, layer in enumerate(self.layers):
            entered.append(h)
            h, after = layer(h, self.memory.before(i, kept), own[i], call)
            states.append(after)
        hidden, kept, loss = self.memory.leave(self.norm(h), entered, kept)
        if self.head["type"] == "classification" and self.head["pool"] == "mean":
            hidden = hidden.mean(1, keepdim=True)
        return hidden, (kept, states), loss

    def loss(self, hidden, tokens, label):
        if self.head["type"] == "classification":
            return F.cross_entropy(self.classifier(hidden).flatten(0, 1), label)
        return F.cross_entropy(F.linear(hidden, self.embed, self.bias).flatten(0, 1), tokens.flatten())


def leaves(state):
    """The tensors of a state that require a gradient, and the state with leaves in their place."""
    found = []

    def cut(value):
        if isinstance(value, (list, tuple)):
            return type(value)(map(cut, value))
        if not torch.is_tensor(value) or not value.requires_grad:
            return value
        leaf = value.detach().requires_grad_()
        found.append((value, leaf))
        return leaf

    return found, cut(state)


class Peer:
    def __init__(self, case, tensors, fused):
        self.case, self.fused = case, fused
        self.tokens, self.labels, self.outputs = (tensors.pop(f"bench.{name}") for name in ("tokens", "labels", "outputs"))
        self.model = Model(case["config"], tensors)
        decayed, others = ([p for p in self.model.parameters() if (p.dim() > 1) == matrix] for matrix in (True, False))
        self.optimiser = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}], lr=1e-3,
                                           fused=fused or None)

    def backward(self, count, segment):
        """Gradients of a step over `count` tokens; loss and outputs of all segments. With depth 1, a loss reaches the previous segment."""
        segment = segment or count
        segments, depth = count // segment, self.case["bptt_depth"]
        state, total, losses, outputs, before = None, 0.0, [], [], []
        for s in range(segments):
            piece = self.tokens[:, s * segment:(s + 1) * segment + 1]
            cuts, state = leaves(state) if depth >= 0 else ([], state)
            hidden, state, more = self.model(piece[:, :-1], state)
            loss = (self.model.loss(hidden, piece[:, 1:], self.labels[:, s]) + more) / segments
            outputs.append(hidden.detach())
            total += loss.detach()
            if depth < 0:
                losses.append(loss)
                continue
            loss.backward(retain_graph=depth > 0 and s + 1 < segments)
            reached = [(made, leaf.grad) for made, leaf in cuts if leaf.grad is not None]
            if depth > 0 and reached:
                torch.autograd.backward(*zip(*reached))
        if losses:
            torch.stack(losses).sum().backward()
        return total.item(), outputs

    def check(self, segment, tolerance):
        count = self.case["check_tokens"]
        loss, outputs = self.backward(count, int(segment))
        found, ours = torch.cat(outputs, 1), self.outputs
        off = (found - ours).abs().amax(-1) / ours.abs().max()
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None]).item()
        self.optimiser.zero_grad()
        return json.dumps({"loss": loss, "gradient_norm": norm, "off": off.max().item(), "agree": (off <= float(tolerance)).double().mean().item()})

    def step(self, count):
        self.backward(count, self.case["segment"])
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        self.optimiser.zero_grad()

    def train(self, count):
        begin = time.perf_counter()
        self.step(int(count))
        return time.perf_counter() - begin

    def memory(self, count):
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        with open("/proc/self/clear_refs", "w") as reset:
            reset.write("5")  # resets the peak

        def peak():
            with open("/proc/self/status") as lines:
                return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024

        before = peak()
        self.step(int(count))
        return peak() - before


def main():
    case = json.loads(sys.argv[1])
    torch.set_num_threads(case["threads"])
    resource.setrlimit(resource.RLIMIT_DATA, (case["memory_limit"],) * 2)
    peer = Peer(case, load_file(sys.argv[2]), "--fused" in sys.argv)
    print("ready", flush=True)
    for line in sys.stdin:
        name, *words = line.split()
        try:
            print(getattr(peer, name)(*words), flush=True)
        except (RuntimeError, MemoryError) as error:
            if "memory" not in str(error):
                raise
            print("out of memory", flush=True)


main()
