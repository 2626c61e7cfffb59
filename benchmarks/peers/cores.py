"""The peer of bench_cores: attention cores in eager PyTorch, each in its stock form and in its best one; reads one request a line, answers with one line.

  cores.py THREADS
  load FILE             inputs of one length: safetensors with q, k, v, weight (of the output's gradient), e, f, rotations, blocks -> ok
  forms CORE            -> the forms of that core
  norms CORE FORM       norms of the output and of the gradients of q, k and v -> JSON
  seconds CORE FORM N   -> seconds of the fastest of N calls, forward and backward

Sizes that are no tensor's: windows of 128 rows, blocks and chunks of 64.
"""
import json
import math
import sys
import time

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

WINDOW, BLOCK = 128, 64


def normalised(sum_, a):
    return sum_ / (a + 1e-6).unsqueeze(-1)


def linear_matrix(q, k, v, **_):
    scores = (F.elu(q) + 1) @ (F.elu(k) + 1).transpose(-1, -2)
    scores = scores.tril()
    return normalised(scores @ v, scores.sum(-1))


def linear_chunks(q, k, v, **_):
    q, k, v = (x.unflatten(2, (-1, BLOCK)) for x in (F.elu(q) + 1, F.elu(k) + 1, v))
    scores = (q @ k.transpose(-1, -2)).tril()
    s = F.pad((k.transpose(-1, -2) @ v).cumsum(2)[:, :, :-1], (0, 0, 0, 0, 1, 0))
    z = F.pad(k.sum(-2).cumsum(2)[:, :, :-1], (0, 0, 1, 0)).unsqueeze(-1)
    return normalised(scores @ v + q @ s, scores.sum(-1) + (q @ z).squeeze(-1)).flatten(2, 3)


def window_mask(q, k, v, **_):
    place = torch.arange(q.size(2))
    distance = place[:, None] - place
    return F.scaled_dot_product_attention(q, k, v, (distance >= 0) & (distance < WINDOW))


def window_chunks(q, k, v, **_):
    """Chunks as long as the window, over themselves and the one before."""
    q, k, v = (x.unflatten(2, (-1, WINDOW)) for x in (q, k, v))
    before = [F.pad(x, (0, 0, 0, 0, 1, 0))[:, :, :-1] for x in (k, v)]
    place = torch.arange(WINDOW)
    distance = place[:, None] - torch.cat([place - WINDOW, place])
    mask = ((distance >= 0) & (distance < WINDOW)).expand(q.size(2), -1, -1).clone()
    mask[0, :, :WINDOW] = False
    return F.scaled_dot_product_attention(q, torch.cat([before[0], k], -2), torch.cat([before[1], v], -2), mask).flatten(2, 3)


def bigbird_mask(q, k, v, blocks, **_):
    return F.scaled_dot_product_attention(q, k, v, blocks.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1))


def bigbird_blocks(q, k, v, blocks, **_):
    """The first and the last block over all; the others over copies of the blocks that they see, made up to the same number."""
    count = blocks.size(0)
    qs, ks, vs = (x.unflatten(2, (-1, BLOCK)) for x in (q, k, v))
    inner = blocks[1:-1]
    most = int(inner.sum(1).max())
    index = torch.argsort(inner.to(torch.int8), dim=1, descending=True, stable=True)[:, :most]
    seen = torch.gather(inner, 1, index).repeat_interleave(BLOCK, 1)[:, None, :]
    pick = [x.index_select(2, index.flatten()).unflatten(2, (count - 2, most)).flatten(3, 4) for x in (ks, vs)]
    middle = F.scaled_dot_product_attention(qs[:, :, 1:-1], *pick, seen)
    ends = F.scaled_dot_product_attention(torch.cat([qs[:, :, 0], qs[:, :, -1]], 2), k, v)
    return torch.cat([ends[:, :, :BLOCK], middle.flatten(2, 3), ends[:, :, BLOCK:]], 2)


def lsh_chunks(q, k, v, rotations, **_):
    """Causal, within buckets; queries are keys."""
    batch, heads, time_, width = q.shape
    rounds, buckets = rotations.size(0), 2 * rotations.size(3)
    with torch.no_grad():
        turned = q.unsqueeze(2) @ rotations.transpose(0, 1)
        bucket = torch.cat([turned, -turned], -1).argmax(-1)
        place = torch.arange(time_)
        order = (bucket * time_ + place).argsort(-1)
        undo = order.argsort(-1)
        bucket = bucket.gather(-1, order)

    def cut(x):
        return x.unflatten(3, (-1, BLOCK))

    def pick(x):
        return cut(x.unsqueeze(2).expand(-1, -1, rounds, -1, -1).gather(3, order.unsqueeze(-1).expand(-1, -1, -1, -1, width)))

    def look_back(x):
        return torch.cat([x, x.roll(1, 3)], 4)

    sorted_q, sorted_v, place_q, bucket_q = pick(q), pick(v), cut(order), cut(bucket)
    keys = look_back(F.normalize(sorted_q, dim=-1))
    scores = sorted_q @ keys.transpose(-1, -2) / math.sqrt(width)
    place_k, bucket_k = look_back(place_q), look_back(bucket_q)
    hidden = (bucket_q.unsqueeze(-1) != bucket_k.unsqueeze(-2)) | (place_k.unsqueeze(-2) > place_q.unsqueeze(-1))
    scores = scores.masked_fill(hidden, -math.inf).masked_fill(place_q.unsqueeze(-1) == place_k.unsqueeze(-2), -1e5)
    total = scores.logsumexp(-1, keepdim=True)
    o = ((scores - total).exp() @ look_back(sorted_v)).flatten(3, 4)
    o = o.gather(3, undo.unsqueeze(-1).expand(-1, -1, -1, -1, width))
    total = total.flatten(3).gather(3, undo).unsqueeze(-1)
    return (o * total.softmax(2)).sum(2)


def linformer(q, k, v, e, f, **_):
    return F.scaled_dot_product_attention(q, e @ k, f @ v)


CORES = {"linear": {"stock": linear_matrix, "best": linear_chunks}, "sliding_window": {"stock": window_mask, "best": window_chunks},
         "bigbird": {"stock": bigbird_mask, "best": bigbird_blocks}, "lsh": {"best": lsh_chunks}, "linformer": {"best": linformer}}


class Peer:
    def load(self, path):
        self.tensors = load_file(path)
        for name in "qkv":
            self.tensors[name].requires_grad_()
        return "ok"

    def forms(self, core):
        return " ".join(CORES[core])

    def run(self, core, form):
        output = CORES[core][form](**self.tensors)
        leaves = [self.tensors[name] for name in "qkv"]
        return output, torch.autograd.grad(output, leaves, self.tensors["weight"], allow_unused=True)

    def norms(self, core, form):
        output, gradients = self.run(core, form)
        return json.dumps([t.double().norm().item() if t is not None else 0.0 for t in (output, *gradients)])

    def seconds(self, core, form, count):
        seconds = []
        for _ in range(int(count)):
            begin = time.perf_counter()
            self.run(core, form)
            seconds.append(time.perf_counter() - begin)
        return min(seconds)


def main():
    torch.set_num_threads(int(sys.argv[1]))
    peer = Peer()
    print("ready", flush=True)
    for line in sys.stdin:
        name, *words = line.split()
        print(getattr(peer, name)(*words), flush=True)


main()
