"""Results of a model's calls: dataclasses. pandas.DataFrame takes lists of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Optional

from torch import Tensor


@dataclass(frozen=True)
class Token:
    """A token of a given text."""

    id: int
    text: str
    log_probability: float
    """In nats, given the text before it; NaN if there is none."""


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation; `result["nll"]` is a metric."""

    data: str
    predictions: int
    unknown: int
    """Tokens of a text outside the vocabulary."""
    metrics: dict[str, float]
    notes: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, metric: str) -> float:
        if metric not in self.metrics:
            raise KeyError(f"no metric {metric!r}; known: {', '.join(self.metrics)}")
        return self.metrics[metric]

    @property
    def perplexity(self) -> float:
        """exp of the mean nll, of models of text."""
        return math.exp(self.metrics["nll"])


@dataclass(frozen=True)
class Prediction:
    """A class of an image or text; an image has `top` of them for each head."""

    input: str
    task: str
    label: str
    probability: float
    error: str = ""
    """Why an image was skipped; then there is no class."""


@dataclass(frozen=True)
class DetectedObject:
    """An object that a detector has found."""

    image: str
    label: str
    score: float
    box: tuple[float, float, float, float]
    """x1, y1, x2, y2 in pixels, after EXIF's orientation."""
    mask: Optional[Tensor] = field(default=None, compare=False, repr=False)
    """[height,width] bool, of a detector with masks."""


@dataclass(frozen=True)
class DetectedImage:
    """The objects found in an image, highest score first. A notebook shows the picture if it was drawn."""

    image: str
    height: int
    width: int
    objects: list[DetectedObject]
    svg: str = field(default="", repr=False)
    """The image with masks, boxes and labels."""
    error: str = ""
    """Why it was skipped; then its size is 0."""

    def _repr_html_(self) -> Optional[str]:
        return self.svg or None


@dataclass(frozen=True)
class Translation:
    """A translation of a line; `nbest` of them stand together, the best first."""

    line: int
    source: str
    text: str
    score: float
    """log_probability / tokens ** length_penalty; the best is first."""
    log_probability: float
    """Of all tokens, in nats."""
    tokens: int
    """Number of tokens, with the end."""
    alignment: list[tuple[int, int]] = field(default_factory=list)
    """Pairs of a word of the source and a word of the translation, from 0."""
