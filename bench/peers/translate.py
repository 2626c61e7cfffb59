"""A peer of `mnemo-bench translation`: the same encoder-decoder Transformer in eager PyTorch or CTranslate2; reads one request per line,
answers with one line.

  translate.py CASE_JSON TENSORS torch|ctranslate2 [--fused]   TENSORS: safetensors with Mnemo's parameters and bench.source, bench.previous,
                                        bench.target [rows,length] with padding 1 (target: -100); then the line "ready"
  check                   -> JSON. torch: loss and gradient norm of a training step; ctranslate2: the tokens of four sentences, greedy
  train N                 -> seconds for N training steps (torch)
  hypotheses KIND BATCH BEAM      -> JSON: the tokens of all sentences, KIND float32 or int8 (ctranslate2)
  translate KIND BATCH BEAM COUNT -> seconds for COUNT sentences (ctranslate2)
"""
import json
import math
import os
import sys
import tempfile
import time

import numpy
import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import load_file

PAD, EOS = 1, 2


def sinusoids(rows, dim, first=2):
    half = dim // 2
    angles = torch.arange(first, first + rows).double().unsqueeze(1) * torch.exp(torch.arange(half).double() * (-math.log(10000) / (half - 1)))
    return torch.cat([angles.sin(), angles.cos()], 1).float()


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x, rows, mask, causal):
        split = lambda y: y.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        y = F.scaled_dot_product_attention(split(self.q(x)), split(self.k(rows)), split(self.v(rows)), attn_mask=mask, is_causal=causal)
        return self.o(y.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, dim, heads, ffn, cross):
        super().__init__()
        self.attn = Attention(dim, heads)
        self.cross = Attention(dim, heads) if cross else None
        self.ffn = nn.ModuleList([nn.Linear(dim, ffn), nn.Linear(ffn, dim)])
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        if cross:
            self.norm3 = nn.LayerNorm(dim)

    def forward(self, x, mask, encoded=None):
        x = self.norm1(x + self.attn(x, x, mask, self.cross is not None))
        if self.cross is not None:
            x = self.norm2(x + self.cross(x, encoded[0], encoded[1], False))
        norm = self.norm2 if self.cross is None else self.norm3
        return norm(x + self.ffn[1](F.relu(self.ffn[0](x))))


class Model(nn.Module):
    def __init__(self, case):
        super().__init__()
        dim, sizes = case["dim"], (case["dim"], case["heads"], case["ffn"])
        self.embed = nn.Embedding(case["vocab"], dim)
        self.encoder = nn.ModuleList(Layer(*sizes, False) for _ in range(case["layers"]))
        self.decoder = nn.ModuleList(Layer(*sizes, True) for _ in range(case["layers"]))
        self.scale = math.sqrt(dim)
        self.register_buffer("positions", sinusoids(1024, dim), persistent=False)

    def rows(self, tokens):
        real = tokens != PAD
        return self.embed(tokens) * self.scale + self.positions[:tokens.size(1)] * real.unsqueeze(-1)

    def forward(self, source, previous):
        mask = (source != PAD)[:, None, None, :]
        x = self.rows(source)
        for layer in self.encoder:
            x = layer(x, mask)
        y = self.rows(previous)
        for layer in self.decoder:
            y = layer(y, None, (x, mask))
        return F.linear(y, self.embed.weight)


class Torch:
    def __init__(self, case, tensors, fused):
        self.batch = [tensors.pop(f"bench.{name}") for name in ("source", "previous", "target")]
        self.model = Model(case)
        self.model.load_state_dict({name.replace("backbone.encoder.layers", "encoder").replace("backbone.decoder.layers", "decoder"): tensor
                                    for name, tensor in tensors.items()})
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=1e-4, betas=(0.9, 0.98), fused=fused or None)
        words = case["vocab"]
        self.smoothing = 0.1 * words / (words - 1)  # fairseq's 0.1 in PyTorch's words

    def step(self):
        source, previous, target = self.batch
        self.optimiser.zero_grad()
        loss = F.cross_entropy(self.model(source, previous).flatten(0, 1), target.flatten(), ignore_index=-100, label_smoothing=self.smoothing)
        loss.backward()
        return loss

    def check(self):
        loss = self.step().item()
        return {"loss": loss, "gradient_norm": torch.nn.utils.get_total_norm([p.grad for p in self.model.parameters()]).item()}

    def train(self, steps):
        begin = time.perf_counter()
        for _ in range(steps):
            self.step()
            self.optimiser.step()
        return time.perf_counter() - begin


