"""Transformers with memory: mnemo.load a model and write, score, measure and train with it; build memories into your
own models (mnemo.nn, mnemo.ops); train and compare from recipes."""

from . import _torch  # noqa: F401  first: refuses another torch
from . import nn, ops
from ._C import IGNORE, InputError, NotFinite, ShapeError, __version__
from ._inspection import Inspection, inspect
from ._model import Model, load
from ._module import Step
from ._results import DetectedImage, DetectedObject, Evaluation, Prediction, Token, Translation
from ._state import State
from ._text import Stream, Text
from ._tokenizer import Tokenizer
from ._training import Comparison, Training, compare, finetune, resume, train

__all__ = [
    "IGNORE",
    "Comparison",
    "DetectedImage",
    "DetectedObject",
    "Evaluation",
    "InputError",
    "Inspection",
    "Model",
    "NotFinite",
    "Prediction",
    "ShapeError",
    "State",
    "Step",
    "Stream",
    "Text",
    "Token",
    "Tokenizer",
    "Training",
    "Translation",
    "__version__",
    "compare",
    "finetune",
    "inspect",
    "load",
    "nn",
    "ops",
    "resume",
    "train",
]
