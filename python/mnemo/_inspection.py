"""A look into a model's memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import torch
from torch import Tensor

from . import _C
from ._arguments import check, hints_of
from ._paths import name_of, reading
from ._training import assignments

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Look(TypedDict, total=False):
    """Options of inspect()."""

    text: str
    image: str | os.PathLike[str]
    layers: int | Sequence[int] | str
    heads: int | Sequence[int] | str
    cost: bool
    set: Mapping[str, Any] | Sequence[str]
    variant: str
    checkpoint: str | int


def inspect_options(options: Look) -> _C.InspectOptions:
    """As C++ takes them: layers and heads as "0,2"."""
    given: dict[str, Any] = dict(options)
    check("inspect", hints_of(Look), **given)
    for name in ("layers", "heads"):
        if name in given and not isinstance(given[name], str):
            numbers = given[name] if isinstance(given[name], Iterable) else [given[name]]
            given[name] = ",".join(str(number) for number in numbers)
    if given.get("text") == "":
        raise ValueError("inspect: expected words in text, found none")
    if "image" in given:
        given["image"] = name_of(given["image"])
        if not os.path.exists(given["image"]):
            raise FileNotFoundError(f"{given['image']}: no such image")
    if "set" in given:
        given["set"] = assignments(given["set"])
    if "checkpoint" in given:
        given["checkpoint"] = str(given["checkpoint"])
    return _C.InspectOptions(**given)


class Inspection:
    """Parameters, state, attention and cost of a model."""

    def __init__(self, handle: _C.Inspection) -> None:
        self._handle = handle

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return self._handle.parameters

    @property
    def state_bytes(self) -> int:
        """Bytes of a sequence's state between segments, once its memory is full."""
        return self._handle.state_bytes

    @property
    def words(self) -> list[str]:
        """The tokens of the segment shown: of those with a filled memory, the last of the most tokens."""
        return self._handle.words()

    @property
    def maps(self) -> dict[int, dict[str, Tensor]]:
        """Attention weights of that segment by layer and kind ("attention", "grc_cache"): [H,R,C], rows to columns."""
        return {
            layer: {name: torch.stack(heads) for name, heads in kinds.items()}
            for layer, kinds in self._handle.maps().items()
        }

    @property
    def cost(self) -> dict[str, Any]:
        """FLOPs, parameters and bytes of each part; empty unless asked for with cost=True."""
        found: dict[str, Any] = self.to_dict().get("cost", {})
        return found

    def to_dict(self) -> dict[str, Any]:
        """All results, as `mnemo inspect --json` prints them."""
        result: dict[str, Any] = self._handle.to_dict()
        return result

    def html(self, title: str = "Mnemo") -> str:
        """One page that works offline."""
        return self._handle.html(title)

    def svg(self) -> str:
        """A picture of the attention over the input, or of the mask."""
        return self._handle.svg()

    def plot(self, layer: int = 0, head: int = 0, kind: str = "attention") -> Any:
        """Draws a map with matplotlib; returns its axes. Raises KeyError for a map that is not there."""
        import matplotlib.pyplot as plt

        maps = self.maps
        if not maps:
            raise ValueError("plot: expected attention over an input; inspect with text=")
        if kind not in maps.get(layer, {}) or not 0 <= head < len(maps[layer][kind]):
            there = [(n, k, len(one)) for n, kinds in maps.items() for k, one in kinds.items()]
            known = ", ".join(f"layer {n} {k!r} of {heads} heads" for n, k, heads in there)
            raise KeyError(f"plot: no layer {layer!r}, head {head!r} of {kind!r}; known: {known}")
        weights = maps[layer][kind][head]
        axes = plt.subplots()[1]
        axes.imshow(weights.numpy(), cmap="viridis", aspect="auto")
        axes.set(title=f"layer {layer}, head {head}: {kind}", xlabel="key", ylabel="query")
        return axes

    def __str__(self) -> str:
        return self._handle.text()

    def _repr_html_(self) -> str:
        return self.svg() if self.words else f"<pre>{self}</pre>"


def inspect(source: str | os.PathLike[str], **options: Unpack[Look]) -> Inspection:
    """Inspects a model folder, a run's folder, a checkpoint or a recipe.

    Options: text or image (a path), an input to look at; layers, heads: numbers, or "0-3"; cost; set and variant (of a
    recipe); checkpoint (of a run).

        >>> looked = mnemo.inspect(RUN, text="house")
        >>> len(looked.words), looked.maps[0]["attention"].shape[:2]
        (5, torch.Size([2, 5]))
    """
    wanted = inspect_options(options)
    with reading(source) as name:
        return Inspection(_C.inspect_source(name, wanted))
