"""Every public function with arguments that do not fit: ValueError, TypeError, KeyError or OSError, and the object goes
on working."""

import inspect

import pytest
import torch

import mnemo
from conftest import RUNS, detector

ALLOWED = (ValueError, TypeError, KeyError, OSError)


class Anything:
    """Is no value of any type."""


def tensors():
    yield torch.randn(2, 3)
    yield torch.randn(2, 3, 16)
    yield torch.randn(2, 3, 4, 4)
    yield torch.zeros(0, 3, 16)
    yield torch.zeros(2, 3, 16, dtype=torch.complex64)
    yield torch.zeros(2, 3, dtype=torch.int64)
    yield torch.full((2, 3), -5)
    yield torch.full((2, 3), 1 << 60)
    yield torch.full((2, 3, 16), float("nan"))
    yield torch.empty(2, 3, 16, device="meta")
    yield torch.empty(2, 3, device="meta", dtype=torch.int64)
    yield torch.zeros(2, 3, dtype=torch.bool)


def values():
    yield from (None, True, -1, 1 << 62, 1 << 80, float("nan"), "", "a\0b", "\ud800", b"\xff", [], [None], {}, {"a": 1})
    yield from (Anything(), lambda: None, object, "/dev/null/x", "x" * 5000, -1.5, ["a"], [1 << 70])
    yield from tensors()


def subjects():
    """(name, a fresh object's call, a call that must still work)."""
    model = mnemo.load(RUNS / "text")
    text, session = model.text(), model.tokenizer
    tokens = torch.tensor([[1, 2, 3]])
    attention = mnemo.nn.Attention("abc", 16, num_heads=2, num_slots=3)
    stack = mnemo.nn.LayerStack(16, num_layers=1, num_heads=2, ffn_dim=16, memory=[{"type": "segment_cache"}])
    rows = torch.randn(2, 3, 16)
    state = stack(rows)[1]
    finder = mnemo.load(detector()[0])
    works = {
        "Model": lambda: model.generate("a", max_tokens=2) and model(tokens),
        "Detector": lambda: finder.detect(detector()[1]),
        "Text": lambda: text.feed("a").generate(2),
        "Attention": lambda: attention(rows),
        "LayerStack": lambda: stack(rows, state),
        "State": lambda: state.select_batch([0]),
        "ops": lambda: mnemo.ops.attention(*torch.randn(3, 1, 1, 2, 4)),
    }
    of = {
        "Model": (model, ["generate", "stream", "text", "score", "evaluate", "classify", "detect", "translate", "labels", "forward",
                          "nll", "loss", "commit", "initial_state", "inspect"]),
        "Detector": (finder, ["detect", "classify"]),
        "Text": (text, ["feed", "score", "generate", "stream", "fork", "rewind", "load", "from_bytes"]),
        "Attention": (attention, ["forward", "initial_state"]),
        "LayerStack": (stack, ["forward", "initial_state", "commit", "nll"]),
        "State": (state, ["to", "select_batch", "repeat", "concat", "reset_rows", "load", "__getitem__"]),
        "ops": (mnemo.ops, mnemo.ops.__all__[1:]),
    }  # fmt: skip
    for name, (owner, calls) in of.items():
        for call in calls:
            yield f"{name}.{call}", getattr(owner, call), works[name]
    for call in ("encode", "decode", "offsets", "find"):
        yield f"Tokenizer.{call}", getattr(session, call), works["Model"]
    for call in (mnemo.load, mnemo.inspect, mnemo.resume, mnemo.nn.Attention, mnemo.nn.GRC, mnemo.nn.KNN, mnemo.nn.LayerStack,
                 mnemo.nn.wrap, mnemo.State, mnemo.train, mnemo.compare):  # fmt: skip
        yield call.__name__, call, works["Attention"]


def required(call):
    """How many arguments a call cannot do without."""
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return 1
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return max(1, sum(p.default is inspect.Parameter.empty and p.kind in kinds for p in parameters))


SUBJECTS = {name: (call, works) for name, call, works in subjects()}


@pytest.mark.parametrize("name", SUBJECTS)
def test_wrong_arguments(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, works = SUBJECTS[name]
    count, refused = required(call), 0
    for value in values():
        for arguments in {1: [(value,)], 2: [(value, value), (torch.randn(2, 3, 16), value)]}.get(
            count, [(value,) * count]
        ):
            try:
                call(*arguments)
            except ALLOWED:
                refused += 1
    assert refused > 0
    works()
