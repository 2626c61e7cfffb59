"""Training and comparing equal the program."""

import json
import os
import pathlib
import signal
import threading
import time

import pandas
import pytest

import mnemo
from conftest import command

def weights(run):
    return (pathlib.Path(run) / "model/model.safetensors").read_bytes()


def test_a_training_equals_the_programs_and_tells_of_its_way(recipe, tmp_path):
    steps, evaluations = [], []
    done = mnemo.train(
        recipe,
        out=tmp_path / "ours",
        set={"train.steps": 4},
        on_step=lambda done, total, note: steps.append((done, total)),
        on_eval=lambda step, metrics: evaluations.append((step, metrics["nll"])),
    )
    command("train", recipe, "--out", tmp_path / "theirs", "--set", "train.steps=4", "--quiet")
    assert weights(tmp_path / "ours") == weights(tmp_path / "theirs")
    assert not done.stopped and done.steps == 4 and steps == [(n, 4) for n in range(1, 5)]
    assert [step for step, _ in evaluations] == [3, 4] and done.metrics
    assert done.load().generate("the ", max_tokens=10)


def test_ctrl_c_saves_and_resume_goes_on_bit_for_bit(recipe, tmp_path):
    steps = {"train.steps": 40, "train.eval_every": 40}

    def interrupt(done, total, note):
        if done == 3:
            threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT)).start()
            time.sleep(0.2)

    whole = mnemo.train(recipe, out=tmp_path / "whole", set=steps)
    first = mnemo.train(recipe, out=tmp_path / "parts", set=steps, on_step=interrupt)
    assert first.stopped and first.model == "" and first.steps < 40
    second = mnemo.resume(tmp_path / "parts")
    assert not second.stopped and second.steps == 40
    assert weights(second.folder) == weights(whole.folder)


def test_what_a_callback_raises_ends_the_training(recipe, tmp_path):
    class Enough(Exception):
        pass

    def stop(done, total, note):
        raise Enough

    with pytest.raises(Enough):
        mnemo.train(recipe, out=tmp_path / "run", on_step=stop)
    assert mnemo.resume(tmp_path / "run").steps == 6


def test_compare_equals_its_results_file(recipe, tmp_path):
    variants = {"plain": {"model": {"memory": []}}, "cache": {}}
    done = mnemo.compare(variants, base=recipe, out=tmp_path / "comparison", set={"train.steps": 3}, seeds=1)
    assert done.complete and json.loads((tmp_path / "comparison/results.json").read_text()) == done.results
    rows = pandas.DataFrame(done.rows())
    assert list(rows["variant"]) == ["plain", "cache"] and rows["value"].notna().all()
    curves = pandas.DataFrame(done.curves())
    assert curves["run"].nunique() == 2 and curves["loss"].notna().any() and curves["valid.nll"].notna().sum() == 2
    assert "<table>" in done._repr_html_()


def test_errors(recipe, tmp_path):
    with pytest.raises(FileNotFoundError):
        mnemo.train(tmp_path / "missing.toml")
    with pytest.raises(ValueError, match="steps"):
        mnemo.train(recipe, out=tmp_path / "run", set={"train.stepss": 1})
    with pytest.raises(TypeError):
        mnemo.train(recipe, set="train.steps=1")
    with pytest.raises(ValueError, match="base"):
        mnemo.compare({"a": {}})
