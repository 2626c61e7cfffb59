"""A rank of PyTorch's DistributedDataParallel, for scripts/bench-distributed: the decoder of models.py on Gloo.

  python3 -m torch.distributed.run --nproc-per-node 2 ddp.py CASE_JSON WARM STEPS     rank 0 prints the seconds of STEPS steps
"""
import json
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

from models import Decoder


class Loss(torch.nn.Module):
    """Everything of a step inside of one forward(), as DistributedDataParallel wants it."""

    def __init__(self, case):
        super().__init__()
        self.model = Decoder(case)

    def forward(self, tokens):
        hidden, _ = self.model(tokens[:, :-1], self.model.initial(tokens.size(0)))
        return F.cross_entropy(self.model.logits(hidden).flatten(0, 1), tokens[:, 1:].flatten())


def main():
    case, warm, steps = json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(case["threads"])
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(Loss(case))
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
    rows = case["batch"] // dist.get_world_size()
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(warm + steps):
        if step == warm:
            dist.barrier()
            began = time.perf_counter()
        tokens = torch.randint(case["vocab"], (rows, case["segment"] + 1), generator=generator)
        optimiser.zero_grad()
        loss = model(tokens)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    seconds = time.perf_counter() - began
    if dist.get_rank() == 0:
        print(f"seconds {seconds}", flush=True)
    dist.destroy_process_group()


main()