class CTranslate2:
    def __init__(self, case, tensors, _):
        import ctranslate2
        from ctranslate2.specs import transformer_spec
        self.case, self.length = case, case["length"]
        self.sentences = [[str(token) for token in row if token != PAD] for row in tensors["bench.source"].tolist()]
        theirs = {name: tensor.numpy() for name, tensor in tensors.items()}
        spec = transformer_spec.TransformerSpec.from_config((case["layers"], case["layers"]), case["heads"], pre_norm=case["pre_norm"],
                                                            activation=ctranslate2.specs.Activation.RELU)

        def linear(target, *names):
            target.weight = numpy.concatenate([theirs[name + ".weight"] for name in names])
            target.bias = numpy.concatenate([theirs[name + ".bias"] for name in names])

        def norm(target, name):
            target.gamma, target.beta = theirs[name + ".weight"], theirs[name + ".bias"]

        for side, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)):
            tables = stack.embeddings if isinstance(stack.embeddings, list) else [stack.embeddings]
            tables[0].weight = theirs["embed.weight"]
            stack.scale_embeddings = True
            stack.position_encodings.encodings = sinusoids(1024, case["dim"]).numpy()
            if case["pre_norm"]:
                norm(stack.layer_norm, f"backbone.{side}.final_norm")
            for i, layer in enumerate(stack.layer):
                name = f"backbone.{side}.layers.{i}."
                norm(layer.self_attention.layer_norm, name + "norm1")
                linear(layer.self_attention.linear[0], *(name + "attn." + part for part in "qkv"))
                linear(layer.self_attention.linear[1], name + "attn.o")
                if side == "decoder":
                    norm(layer.attention.layer_norm, name + "norm2")
                    linear(layer.attention.linear[0], name + "cross.q")
                    linear(layer.attention.linear[1], name + "cross.k", name + "cross.v")
                    linear(layer.attention.linear[2], name + "cross.o")
                norm(layer.ffn.layer_norm, name + ("norm3" if side == "decoder" else "norm2"))
                linear(layer.ffn.linear_0, name + "ffn.0")
                linear(layer.ffn.linear_1, name + "ffn.1")
        spec.decoder.projection.weight = theirs["embed.weight"]
        words = [str(i) for i in range(case["vocab"])]
        spec.register_source_vocabulary(words)
        spec.register_target_vocabulary(words)
        spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = "0", str(EOS), "3"
        spec.config.decoder_start_token = str(EOS)
        spec.config.add_source_bos = spec.config.add_source_eos = False
        spec.validate()
        spec.optimize()
        self.folder = tempfile.TemporaryDirectory()
        spec.save(self.folder.name)
        self.make = lambda kind: ctranslate2.Translator(self.folder.name, device="cpu", compute_type=kind, inter_threads=1,
                                                        intra_threads=case["threads"])
        self.translators = {}

    def run(self, kind, batch, beam, count):
        if kind not in self.translators:
            self.translators = {kind: self.make(kind)}
        return self.translators[kind].translate_batch(self.sentences[:count], beam_size=beam, max_batch_size=batch, length_penalty=1,
                                                      min_decoding_length=self.case["least"], max_decoding_length=self.length)

    def check(self):
        return {"tokens": [[int(token) for token in result.hypotheses[0]] for result in self.run("float32", 4, 1, 4)]}

    def hypotheses(self, kind, batch, beam):
        return {"tokens": [[int(token) for token in result.hypotheses[0]] for result in self.run(kind, batch, beam, None)]}

    def translate(self, kind, batch, beam, count):
        self.run(kind, batch, beam, batch)
        begin = time.perf_counter()
        self.run(kind, batch, beam, count)
        return time.perf_counter() - begin


def main():
    case = json.loads(sys.argv[1])
    torch.set_num_threads(case["threads"])
    peer = {"torch": Torch, "ctranslate2": CTranslate2}[sys.argv[3]](case, load_file(sys.argv[2]), "--fused" in sys.argv)
    print("ready", flush=True)
    for line in sys.stdin:
        name, *words = line.split()
        print(json.dumps(getattr(peer, name)(*(int(word) if word.isdigit() else word for word in words))), flush=True)
    os._exit(0)


main()
