"""The peer of `mnemo-bench kernels`: the same operations in eager PyTorch; reads one request per line, answers with one line.

  kernel.py THREADS [DEVICE]
  load FILE             reads the inputs of one operation: safetensors with q, k, v, weight (the gradient of the output) and s, or r, u and
                        bias -> ok
  norms OPERATION       norms of the output and of each input's gradient -> JSON
  forward OPERATION N   -> seconds for the fastest of N calls
  backward OPERATION N  -> the same with gradients of all inputs
  warm OPERATION TYPE T N  runs it once with small random inputs, of T tokens and N slots: Triton keeps what it compiles for them -> ok

Operations: sdpa (causal), cached and relative (causal, keys on the left are the cache), abc and fla, the kernels of
flash-linear-attention (starting with an empty memory). One that cannot run is answered with "failed: why".
"""
import functools
import json
import math
import sys
import time

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch.nn.attention.bias import causal_lower_right

from models import abc_scan, relative_attention


def sdpa(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


@functools.cache
def causal(queries, keys):
    return torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)


def cached(q, k, v):
    """On a GPU with a mask that its fast kernels know, and do not read."""
    mask = (causal_lower_right if q.is_cuda else causal)(q.size(2), k.size(2))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def relative(q, k, v, r, u, bias):
    mask = causal(q.size(2), k.size(2))
    return relative_attention(q, k, v, r.permute(1, 2, 0), u, bias, mask)


def abc(q, k, v, s):
    shape = *s.shape[:2], s.size(-1)
    empty = torch.zeros(*shape, q.size(-1), device=q.device)
    return abc_scan(q, k, v, s, (empty, empty, torch.full(shape, -math.inf, device=q.device)))[0]


def fla(q, k, v, s):
    from fla.ops.abc import chunk_abc
    return chunk_abc(*(x.transpose(1, 2) for x in (q, k, v, s)))[0].transpose(1, 2)


OPERATIONS = {"sdpa": (sdpa, "qkv"), "cached": (cached, "qkv"), "relative": (relative, ("q", "k", "v", "r", "u", "bias")),
              "abc": (abc, "qkvs"), "fla": (fla, "qkvs")}


class Peer:
    def __init__(self, device):
        self.device = device
        torch.set_default_device(device)

    def fastest(self, count, call):
        seconds = []
        for _ in range(count):
            begin = time.perf_counter()
            call()
            if self.device != "cpu":
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - begin)
        return min(seconds)

    def load(self, path):
        self.tensors = None
        self.tensors = {name: tensor.to(self.device) for name, tensor in load_file(path).items()}
        return "ok"

    def run(self, operation):
        function, names = OPERATIONS[operation]
        return function(*(self.tensors[name] for name in names))

    def gradients(self, operation):
        leaves = [self.tensors[name] for name in OPERATIONS[operation][1]]
        for leaf in leaves:
            leaf.requires_grad_()
        output = self.run(operation)
        return output, torch.autograd.grad(output, leaves, self.tensors["weight"])

    def norms(self, operation):
        output, gradients = self.gradients(operation)
        return json.dumps([t.double().norm().item() for t in (output, *gradients)])

    def warm(self, operation, dtype, time, slots):
        draw = lambda width: torch.randn(2, 8, int(time), width, dtype=torch.bfloat16 if dtype == "bf16" else torch.float32)
        self.tensors = {"q": draw(64), "k": draw(64), "v": draw(64), "s": draw(int(slots)), "weight": draw(64)}
        self.gradients(operation)
        self.forward(operation, 1)
        return "ok"

    def forward(self, operation, count):
        with torch.no_grad():
            return self.fastest(int(count), lambda: self.run(operation))

    def backward(self, operation, count):
        return self.fastest(int(count), lambda: self.gradients(operation))


def main():
    torch.set_num_threads(int(sys.argv[1]))
    peer = Peer(sys.argv[2] if len(sys.argv) > 2 else "cpu")
    print("ready", flush=True)
    for line in sys.stdin:
        name, *words = line.split()
        try:
            answer = getattr(peer, name)(*words)
        except Exception as error:
            answer = "failed: " + " ".join(repr(error).split())[:300]
        print(answer, flush=True)


main()
