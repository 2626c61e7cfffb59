"""The peer of `mnemo-bench detection`: torchvision's operators, RetinaNet on pvt.py with torchvision's parts in eager PyTorch, and
pycocotools; reads one request per line, answers with one line.

  detection.py FOLDER THREADS [--fused]   FOLDER has the files of one case; then the line "ready"
      operators   operators.safetensors
      detector    config.json (arguments of Pvt), model.safetensors (names of torchvision's RetinaNet), images.safetensors (pixels, boxes,
                  labels)
      coco        instances.json, results.json
  check          -> JSON: figures of the results
  forward N      -> seconds for N images, detections included
  train N        -> seconds for N training steps (AdamW; --fused: its fused form)
  roi_align N, roi_align_backward N, batched_nms N, nms N, match N   -> seconds for N calls
  score N        -> seconds for N evaluations by COCO
"""
import contextlib
import io
import json
import sys
import time
from pathlib import Path

import torch
import torch.nn as nn
from safetensors.torch import load_file
from torchvision.models.detection._utils import Matcher
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.retinanet import RetinaNet
from torchvision.ops import batched_nms, box_iou, nms, roi_align
from torchvision.ops.feature_pyramid_network import FeaturePyramidNetwork, LastLevelP6P7

from pvt import Pvt, as_map

COCO_NAMES = ("AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl")


class Body(Pvt):
    """The maps of stages 2 to 4."""

    def forward(self, x):
        _, *maps, (rows, grid) = self.run_stages(x)
        return {str(s): m for s, m in enumerate([*maps, as_map(rows[:, 1:], grid)])}


class Backbone(nn.Module):
    def __init__(self, body, widths):
        super().__init__()
        self.body, self.out_channels = body, 256
        self.fpn = FeaturePyramidNetwork(widths, 256, LastLevelP6P7(256, 256))

    def forward(self, x):
        return self.fpn(self.body(x))


class Operators:
    def __init__(self, folder, fused):
        self.given = load_file(folder / "operators.safetensors")
        self.features = self.given["features"].requires_grad_()
        self.matcher = Matcher(0.5, 0.4, allow_low_quality_matches=True)

    def pooled(self):
        return roi_align(self.features, self.given["rois"], 7, 0.25, 2, True)

    @torch.no_grad()
    def roi_align(self):
        return self.pooled()

    def roi_align_backward(self):
        self.features.grad = None
        self.pooled().backward(self.given["weight"])

    def batched_nms(self):
        return batched_nms(self.given["boxes"], self.given["scores"], self.given["labels"], 0.5)

    def nms(self):
        return nms(self.given["boxes"], self.given["scores"], 0.7)

    def match(self):
        return self.matcher(box_iou(self.given["objects"], self.given["anchors"]))

    def check(self):
        self.roi_align_backward()
        return {"pooled": self.roi_align().norm().item(), "gradient": self.features.grad.norm().item(),
                "kept_of_classes": self.batched_nms().sum().item(), "kept": self.nms().sum().item(), "matches": self.match().sum().item()}


class Detector:
    def __init__(self, folder, fused):
        config = json.loads((folder / "config.json").read_text())
        arguments = config["model_args"]
        body = Body(**arguments)
        del body.head
        sizes = tuple(tuple(int(4 * stride * 2 ** (k / 3)) for k in range(3)) for stride in (8, 16, 32, 64, 128))
        self.model = RetinaNet(Backbone(body, arguments["embed_dims"][1:]), config["num_classes"],
                               anchor_generator=AnchorGenerator(sizes, ((0.5, 1.0, 2.0),) * 5), detections_per_img=100)
        self.model.load_state_dict(load_file(folder / "model.safetensors"))
        given = load_file(folder / "images.safetensors")
        self.pixels, self.targets = given["pixels"], [{"boxes": given["boxes"], "labels": given["labels"]}]
        self.images = ImageList(self.pixels, [tuple(self.pixels.shape[2:])])
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=fused or None)

    def heads(self):
        maps = list(self.model.backbone(self.pixels).values())
        return maps, self.model.head(maps), self.model.anchor_generator(self.images, maps)

    @torch.inference_mode()
    def forward(self):
        self.model.eval()
        maps, outputs, anchors = self.heads()
        counts = [m.size(2) * m.size(3) * 9 for m in maps]
        split = {key: list(tensor.split(counts, dim=1)) for key, tensor in outputs.items()}
        return self.model.postprocess_detections(split, [list(a.split(counts)) for a in anchors], self.images.image_sizes)

    def losses(self):
        _, outputs, anchors = self.heads()
        return self.model.compute_loss(self.targets, outputs, anchors)

    def train(self):
        self.model.train()
        self.optimiser.zero_grad()
        sum(self.losses().values()).backward()
        self.optimiser.step()

    def check(self):
        with torch.no_grad():
            losses = self.losses()
        found = self.forward()[0]["scores"]
        return {"cls": losses["classification"].item(), "box": losses["bbox_regression"].item(), "found": len(found),
                "scores": found.sum().item()}


class Coco:
    def __init__(self, folder, fused):
        from pycocotools.coco import COCO
        with contextlib.redirect_stdout(io.StringIO()):
            self.truth = COCO(str(folder / "instances.json"))
            self.found = self.truth.loadRes(str(folder / "results.json"))

    def score(self):
        from pycocotools.cocoeval import COCOeval
        with contextlib.redirect_stdout(io.StringIO()):
            evaluation = COCOeval(self.truth, self.found, "bbox")
            evaluation.evaluate()
            evaluation.accumulate()
            evaluation.summarize()
        return evaluation.stats

    def check(self):
        return dict(zip(COCO_NAMES, self.score().tolist()))


def peer_of(folder, fused):
    kind = Operators if (folder / "operators.safetensors").exists() else Coco if (folder / "instances.json").exists() else Detector
    return kind(folder, fused)


def timed(count, call):
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return time.perf_counter() - begin


def main():
    torch.set_num_threads(int(sys.argv[2]))
    peer = peer_of(Path(sys.argv[1]), "--fused" in sys.argv)
    print("ready", flush=True)
    for line in sys.stdin:
        request, *numbers = line.split()
        print(json.dumps(peer.check()) if request == "check" else timed(int(numbers[0]), getattr(peer, request)), flush=True)


main()
