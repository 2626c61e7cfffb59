"""The peer of `mnemo-bench images`: a model of timm, or of pvt.py, in eager PyTorch; reads one request per line, answers with one line.

  images.py FOLDER THREADS [--fused]   FOLDER: a model folder in timm's format, with pixels.safetensors (pixels, labels); then the line "ready"
  check          -> JSON: logits of the pixels, loss of one training step
  forward B N    -> seconds for N forward passes of the first B images
  train B N      -> seconds for N training steps with them (AdamW; --fused: its fused form)
"""
import json
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file


def model_of(architecture, arguments):
    if architecture.startswith("pvt_") and not architecture.startswith("pvt_v2"):
        from pvt import Pvt
        return Pvt(**arguments)
    import timm
    return timm.create_model(architecture, pretrained=False, **arguments)


class Peer:
    def __init__(self, folder, fused):
        config = json.loads((folder / "config.json").read_text())
        arguments = {key: tuple(value) if isinstance(value, list) else value for key, value in config.get("model_args", {}).items()}
        self.model = model_of(config["architecture"], arguments)
        self.model.load_state_dict(load_file(folder / "model.safetensors"))
        given = load_file(folder / "pixels.safetensors")
        self.pixels, self.labels = given["pixels"], given["labels"]
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=fused or None)

    @torch.inference_mode()
    def logits(self, batch):
        self.model.eval()
        return self.model(self.pixels[:batch])

    def step(self, batch):
        self.model.train()
        self.optimiser.zero_grad()
        loss = F.cross_entropy(self.model(self.pixels[:batch]), self.labels[:batch])
        loss.backward()
        self.optimiser.step()
        return loss.item()

    def check(self):
        with torch.no_grad():
            self.model.eval()
            logits = self.model(self.pixels)
            return json.dumps({"logits": logits.flatten().tolist(), "loss": F.cross_entropy(logits, self.labels).item()})


def timed(count, call):
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return time.perf_counter() - begin


def main():
    torch.set_num_threads(int(sys.argv[2]))
    peer = Peer(Path(sys.argv[1]), "--fused" in sys.argv)
    print("ready", flush=True)
    for line in sys.stdin:
        request, *numbers = line.split()
        if request == "check":
            answer = peer.check()
        else:
            batch, count = map(int, numbers)
            call = peer.logits if request == "forward" else peer.step
            answer = timed(count, lambda: call(batch))
        print(answer, flush=True)


main()
