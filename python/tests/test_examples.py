"""The programs and notebooks of examples/, and the Python of README.md, run."""

import importlib.util
import pathlib
import re

import pytest
import torch

import mnemo
from conftest import ROOT, RUNS

PROGRAMS, NOTEBOOKS = ROOT / "examples/python", ROOT / "examples/notebooks"


def program(name):
    specification = importlib.util.spec_from_file_location(name, PROGRAMS / f"{name}.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_quickstart_runs_and_is_what_the_readme_shows(capsys):
    program("quickstart").main(RUNS / "text", RUNS / "text.txt")
    assert "perplexity" in capsys.readouterr().out
    source = re.sub(r"^ +", "", (PROGRAMS / "quickstart.py").read_text(), flags=re.M)
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S):
        for line in filter(None, (line.strip() for line in block.splitlines())):
            assert line.replace('"runs/mine"', "run") in source, line


@pytest.fixture
def trainer_program():
    pytest.importorskip("accelerate")
    return program("trainer")


def test_the_trainer_carries_the_state(trainer_program, tmp_path):
    text = (RUNS / "text.txt").read_bytes() * 40
    trainer = trainer_program.make_trainer(text, str(tmp_path), max_steps=3, learning_rate=0.0)
    trainer.train()
    segments, rows = trainer.train_dataset, 8
    steps, state, next_tokens = len(segments) // rows, None, None
    assert steps > 3
    for step in range(3):
        chosen = [segments[row * steps + step] for row in range(rows)]
        tokens = torch.stack([one["input_ids"] for one in chosen])
        assert step == 0 or torch.equal(tokens[:, 0], next_tokens)
        next_tokens = torch.stack([one["labels"][-1] for one in chosen])
        _, state = trainer.model(tokens, state)
    carried, alone = trainer.states[True]["1"], trainer.model(tokens)[1]["1"]
    assert dict(carried).keys() == dict(alone).keys() and carried != alone
    for name, tensor in state["1"].items():
        torch.testing.assert_close(carried[name], tensor, msg=name)


def test_the_trainer_learns(trainer_program, tmp_path):
    text = (ROOT / "data/tinyshakespeare/input.txt").read_bytes()[:60_000]
    trainer = trainer_program.make_trainer(text, str(tmp_path), max_steps=60)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    after = trainer.evaluate()["eval_loss"]
    assert after < before - 1.5
    assert trainer.model.gates["1"].item() != 0
    assert not any(tensor.requires_grad for tensor in trainer.states[True]["1"].values())


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks(path, monkeypatch):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # on a busy machine two threads wait for each other
    monkeypatch.setenv("MPLBACKEND", "agg")
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "notebooks are committed without outputs"
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(path.parent)}}).execute()


def test_there_are_three_notebooks():
    assert len(list(NOTEBOOKS.glob("*.ipynb"))) == 3
