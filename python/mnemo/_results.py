"""What the calls of a model return: dataclasses, of which pandas.DataFrame takes lists."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any


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
class Translation:
    """A translation of a line; `nbest` of them stand together, the best first."""

    line: int
    source: str
    text: str
    score: float
    log_probability: float
    tokens: int
    alignment: list[tuple[int, int]] = field(default_factory=list)
    """Pairs of a word of the source and a word of the translation, from 0."""
