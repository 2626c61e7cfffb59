"""Writes torchvision's detectors as model folders, runs `mnemo detect` on a picture, and compares with torchvision's own
result: resizing, padding, detection, masks in the picture. Pictures are resized to bytes here and to floats there; this one
is halved to whole numbers, so that both see the same.

usage: torchvision_check.py MNEMO
Exit status 1 and a message if a number differs.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
import torchvision
from PIL import Image
from pycocotools import mask as runs
from safetensors.torch import save_file

from torchvision_detectors import ARCHITECTURES, uniform, value

HEIGHT, WIDTH = 406, 622
SIZES = {"min_size": HEIGHT // 2, "max_size": WIDTH}
SCORE, PIXELS = 1e-4, 0.05


def picture():
    coarse = uniform("picture", (1, 3, 9, 12)).float()
    image = torch.nn.functional.interpolate(coarse, (HEIGHT, WIDTH), mode="bicubic").clamp(0, 1)
    return Image.fromarray((image[0].permute(1, 2, 0) * 63).round().byte().numpy() * 4)


def check(mnemo, folder, image, architecture, arguments):
    arguments = {**arguments, **SIZES}
    model = getattr(torchvision.models.detection, architecture)(weights=None, weights_backbone=None, **arguments)
    state = {name: value(name, list(tensor.shape)).float() if tensor.is_floating_point() else tensor
             for name, tensor in model.state_dict().items()}
    model.load_state_dict(state)
    with torch.inference_mode():
        theirs = model.eval()([torch.from_numpy(numpy.array(image)).permute(2, 0, 1) / 255])[0]
    folder.mkdir()
    save_file(state, folder / "model.safetensors")
    names = ["__background__"] + [f"class {i}" for i in range(1, arguments["num_classes"])]
    config = {"architecture": architecture, "model_args": arguments, "label_names": names}
    (folder / "config.json").write_text(json.dumps(config))
    image.save(folder / "picture.png")
    out = subprocess.run([mnemo, "detect", folder, folder / "picture.png", "--json", "--threshold", "0.05"], check=True,
                         stdout=subprocess.PIPE, text=True).stdout
    ours = json.loads(out)[0]["objects"]
    assert len(ours) == len(theirs["boxes"]) > 3, f"{architecture}: {len(ours)} objects, torchvision {len(theirs['boxes'])}"
    left, same, masks = set(range(len(ours))), 0, 0.0
    for one in ours:
        def differs(k):
            return max(abs(theirs["scores"][k].item() - one["score"]) / SCORE,
                       (theirs["boxes"][k] - torch.tensor(one["box"])).abs().max().item() / PIXELS)
        near = [k for k in left if names[theirs["labels"][k]] == one["label"] and differs(k) < 1]
        if not near:
            continue
        i = min(near, key=differs)
        left.remove(i)
        same += 1
        if "mask" in one:
            own, other = runs.decode(one["mask"]) > 0, theirs["masks"][i, 0].numpy() >= 0.5
            masks = max(masks, (own != other).sum() / max(1, other.sum()))
    print(f"{architecture}: {same} of {len(ours)} objects are torchvision's to {SCORE} of score and {PIXELS} pixels; masks differ in "
          f"{100 * masks:.2f} % of their pixels")
    assert same == len(ours) and masks < 1e-3, f"{architecture}: torchvision finds something else"


def main(mnemo):
    with tempfile.TemporaryDirectory() as name:
        for architecture, arguments in ARCHITECTURES.items():
            check(mnemo, pathlib.Path(name) / architecture, picture(), architecture, arguments)


main(*sys.argv[1:])
