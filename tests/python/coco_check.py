"""Trains a small Mask R-CNN on painted shapes, and compares the boxes and masks that `mnemo detect` writes, scored by
pycocotools, with `mnemo eval`.

usage: coco_check.py MNEMO
Exit status 1 and a message if a number differs.
"""

import contextlib
import io
import json
import pathlib
import random
import subprocess
import sys
import tempfile

from PIL import Image, ImageDraw
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

NAMES = ["ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large",
         "ar1", "ar10", "ar100", "ar_small", "ar_medium", "ar_large"]
RECIPE = """
[data]
type = "detection"
train = "{objects}"
valid = "{objects}"
shorter = [96]
[model.backbone]
type = "pvt_v2"
image_size = [64, 64]
dims = [8, 16, 16, 16]
depths = [1, 1, 1, 1]
num_heads = [1, 1, 2, 2]
mlp_ratios = [2, 2, 2, 2]
sr_ratios = [8, 4, 2, 1]
[model.head]
type = "mask_rcnn"
channels = 16
hidden = 32
proposals = 60
sampled_regions = 32
sampled_anchors = 32
score_thresh = 0.02
anchor_scale = 4.0
[train]
steps = 120
batch_size = 4
shuffle = true
threads = 1
optimiser = {{ type = "adamw", lr = 4e-3 }}
tensorboard = false
"""


def paint(folder):
    """Triangles and diamonds, some of them crowds whose masks are runs."""
    draw = random.Random(3)
    images, objects = [], []
    (folder / "painted").mkdir()
    for i in range(16):
        width, height = draw.choice([(96, 96), (128, 96), (120, 101)])
        image = Image.new("RGB", (width, height), (120, 120, 120))
        for _ in range(i % 4 + 1):
            w, h = draw.randint(14, 60), draw.randint(14, 60)
            x, y, kind = draw.randint(0, width - w), draw.randint(0, height - h), draw.randint(1, 2)
            points = [(x, y + h), (x + w / 2, y), (x + w, y + h)] if kind == 1 else \
                [(x + w / 2, y), (x + w, y + h / 2), (x + w / 2, y + h), (x, y + h / 2)]
            ImageDraw.Draw(image).polygon(points, fill=(250, 10, 10) if kind == 1 else (10, 10, 250))
            crowd = draw.random() < 0.1
            runs = [x * height, w * height, (width - x - w) * height]
            objects.append({"id": len(objects) + 1, "image_id": i + 1, "category_id": 5 * kind, "bbox": [x, y, w, h],
                            "area": w * h / 2, "iscrowd": int(crowd),
                            "segmentation": {"size": [height, width], "counts": runs} if crowd else
                            [[side for point in points for side in point]]})
        image.save(folder / f"painted/{i}.png")
        images.append({"id": i + 1, "file_name": f"{i}.png", "height": height, "width": width})
    categories = [{"id": 5, "name": "triangle"}, {"id": 10, "name": "diamond"}]
    path = folder / "instances_painted.json"
    path.write_text(json.dumps({"images": images, "annotations": objects, "categories": categories}))
    return path


def scored(objects, results, kind):
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO(str(objects))
        found = COCOeval(truth, truth.loadRes(str(results)), kind)
        found.evaluate()
        found.accumulate()
        found.summarize()
    return found.stats


def main(mnemo):
    def run(*arguments):
        return subprocess.run([mnemo, *map(str, arguments)], check=True, stdout=subprocess.PIPE, text=True).stdout

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        objects, recipe, model = paint(folder), folder / "recipe.toml", folder / "run/model"
        recipe.write_text(RECIPE.format(objects=objects))
        run("train", recipe, "--out", folder / "run", "--quiet")
        ours = json.loads(run("eval", model, "--data", objects, "--json"))
        files = {"bbox": folder / "boxes.json", "segm": folder / "masks.json"}
        run("detect", model, "--data", objects, "--results", files["bbox"], "--mask-results", files["segm"])
        for kind, prefix in (("bbox", ""), ("segm", "mask_")):
            theirs = scored(objects, files[kind], kind)
            for metric, value in zip(NAMES, theirs):
                own = ours.get(prefix + metric, -1)
                assert abs(own - value) < 1e-9, f"{prefix}{metric}: {own}, pycocotools {value}"
            assert 0.02 < theirs[0] < 1, f"{prefix}ap {theirs[0]} tells nothing"
            print(f"{kind}: AP {theirs[0]:.4f} and {len(NAMES) - 1} more equal pycocotools")


main(*sys.argv[1:])
