"""The AP of masks that a detector can hardly pass at a size of its images: the annotations themselves, resized as the training
resizes them, pooled into the cells of a mask head, laid back over their boxes and scored by pycocotools.

usage: mask_ceiling.py INSTANCES.json [SHORTER LONGEST]
"""

import contextlib
import io
import sys

import numpy
import torch
from pycocotools import mask as runs
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from torchvision.ops import roi_align

CELLS = 28


def nearest(size, resized):
    return (2 * torch.arange(resized) + 1) * size // (2 * resized)


def learned(mask, box, shorter, longest):
    """What a perfect mask head would say of a mask [h,w] with a box (x, y, width, height)."""
    h, w = mask.shape
    scale = min(shorter / min(h, w), longest / max(h, w))
    rows, columns = round(h * scale), round(w * scale)
    small = mask[nearest(h, rows)][:, nearest(w, columns)].float()
    x, y, width, height = box
    corners = torch.tensor([[x, y, x + width, y + height]]) * torch.tensor([columns / w, rows / h] * 2)
    cells = roi_align(small[None, None], [corners], CELLS, 1.0, -1, True)
    cells = (cells >= 0.5).float()
    down = (torch.arange(h) + 0.5 - y) / max(height, 1e-6) * 2 - 1
    across = (torch.arange(w) + 0.5 - x) / max(width, 1e-6) * 2 - 1
    grid = torch.stack(torch.meshgrid(down, across, indexing="ij")[::-1], -1)
    return torch.nn.functional.grid_sample(cells, grid[None], align_corners=False)[0, 0] >= 0.5


def main(path, shorter=800, longest=1333):
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO(path)
        found = []
        for one in truth.loadAnns(truth.getAnnIds(iscrowd=False)):
            mask = learned(torch.from_numpy(truth.annToMask(one)), one["bbox"], int(shorter), int(longest))
            found.append({"image_id": one["image_id"], "category_id": one["category_id"], "score": 1.0,
                          "segmentation": runs.encode(numpy.asfortranarray(mask.byte().numpy()))})
        scores = COCOeval(truth, truth.loadRes(found), "segm")
        scores.evaluate()
        scores.accumulate()
        scores.summarize()
    print("AP {:.3f}, AP50 {:.3f}, AP75 {:.3f}; small {:.3f}, medium {:.3f}, large {:.3f}".format(*scores.stats[:6]))


main(*sys.argv[1:])
