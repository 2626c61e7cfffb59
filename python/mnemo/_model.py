"""Models that a folder holds."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Optional

import torch
from torch import Tensor

from . import _C
from ._arguments import check, expect_text, hints_of, several, texts
from ._inspection import Inspection, Look, inspect_options
from ._module import ModelModule
from ._paths import name_of, reading
from ._results import DetectedImage, DetectedObject, Evaluation, Prediction, Token, Translation
from ._text import Sampling, Stream, Text, generate_options
from ._tokenizer import Tokenizer

if TYPE_CHECKING:
    from typing_extensions import Unpack


def load(folder: str | os.PathLike[str], checkpoint: str | int = "", device: str | torch.device = "cpu") -> Model:
    """Loads a model folder, a run's folder (also while it trains), a checkpoint, or a model folder of
    another library (Hugging Face, timm).

    checkpoint: of a run: "latest", "best" or a step; empty: its model, or before it has one the best checkpoint.
    device: "cpu", or "cuda" in a build that has it. Raises FileNotFoundError, or mnemo.InputError for what is no model.

        >>> model = mnemo.load(RUN)
        >>> model.generate("the ", max_tokens=20, seed=1) == model.generate("the ", max_tokens=20, seed=1)
        True
        >>> len(model.score("house", prompt="the "))
        5
    """
    check("load", {"checkpoint": str | int}, checkpoint=checkpoint)
    expect_text("load", device=str(device))
    with reading(folder) as given:
        # Some of its files are read later, perhaps from another working folder.
        name = os.path.join(os.getcwd(), given) if given else given
        return Model(_C.load(name, str(checkpoint), str(device)), name, str(checkpoint))


class Model(ModelModule):
    """A complete model: a torch.nn.Module with its tokenizer or image preprocessing, class names and conventions.

    Loaded in evaluation mode. Calls that take long run without the GIL; Ctrl-C ends them within a second, between
    the images of detect and the batches of classify. Several threads may generate and classify at once.
    """

    def __init__(self, handle: _C.Model, folder: str, checkpoint: str) -> None:
        self._place = (folder, checkpoint)
        super().__init__(handle)
        self.eval()

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_place":  # before nn.Module.__init__
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def _rebuilt(self, handle: Any, given: Mapping[str, Tensor]) -> Any:
        if handle is None:  # a copy, or unpickled: the rest comes from the folder again
            handle = _C.load(*self._place, "cpu")
        return handle.rebuilt(dict(given))

    @property
    def folder(self) -> str:
        """The folder of the model that was loaded."""
        return self._bound().folder

    @property
    def format(self) -> str:
        """Format of its folder: "mnemo", or another library's ("huggingface_gpt2")."""
        return self._bound().format

    @property
    def options(self) -> dict[str, Any]:
        """All options of the model, as a recipe's [model]."""
        options: dict[str, Any] = self._bound().options()
        return options

    @property
    def tokenizer(self) -> Tokenizer:
        """Turns texts into token ids and back. Raises mnemo.InputError for a model without one."""
        return Tokenizer(self._bound().tokenizer)

    def labels(self, task: str = "base") -> list[str]:
        """The class names of a head; empty if its classes have none."""
        expect_text("labels", task=task)
        return self._bound().labels(task)

    def generate(self, prompt: str, **options: Unpack[Sampling]) -> str:
        """Continues the prompt; the text without the prompt.

        Options: max_tokens=256, temperature=0.8 (0: always the most likely token), top_k, top_p, min_p,
        repetition_penalty, frequency_penalty, presence_penalty, stop (texts that end it), past_end, sample_unknown,
        seed=0, precision (as --precision), kv_precision ("auto", "int8").
        """
        expect_text("generate", prompt=prompt)
        return self._bound().generate(prompt, generate_options(options))

    def stream(self, prompt: str, **options: Unpack[Sampling]) -> Stream:
        """generate() piece by piece, each of whole characters; closing the iterator ends the text within a token."""
        if "stop" in options:
            options["stop"] = texts("stream", "stop", options["stop"])  # an iterator is read once
        text = self.text(**options)
        text.feed(prompt)
        return Stream(text, options, finishes=True)

    def text(self, *, session: str | os.PathLike[str] | None = None, **options: Unpack[Sampling]) -> Text:
        """An open text that can be fed, continued, forked, rewound and saved. session: a file of Text.save to go on
        from, with its sampling unless options change it. It is of the weights that the model has now: after a training
        step open another."""
        handle = self._bound()
        if session is None:
            return Text(handle.text(generate_options(options)))
        with reading(session) as name:
            return Text(handle.resume_text(name, generate_options(options), list(options)))

    def score(self, text: str, prompt: str = "") -> list[Token]:
        """How likely the model finds each token of a text, after the prompt."""
        session = self.text()
        session.feed(prompt)
        return session.score(text)

    def evaluate(
        self,
        data: str | os.PathLike[str] | None = None,
        *,
        part: Optional[str] = None,
        documents: Optional[str] = None,
        separator: Optional[str] = None,
        reset: Optional[str] = None,
        precision: Optional[str] = None,
        kv_precision: Optional[str] = None,
        task: Optional[str] = None,
        segment_size: Optional[int] = None,
        context: Optional[int] = None,
        memory: Optional[str] = None,
        translated: Optional[int] = None,
        strict: bool = False,
        batch: int = 1,
    ) -> Evaluation:
        """Measures the model on a file, pairs, a set of images, or, without data, on held-out data of its run. Options:
        those of `mnemo eval --help`."""
        given: dict[str, Any] = {
            "part": part,
            "documents": documents,
            "separator": separator,
            "reset": reset,
            "precision": precision,
            "kv_precision": kv_precision,
            "task": task,
            "segment_size": segment_size,
            "context": context,
            "memory": memory,
            "translated": translated,
            "strict": strict,
            "batch": batch,
        }
        check("evaluate", hints_of(Model.evaluate), **given)
        options = _C.MeasureOptions(data=None if data is None else name_of(data), **given)
        if data is None:
            return Evaluation(**self._bound().evaluate(options))
        with reading(data):
            return Evaluation(**self._bound().evaluate(options))

    def classify(
        self,
        inputs: str | os.PathLike[str] | Sequence[Any],
        *,
        top: Optional[int] = None,
        tasks: str | Sequence[str] = (),
        batch: int = 8,
        skip_broken: bool = False,
    ) -> list[Prediction]:
        """Classes of images (paths of files or folders) or of texts (strings, or pairs of strings), most likely first.

        top: classes for each input and head; 5 of images and 1 of texts if not given. tasks: only these heads.
        """
        given = several("classify", inputs, (str, os.PathLike), "a path or a text")
        check("classify", hints_of(Model.classify), top=top, batch=batch, skip_broken=skip_broken)
        handle = self._bound()
        if handle.is_images:
            names, heads = _images(given), texts("classify", "tasks", tasks)
            rows = handle.classify_images(names, heads, 5 if top is None else top, batch, skip_broken)
        else:
            if tasks or skip_broken:
                raise ValueError("classify: tasks and skip_broken go with models of images")
            pairs = [(text, None) if isinstance(text, str) else _pair(text) for text in given]
            rows = handle.classify_texts(pairs, 1 if top is None else top, batch)
        return [Prediction(*row) for row in rows]

    def detect(
        self,
        images: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        threshold: float = 0.5,
        top: int = 100,
        masks: bool = True,
        draw: bool = False,
        skip_broken: bool = False,
    ) -> list[DetectedImage]:
        """The objects in images (paths of files or folders), found by a detector.

        threshold: objects of a lower score are left out. top: at most so many of an image. masks: where the detector
        has them. draw: also the picture with boxes and labels, `svg`.
        """
        options = {"threshold": threshold, "top": top, "masks": masks, "draw": draw, "skip_broken": skip_broken}
        check("detect", hints_of(Model.detect), **options)
        names = _images(several("detect", images, (str, os.PathLike), "a path"))
        return [
            DetectedImage(image, height, width, [DetectedObject(image, *one) for one in objects], svg, error)
            for image, height, width, objects, svg, error in self._bound().detect(
                names, threshold, top, masks, draw, skip_broken
            )
        ]

    def translate(
        self,
        lines: str | Sequence[str],
        *,
        beam: Optional[int] = None,
        nbest: int = 1,
        length_penalty: Optional[float] = None,
        max_tokens: Optional[int] = None,
        batch: int = 32,
        precision: Optional[str] = None,
        align: bool = False,
        replace_unknown: bool = False,
        unknown: str = "<unk>",
    ) -> list[Translation]:
        """Translates lines with a translation model, by the search of its run or published folder; beam,
        length_penalty and max_tokens change it. align: also gives pairs of words. replace_unknown: a word outside the
        vocabulary becomes the source word that the model attends to; else it is `unknown`."""
        given = texts("translate", "lines", lines)
        search = {
            "beam": beam,
            "nbest": nbest,
            "length_penalty": length_penalty,
            "max_tokens": max_tokens,
            "batch": batch,
            "precision": precision,
            "align": align,
            "replace_unknown": replace_unknown,
            "unknown": unknown,
        }
        check("translate", hints_of(Model.translate), **search)
        rows = self._bound().translate(given, **search)
        return [Translation(*row) for row in rows]

    def inspect(self, **options: Unpack[Look]) -> Inspection:
        """Parameters, state, and with text= or image= the attention over it, with cost=True the cost of each part.
        Options as of mnemo.inspect()."""
        return Inspection(self._bound().inspect(inspect_options(options)))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes a model folder, with the weights as they are now."""
        with torch.no_grad():
            _C.save_model(name_of(folder), self._bound())

    def extra_repr(self) -> str:
        return f"{self._place[0]!r}"


def _images(paths: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Names of images and folders; FileNotFoundError for one that is not there."""
    names = [name_of(path) for path in paths]
    for name in names:
        if not os.path.exists(name):
            raise FileNotFoundError(f"{name}: no such image or folder")
    return names


def _pair(texts: Any) -> tuple[str, str]:
    """A pair of texts to classify."""
    if not isinstance(texts, Sequence) or len(texts) != 2 or not all(isinstance(text, str) for text in texts):
        raise TypeError(f"classify: expected texts, or pairs of texts, found {type(texts).__name__}")
    return texts[0], texts[1]
