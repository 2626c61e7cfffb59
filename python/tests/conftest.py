"""Models of the tests, and the program `mnemo` (MNEMO_PROGRAM) that the package is compared with."""

import os
import pathlib
import signal
import subprocess

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
