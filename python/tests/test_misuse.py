"""Every public function with arguments that do not fit: ValueError, TypeError, KeyError or OSError, and the object goes
on working."""

import inspect
import pathlib
import tempfile

import pytest
import torch

import mnemo
from conftest import RUNS, detector
from mnemo._inspection import Look
from mnemo._text import Sampling
from test_wrap import gpt2

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


def valid():
    """(call, arguments that fit, options that fit) of every public function with options."""
    file = pathlib.Path(tempfile.mkdtemp(prefix="mnemo-misuse")) / "text.txt"
    file.write_text("the house")
    recipe = file.with_name("recipe.toml")  # trains nothing: its data are not there
    recipe.write_text('[data]\ntrain = "missing.txt"\n')
    rows, heads = torch.randn(2, 3, 16), list(torch.randn(4, 1, 2, 3, 4).unbind())
    gate = (torch.randn(3, 6), torch.randn(3))
    for name, arguments, options in [
        ("Model.generate", ["a"], {"max_tokens": 2}), ("Model.stream", ["a"], {"max_tokens": 2}), ("Model.text", [], {}),
        ("Model.score", ["a"], {}), ("Model.evaluate", [file], {}), ("Model.labels", [], {}), ("Model.inspect", [], {}),
        ("Model.forward", [torch.tensor([[1, 2]])], {}), ("Detector.detect", [detector()[1] / "0.png"], {}),
        ("Detector.classify", [detector()[1]], {}), ("Text.generate", [], {"max_tokens": 2}), ("Text.stream", [], {}),
        ("Text.fork", [], {}), ("Attention.forward", [rows], {}), ("LayerStack.forward", [rows], {}),
        ("ops.attention", heads[:3], {}), ("ops.abc", heads, {}), ("ops.abc_causal", heads, {}),
        ("ops.grc_read", [*heads[:3], torch.randn(1, 3, 8), torch.randn(2)], {}),
        ("ops.grc_update", [torch.randn(2, 4, 3), torch.randn(2, 4, 3), gate, gate, gate], {}),
        ("load", [RUNS / "text"], {}), ("inspect", [RUNS / "text"], {}), ("resume", [recipe], {}), ("train", [recipe], {}),
        ("compare", [{"a": {}}], {"base": recipe}), ("Attention", ["abc", 16], {}), ("GRC", [16], {}), ("KNN", [16], {}),
        ("LayerStack", [16], {}), ("wrap", [gpt2()], {}),
    ]:  # fmt: skip
        yield name, arguments, options
    pairs = mnemo.load(RUNS / "pairs")
    SUBJECTS["Pairs.translate"] = (pairs.translate, lambda: pairs.translate("a", max_tokens=2))
    yield "Pairs.translate", ["a"], {"max_tokens": 2}


def options_of(call):
    """Names of what a call takes beside its required arguments, and one that it does not take."""
    for parameter in inspect.signature(call).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            options = {"Unpack[Sampling]": Sampling, "Unpack[Look]": Look}.get(parameter.annotation)
            yield from options.__annotations__ if options else ()
        elif parameter.default is not inspect.Parameter.empty:
            yield parameter.name
    yield "no_such_option"


VALID = {name: (arguments, options) for name, arguments, options in valid()}


@pytest.mark.parametrize("name", VALID)
def test_wrong_options(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, works = SUBJECTS[name]
    arguments, fitting = VALID[name]
    for option in options_of(call):
        refused = 0
        for value in values():
            try:
                call(*arguments, **{**fitting, option: value})
            except ALLOWED as error:
                refused += 1
                assert "incompatible" not in str(error), f"{option} = {value!r}: {error}"  # pybind11's signatures
        assert refused > 0, option
    works()
