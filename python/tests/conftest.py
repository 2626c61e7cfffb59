"""Models of the tests, and the program `mnemo` (MNEMO_PROGRAM) that the package is compared with."""

import functools
import json
import os
import pathlib
import signal
import subprocess
import tempfile

import PIL.Image
import pytest
import torch

import mnemo

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden/data"
RUNS = ROOT / "tests/data/earlier_runs"
PROGRAM = os.environ.get("MNEMO_PROGRAM", str(ROOT / "build/release/mnemo"))


def command(*words, stdin=None):
    """What the program prints. It tells MKL to take its fastest path, which rounds otherwise; Python does not."""
    environment = os.environ | {"MNEMO_MKL_OVERRIDE": "0", "OMP_NUM_THREADS": str(torch.get_num_threads())}
    done = subprocess.run(
        [PROGRAM, *map(str, words)], input=stdin, capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(autouse=True)
def as_at_the_start():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it


@pytest.fixture(scope="session")
def model():
    """A model of text of an earlier run."""
    return mnemo.load(RUNS / "text")


DETECTOR = """
name = "squares"
[data]
type = "detection"
train = "instances_painted.json"
shorter = [64]
[model]
head = { type = "mask_rcnn", channels = 16, hidden = 32, proposals = 60, sampled_regions = 32, sampled_anchors = 32 }
[model.backbone]
type = "pvt_v2"
image_size = [64, 64]
dims = [8, 16, 16, 16]
depths = [1, 1, 1, 1]
num_heads = [1, 1, 2, 2]
mlp_ratios = [2, 2, 2, 2]
[train]
steps = 2
batch_size = 2
tensorboard = false
"""


@functools.cache
def detector():
    """(model folder, folder of two images): a detector with masks after two steps."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="mnemo-detector"))
    (folder / "painted").mkdir()
    images, objects = [], []
    for number in range(2):
        image = PIL.Image.new("RGB", (64, 72), (120, 120, 120))
        image.paste((250, 10, 10), (8, 12, 40, 44 + 8 * number))
        image.save(folder / f"painted/{number}.png")
        images.append({"id": number, "file_name": f"{number}.png", "height": 72, "width": 64})
        box, corners = [8, 12, 32, 32], [8, 12, 40, 12, 40, 44, 8, 44]
        objects.append({"id": number, "image_id": number, "category_id": 1, "bbox": box, "area": 1024, "iscrowd": 0,
                        "segmentation": [corners]})  # fmt: skip
    annotations = {"images": images, "annotations": objects, "categories": [{"id": 1, "name": "red"}]}
    (folder / "instances_painted.json").write_text(json.dumps(annotations))
    (folder / "squares.toml").write_text(DETECTOR)
    run = mnemo.train(folder / "squares.toml", out=folder / "run")
    return pathlib.Path(run.model), folder / "painted"
