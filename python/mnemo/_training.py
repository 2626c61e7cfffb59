"""Training and comparing from recipes."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Optional

import torch

from . import _C
from ._arguments import check, expect_text, hints_of, texts
from ._paths import name_of, reading

if TYPE_CHECKING:
    from ._model import Model

OnStep = Callable[[int, int, str], Any]
OnEval = Callable[[int, dict[str, float]], Any]
Recipe = str | os.PathLike[str]


@dataclass(frozen=True)
class Training:
    """A training that has ended, or was stopped after a checkpoint."""

    folder: str
    """The run's folder: recipe, log, checkpoints."""
    model: str
    """The model folder; empty if the training was stopped."""
    task: str
    """The task memory that fine-tuning wrote; empty: none."""
    steps: int
    tokens: int
    parameters: int
    seconds: float
    metrics: dict[str, float]
    """On held-out data, at the end."""
    stopped: bool
    """Ctrl-C ended it; resume(folder) goes on."""

    def load(self) -> Model:
        """The trained model; of a stopped training its best checkpoint."""
        from ._model import load

        return load(self.model or self.folder)


def _toml(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_C.toml_value(key)} = {_toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return _C.toml_value(value)


def assignments(set: Mapping[str, Any] | Sequence[str]) -> list[str]:
    """{"train.steps": 5} or ["train.steps=5"] as `--set` takes them."""
    if isinstance(set, Mapping):
        return [f"{key}={_toml(value)}" for key, value in set.items()]
    if isinstance(set, str):
        raise TypeError('set: expected {"train.steps": 5} or ["train.steps=5"], found a str')
    return texts("set", "set", set)


def _functions(who: str, **functions: Any) -> None:
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise TypeError(f"{who}: expected {name} as a function, found {type(function).__name__}")


def train(
    recipe: Recipe,
    *,
    out: Recipe = "",
    set: Mapping[str, Any] | Sequence[str] = (),
    variant: str = "",
    init: Recipe = "",
    device: str | torch.device = "cpu",
    on_step: Optional[OnStep] = None,
    on_eval: Optional[OnEval] = None,
) -> Training:
    """Trains a model from a recipe, as `mnemo train`. Ctrl-C saves a checkpoint and returns; resume() goes on.

    out: the run's folder; empty: runs/NAME of the recipe. set: {"train.steps": 100} or ["train.steps=100"]. variant:
    of a recipe with studies. init: a model folder with the initial weights. on_step(done, total, note) is called after
    every step, on_eval(step, metrics) after every evaluation; what they raise ends the training after a checkpoint.
    """
    expect_text("train", variant=variant, device=str(device))
    _functions("train", on_step=on_step, on_eval=on_eval)
    arguments = (name_of(out), assignments(set), variant, name_of(init), str(device), on_step, on_eval)
    with reading(recipe) as name:
        return Training(**_C.train(name, False, *arguments))


def finetune(recipe: Recipe, **options: Any) -> Training:
    """Fine-tunes a trained model on a new task: train() with a recipe that has [finetune]."""
    return train(recipe, **options)


def resume(
    run: Recipe,
    *,
    set: Mapping[str, Any] | Sequence[str] = (),
    device: str | torch.device = "cpu",
    on_step: Optional[OnStep] = None,
    on_eval: Optional[OnEval] = None,
) -> Training:
    """Goes on with a run from its newest checkpoint, bitwise as if it had never stopped."""
    expect_text("resume", device=str(device))
    _functions("resume", on_step=on_step, on_eval=on_eval)
    arguments = ("", assignments(set), "", "", str(device), on_step, on_eval)
    with reading(run) as name:
        return Training(**_C.train(name, True, *arguments))


@dataclass(frozen=True)
class Comparison:
    """Trainings that were compared: rows() for pandas.DataFrame, curves(), and a table in a notebook."""

    folder: str
    report: str
    """An HTML page that works offline."""
    text: str
    """The tables, as `mnemo compare` prints them."""
    results: dict[str, Any]
    """results.json of the folder."""
    stopped: bool
    complete: bool

    def rows(self) -> list[dict[str, Any]]:
        """One row for each variant and point of a sweep: study, variant, metric, value, deviation, p, verdict, ..."""
        rows = []
        for study in self.results.get("studies", []):
            for point in study.get("points", [study]):
                place = {"study": study["name"], **point.get("point", {})}
                for variant in point["variants"]:
                    facts = {name: value for name, value in variant.items() if name not in ("runs", "options", "about")}
                    facts["variant"] = facts.pop("name")
                    rows.append({**place, "metric": study["metric"], **facts, "runs": len(variant["runs"])})
        return rows

    def curves(self) -> list[dict[str, Any]]:
        """One row for each loss and each evaluation of each training: run, step, "loss" or "valid.nll" and others."""
        rows = []
        runs = os.path.join(self.folder, "runs")
        for run in sorted(os.listdir(runs)) if os.path.isdir(runs) else []:
            log = os.path.join(runs, run, "log.jsonl")
            if not os.path.exists(log):
                continue
            with open(log, encoding="utf-8") as lines:
                for line in lines:
                    facts = json.loads(line)
                    if isinstance(facts, dict) and "step" in facts:
                        rows.append({"run": run, **dict(_flat(facts))})
        return rows

    def _repr_html_(self) -> str:
        rows = self.rows()
        if not rows:
            return f"<pre>{escape(self.text)}</pre>"
        names = list(dict.fromkeys(name for row in rows for name in row))
        head = "".join(f"<th>{escape(name)}</th>" for name in names)
        cells = [
            "".join(f"<td>{escape('' if row.get(name) is None else str(row[name]))}</td>" for name in names)
            for row in rows
        ]
        return f"<table><tr>{head}</tr>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>"


def _flat(facts: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """{"valid": {"nll": 1.0}} as ("valid.nll", 1.0)."""
    for name, value in facts.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


@contextmanager
def _variants(variants: Mapping[str, Mapping[str, Any]], base: Recipe) -> Iterator[str]:
    """A recipe file with one study, over a base recipe."""
    if not base:
        raise ValueError('compare: variants need a recipe in common: compare({"name": {...}}, base="recipe.toml")')
    for name, settings in variants.items():
        if not isinstance(name, str) or not isinstance(settings, Mapping):
            found = f"{name!r}: {type(settings).__name__}"
            raise TypeError(f'compare: expected variants as {{"name": {{...}}}}, found {found}')
    study = {"name": "comparison", "variant": [{"name": name, **settings} for name, settings in variants.items()]}
    recipe = {"base": os.path.abspath(name_of(base)), "name": "comparison", "study": [study]}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "comparison.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(_C.to_toml(recipe))
        yield path


def compare(
    recipe: Recipe | Mapping[str, Mapping[str, Any]],
    *,
    base: Recipe = "",
    out: Recipe = "",
    set: Mapping[str, Any] | Sequence[str] = (),
    seeds: int = 0,
    program: Recipe = "",
    jobs: int = 0,
    device: str | torch.device = "cpu",
    on_step: Optional[OnStep] = None,
) -> Comparison:
    """Trains the variants of a recipe with studies and compares them, as `mnemo compare`.

    recipe: a file; or {name: settings} of variants, whose common part is the recipe `base`. out: folder of the report
    and all runs; trainings that are there are kept. program: path of a `mnemo` that trains `jobs` at a time.
    """
    check("compare", hints_of(compare), seeds=seeds, jobs=jobs)
    expect_text("compare", device=str(device))
    _functions("compare", on_step=on_step)
    arguments = (name_of(out), assignments(set), seeds, name_of(program), jobs, str(device), on_step)
    if isinstance(recipe, Mapping):
        with reading(name_of(base) or "."), _variants(recipe, base) as name:
            found = _C.compare(name, *arguments)
    else:
        with reading(recipe) as name:
            found = _C.compare(name, *arguments)
    text = found.pop("json")
    return Comparison(results=json.loads(text) if text else {}, **found)
