#!/usr/bin/env python3
"""Writes tests/data/torchvision: what torchvision's detectors and residual networks at their full size compute, in float64.

Weights and pixels follow a formula of their names, which the test computes too, so that the files hold names and shapes alone, and
the results: boxes in the padded batch, scores, labels, and masks within each box; logits.

  PYTHONPATH=FOLDER_OF_TORCH_AND_TORCHVISION tests/python/torchvision_detectors.py [ARCHITECTURE...]
"""
import json
import math
import pathlib
import sys

import numpy
import torch
import torchvision
from safetensors.torch import save_file
from torchvision.models.detection.image_list import ImageList

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "data" / "torchvision"
SIZES, PADDED = [(128, 160), (101, 150)], (128, 160)
ARCHITECTURES = {
    "retinanet_resnet50_fpn": {"num_classes": 5, "detections_per_img": 12, "topk_candidates": 200},
    "fasterrcnn_resnet50_fpn": {"num_classes": 6, "box_detections_per_img": 12, "rpn_post_nms_top_n_test": 60},
    "maskrcnn_resnet50_fpn": {"num_classes": 4, "box_detections_per_img": 6, "rpn_post_nms_top_n_test": 60},
}


def uniform(name, shape):
    """Numbers of [0, 1) from a hash of name and place."""
    seed = 2166136261
    for byte in name.encode():
        seed = (seed ^ byte) * 16777619 % 2**32
    h = numpy.arange(math.prod(shape), dtype=numpy.uint32) * numpy.uint32(0x9E3779B1) + numpy.uint32(seed)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h = (h ^ (h >> numpy.uint32(shift))) * numpy.uint32(factor)
    h ^= h >> numpy.uint32(16)
    return torch.from_numpy(h.astype(numpy.float64) / 2**32).view(shape)


def value(name, shape):
    u = uniform(name, shape)
    if name.endswith("running_var"):
        return 0.5 + u
    if len(shape) == 1:
        norm = ".bn" in name or "downsample.1" in name
        if norm and name.endswith(".weight"):
            return (0.2 if "bn3" in name else 0.8) + 0.4 * u
        return 0.2 * u - 0.1
    fan_in = math.prod(shape[1:])
    # Gains that keep the outputs of the heads near 1.
    gain = 12.0 if any(part in name for part in ("cls_logits", "cls_score", "mask_fcn_logits")) else 0.25 if "bbox" in name else \
        0.24 if "inner_blocks" in name or "layer_blocks" in name else 6.0
    return (2 * u - 1) * math.sqrt(gain / fan_in)


def classes(architecture):
    model = getattr(torchvision.models, architecture)(weights=None)
    state = model.state_dict()
    model.load_state_dict({name: value(name, list(t.shape)) if t.is_floating_point() else t for name, t in state.items()})
    pixels = 3 * uniform("pixels", (2, 3, 64, 96)) - 1.5
    with torch.inference_mode():
        logits = model.eval().double()(pixels)
    write(architecture, {}, state, {"logits": logits})


def write(architecture, arguments, state, results):
    config = {"architecture": architecture, "model_args": arguments, "sizes": SIZES, "padded": PADDED,
              "torchvision": torchvision.__version__, "torch": torch.__version__,
              "tensors": {name: list(tensor.shape) for name, tensor in state.items()}}
    (FOLDER / f"{architecture}.json").write_text(json.dumps(config, separators=(",", ":")) + "\n")
    save_file(results, FOLDER / f"{architecture}.safetensors")


def detections(architecture):
    arguments = ARCHITECTURES[architecture]
    model = getattr(torchvision.models.detection, architecture)(weights=None, weights_backbone=None, **arguments)
    # Without pretrained weights the norms are ordinary; in evaluation they compute what frozen ones compute.
    state = {name: tensor for name, tensor in model.state_dict().items() if not name.endswith("num_batches_tracked")}
    model.load_state_dict({name: value(name, list(tensor.shape)) for name, tensor in state.items()}, strict=False)
    model = model.eval().double()
    pixels = 3 * uniform("pixels", (len(SIZES), 3, *PADDED)) - 1.5
    for image, (height, width) in zip(pixels, SIZES):
        image[:, height:] = 0
        image[:, :, width:] = 0
    images = ImageList(pixels, SIZES)
    with torch.inference_mode():
        features = model.backbone(pixels)
        if architecture.startswith("retinanet"):
            maps = list(features.values())
            outputs, anchors = model.head(maps), model.anchor_generator(images, maps)
            counts = [m.size(2) * m.size(3) * 9 for m in maps]
            split = {key: list(tensor.split(counts, dim=1)) for key, tensor in outputs.items()}
            found = model.postprocess_detections(split, [list(a.split(counts)) for a in anchors], SIZES)
        else:
            proposals, _ = model.rpn(images, features)
            found, _ = model.roi_heads(features, proposals, SIZES)
    tensors = {}
    for b, image in enumerate(found):
        for key, tensor in image.items():
            tensors[f"{key}.{b}"] = (tensor.float() if key == "masks" else tensor).contiguous()
        print(architecture, b, len(image["boxes"]), "scores", [round(s, 4) for s in image["scores"].tolist()], "labels",
              image["labels"].tolist(), "sides", [[round(x, 1) for x in box] for box in image["boxes"].tolist()][:4])
    write(architecture, arguments, state, tensors)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or [*ARCHITECTURES, "resnet18", "resnet50"]:
        detections(name) if name in ARCHITECTURES else classes(name)
