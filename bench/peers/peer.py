"""A long-lived peer of `mnemo-bench`: reads one request per line, answers with one line.

  peer.py CASE_JSON TENSORS [--fused] [--compile] [--device DEVICE]
                 TENSORS: safetensors with Mnemo's parameters and the tokens; --compile: forward passes by torch.compile; then the line "ready"
  check          -> JSON: loss and gradient norm of the first training step, the most likely next tokens of a text fed token by token,
                    the held-out loss
  train N [bf16] -> seconds for N training steps, in bf16 by autocast
  generate P N   -> seconds for N tokens, starting at position P
  prompt P N     -> seconds from a prompt of N tokens to the next one; P: float32 or bf16
  after N        -> the most likely token after that prompt, float32
  evaluate N     -> seconds for the held-out text in segments of N, with the cache
"""
import copy
import json
import sys
import time

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from models import Decoder, Generator


class Peer:
    def __init__(self, case, tensors, fused, compiled, device):
        self.case, self.device = case, device
        torch.set_default_device(device)
        tensors = {name: tensor.to(device) for name, tensor in tensors.items()}
        self.model = Decoder(case)
        if compiled:
            self.model.compile(dynamic=False)  # few shapes, and soon compiled
        self.tokens, self.text, self.fed = (tensors.pop(f"bench.{name}") for name in ("tokens", "text", "fed"))
        self.model.load(tensors)
        decayed = [p for name, p in self.model.named_parameters() if p.dim() == 2 and name not in ("memory", "u", "v") and ".control." not in name]
        others = [p for p in self.model.parameters() if not any(p is d for d in decayed)]
        self.optimiser = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}], lr=1e-3,
                                           fused=fused or None)
        self.generators = {}
        self.rounded = None  # the model in bf16

    def cross_entropy(self, hidden, targets):
        return F.cross_entropy(self.model.logits(hidden).flatten(0, 1), targets.flatten())

    def loss(self):
        segment, segments = self.case["segment"], self.case["segments"]
        state, loss = self.model.initial(self.case["batch"]), 0
        for s in range(segments):
            piece = self.tokens[:, s * segment:(s + 1) * segment + 1]
            hidden, state = self.model(piece[:, :-1], state)
            loss = loss + self.cross_entropy(hidden, piece[:, 1:]) / segments
        return loss

    def backward(self):
        self.optimiser.zero_grad()
        loss = self.loss()
        loss.backward()
        return loss

    @torch.inference_mode()
    def held_out(self, segment):
        state, losses = self.model.initial(self.text.size(0)), []
        for begin in range(0, self.text.size(1) - 1, segment):
            piece = self.text[:, begin:begin + segment + 1]
            hidden, state = self.model(piece[:, :-1], state)
            losses.append(self.cross_entropy(hidden, piece[:, 1:]).item())
        return sum(losses) / len(losses)

    @torch.inference_mode()
    def likeliest(self):
        generator = Generator(self.model)
        return [generator.step(token).item() for token in self.fed.view(-1, 1, 1)]

    def check(self):
        loss = self.backward().item()
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.model.parameters()]).item()
        segment = self.case["evaluation_segment"]
        return json.dumps({"loss": loss, "gradient_norm": norm, "tokens": self.likeliest(),
                           "held_out": self.held_out(segment) if segment else 0.0})

    def train(self, steps, precision="float32"):
        begin = time.perf_counter()
        for _ in range(steps):
            with torch.autocast(torch.device(self.device).type, torch.bfloat16, enabled=precision == "bf16"):
                self.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimiser.step()
        if self.device != "cpu":
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    @torch.inference_mode()
    def generate(self, position, count):
        if position not in self.generators:
            generator = Generator(self.model)
            generator.read(torch.zeros(1, position - position % self.model.segment, dtype=torch.long))
            self.generators[position] = generator, torch.zeros(1, 1, dtype=torch.long)
        generator, token = self.generators[position]
        while generator.count < position:
            token = generator.step(token)
        begin = time.perf_counter()
        for _ in range(count):
            token = generator.step(token)
            token.item()
        elapsed = time.perf_counter() - begin
        self.generators[position] = generator, token
        return elapsed

    @torch.inference_mode()
    def read(self, model, count):
        """The most likely token after a prompt that is read segment by segment."""
        tokens = torch.tensor([[i * 7919 % self.case["vocab"] for i in range(count)]])
        state = self.start(model)
        for begin in range(0, count, model.segment):
            hidden, state = model(tokens[:, begin:begin + model.segment], state)
        return model.logits(hidden[:, -1:]).argmax(-1).item()

    @staticmethod
    def start(model):
        dtype = model.embed.weight.dtype
        to = lambda part: part.to(dtype) if torch.is_tensor(part) else tuple(map(to, part))
        state = model.initial(1)
        return to(state) if torch.is_tensor(state) else [to(part) for part in state]

    def prompt(self, precision, count):
        if precision == "bf16" and self.rounded is None:
            self.rounded = copy.deepcopy(self.model).bfloat16()
            self.rounded.tables = {}
        model = self.rounded if precision == "bf16" else self.model
        begin = time.perf_counter()
        self.read(model, count)
        return time.perf_counter() - begin

    def after(self, count):
        return self.read(self.model, count)

    def evaluate(self, segment):
        begin = time.perf_counter()
        self.held_out(segment)
        return time.perf_counter() - begin


def main():
    case = json.loads(sys.argv[1])
    torch.set_num_threads(case["threads"])
    device = sys.argv[sys.argv.index("--device") + 1] if "--device" in sys.argv else "cpu"
    peer = Peer(case, load_file(sys.argv[2]), "--fused" in sys.argv, "--compile" in sys.argv, device)
    print("ready", flush=True)
    for line in sys.stdin:
        name, *words = line.split()
        print(getattr(peer, name)(*(int(word) if word.isdigit() else word for word in words)), flush=True)


main()
