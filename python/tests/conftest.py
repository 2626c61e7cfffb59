"""Models of the tests, and the program `mnemo` (MNEMO_PROGRAM) that the package is compared with."""

import functools
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import pytest
import torch

import mnemo

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "examples"))
from check_examples import paint_objects  # noqa: E402

GOLDEN = ROOT / "tests/golden/data"
RUNS = ROOT / "tests/data/earlier_runs"
PROGRAM = os.environ.get("MNEMO_PROGRAM", str(ROOT / "build/release/mnemo"))


def command(*words, stdin=None):
    """What the program prints. It tells MKL to take its fastest path, which rounds otherwise; Python does not."""
    environment = os.environ | {"MNEMO_MKL_OVERRIDE": "0", "OMP_NUM_THREADS": str(torch.get_num_threads())}
    given = None if stdin is None else stdin.encode()
    done = subprocess.run([PROGRAM, *map(str, words)], input=given, capture_output=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()  # not text=True, which changes \r


@pytest.fixture(autouse=True)
def as_at_the_start():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it


@pytest.fixture(scope="session")
def model():
    """A model of text of an earlier run."""
    return mnemo.load(RUNS / "text")


RECIPE = """
name = "tiny"
[data]
train = "text.txt"
unit = "characters"
[model]
segment_size = 8
memory = [{ type = "segment_cache", mem_len = 8 }]
[model.backbone]
num_layers = 1
dim = 16
num_heads = 2
ffn_dim = 16
[train]
steps = 6
batch_size = 4
eval_every = 3
"""


@pytest.fixture
def recipe(tmp_path):
    """A recipe that trains a small model of text."""
    (tmp_path / "text.txt").write_text((RUNS / "text.txt").read_text() * 20)
    (tmp_path / "tiny.toml").write_text(RECIPE)
    return tmp_path / "tiny.toml"


@functools.cache
def detector():
    """(model folder, folder of four images): a detector with masks after two steps."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="mnemo-detector"))
    masks = {"model.head.type": "mask_rcnn", "model.head.score_thresh": 0.0, "train.steps": 2}
    run = mnemo.train(paint_objects(folder), out=folder / "run", set=masks)
    return pathlib.Path(run.model), folder / "objects/painted"
