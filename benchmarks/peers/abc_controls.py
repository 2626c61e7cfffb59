"""A training step of one ABC by every control in eager PyTorch, the peer of bench_kernels --benchmark_filter=abc_control: the same
sizes (batch 4, 4 heads of 64, 32 slots), each in several forms of which the fastest counts. Seconds are the processor's, of one thread.

  OMP_NUM_THREADS=1 PYTHONPATH=.deps/peers python3 benchmarks/peers/abc_controls.py
"""
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

from models import abc_scan

B, H, D, SLOTS, SCALE = 4, 4, 256, 32, 0.125


def sums(q, k, v, phi, factor=None, closed=None, chunk=64):
    """Attention to running sums; all chunks' products are one, the sums before each chunk a running sum over chunks. chunk = T is the
    form with one triangle."""
    parts = q.size(2) // chunk
    cut = lambda t: t if t is None else t.unflatten(2, (parts, chunk))
    q, k, v, phi, factor, closed = (cut(t) for t in (q, k, v, phi, factor, closed))
    columns = phi.transpose(-1, -2)
    before = lambda x: F.pad((columns @ x).cumsum(2)[:, :, :-1], (0, 0, 0, 0, 1, 0))
    scores = ((q @ k.transpose(-1, -2)).tril() @ phi + q @ before(k).transpose(-1, -2)) * SCALE
    if factor is not None:
        scores = scores * factor
    if closed is not None:
        scores = scores.masked_fill(closed, float("-inf"))
    p = scores.softmax(-1)
    if factor is not None:
        p = p * factor
    return ((p @ columns).tril() @ v + p @ before(v)).flatten(2, 3)


def window_masked(q, k, v, width):
    """Windows with what lies before the sequence as zeros, which the literal formula has."""
    time_ = q.size(2)
    distance = torch.arange(time_)[:, None] + width - torch.arange(time_ + width)[None]
    mask = (distance >= 0) & (distance < width)
    return F.scaled_dot_product_attention(q, F.pad(k, (0, 0, width, 0)), F.pad(v, (0, 0, width, 0)), attn_mask=mask)


def window_blocks(q, k, v, width, block=64):
    time_ = q.size(2)
    views = lambda x: F.pad(x, (0, 0, width, 0)).unfold(2, width + block, block).transpose(-1, -2)
    distance = torch.arange(block)[:, None] + width - torch.arange(width + block)[None]
    mask = (distance >= 0) & (distance < width)
    return F.scaled_dot_product_attention(q.unflatten(2, (time_ // block, block)), views(k), views(v), attn_mask=mask).flatten(2, 3)


class Step(nn.Module):
    def __init__(self, control, time_):
        super().__init__()
        self.control, self.qkv, self.o = control, nn.Linear(D, 3 * D), nn.Linear(D, D)
        if control in ("mlp", "relu"):
            self.phi = nn.Linear(D, H * SLOTS, bias=False)
        if control == "linformer":
            self.table = nn.Parameter(torch.randn(SLOTS, time_) * 0.02)
        if control in ("random", "random_masked", "clustering"):  # clustering: the assignment is given, which ours has to find
            one_hot = F.one_hot(torch.randint(0, SLOTS, (B, time_)), SLOTS).float()
            self.register_buffer("one_hot", one_hot)

    def forward(self, x, form):
        split = lambda t: t.unflatten(-1, (H, -1)).transpose(1, 2)
        q, k, v = (split(t) for t in self.qkv(x).chunk(3, -1))
        time_ = x.size(1)
        if self.control == "mlp":
            empty = torch.zeros(B, H, SLOTS, D // H), torch.zeros(B, H, SLOTS, D // H), torch.full((B, H, SLOTS), float("-inf"))
            o = abc_scan(q, k, v, split(self.phi(x)), empty)[0]
        elif self.control == "relu":
            phi = split(self.phi(x)).relu()
            o = sums(q, k, v, phi, 1 / (phi.cumsum(2) + 1e-6), chunk=form)
        elif self.control == "window":
            o = window_masked(q, k, v, SLOTS) if form == time_ else window_blocks(q, k, v, SLOTS, form)
        elif self.control == "dilated":
            o = torch.stack([window_blocks(q[:, :, i::2], k[:, :, i::2], v[:, :, i::2], SLOTS, min(form, time_ // 2)) for i in (0, 1)], 3).flatten(2, 3)
        else:
            factor = closed = None
            if self.control == "linformer":
                phi = self.table.t()[None, None].expand(B, H, -1, -1)
            else:
                phi = self.one_hot[:, None].expand(-1, H, -1, -1)
                held = self.one_hot.cumsum(1)[:, None].expand(-1, H, -1, -1) if self.control != "random" else None
                if self.control == "clustering":
                    factor = 1 / held.clamp_min(1)
                if self.control == "random_masked":
                    closed = held == 0
            o = sums(q, k, v, phi, factor, closed, chunk=form)
        return self.o(o.transpose(1, 2).flatten(2))


def main():
    controls = sys.argv[1:] or ["mlp", "relu", "random", "random_masked", "linformer", "clustering", "window", "dilated"]
    for control in controls:
        for time_ in (512, 2048):
            step, best = Step(control, time_), (float("inf"), 0)
            x, weight = torch.randn(B, time_, D, requires_grad=True), torch.randn(B, time_, D)
            leaves = [x, *step.parameters()]
            for form in (64,) if control == "mlp" else (32, 64, 128, time_):
                for _ in range(6):
                    begin = time.process_time()
                    torch.autograd.grad(step(x, form), leaves, weight)
                    best = min(best, (time.process_time() - begin, form))
            print(f"{control:14} T {time_:5}  {best[0] * 1e3:8.1f} ms  (chunks of {best[1]})", flush=True)


torch.manual_seed(0)
main()
