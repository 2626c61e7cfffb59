"""Open texts, and texts as streams of their pieces."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Optional, TypedDict

from . import _C
from ._arguments import check, expect, expect_text, hints_of, texts
from ._paths import name_of, reading
from ._results import Token

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack


class Sampling(TypedDict, total=False):
    """Options of a text: how its tokens are sampled, and where it ends."""

    max_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    frequency_penalty: float
    presence_penalty: float
    stop: Sequence[str]
    past_end: bool
    sample_unknown: bool
    seed: int
    precision: str
    kv_precision: str


def generate_options(options: Sampling) -> _C.GenerateOptions:
    given: dict[str, Any] = dict(options)
    if "stop" in given:
        given["stop"] = texts("generate", "stop", given["stop"])
    check("generate", hints_of(Sampling), **given)
    return _C.GenerateOptions(**given)


class Text:
    """A text that a model reads and continues: `Model.text()`.

    `fork` and `mark` cost no copy of the memory. Calls from several threads wait for each other. A `with` statement
    closes it.

        >>> with mnemo.load(RUN).text(seed=1) as text:
        ...     mark = text.feed("the ").mark()
        ...     written = text.generate(20)
        ...     text.rewind(mark)
        ...     text.generate(20) == written
        True
    """

    def __init__(self, handle: _C.Text) -> None:
        self._handle: Optional[_C.Text] = handle
        self._streams = 0  # begun

    @property
    def _open(self) -> _C.Text:
        if self._handle is None:
            raise ValueError("the text is closed")
        return self._handle

    def feed(self, text: str) -> Self:
        """Reads text."""
        expect_text("feed", text=text)
        self._open.feed(text)
        return self

    def score(self, text: str) -> list[Token]:
        """Reads text and returns how likely the model finds each of its tokens."""
        expect_text("score", text=text)
        return [Token(*token) for token in self._open.score(text)]

    def generate(self, max_tokens: int = 256, stop: Sequence[str] = (), past_end: bool = False) -> str:
        """Writes on, with the sampling of the text."""
        return "".join(self.stream(max_tokens, stop, past_end))

    def stream(self, max_tokens: int = 256, stop: Sequence[str] = (), past_end: bool = False) -> Stream:
        """generate() piece by piece."""
        return Stream(self, {"max_tokens": max_tokens, "stop": stop, "past_end": past_end})

    def finish(self) -> str:
        """At the end of a text: U+FFFD if its tokens end inside a character, else nothing."""
        return self._open.finish()

    @property
    def finish_reason(self) -> str:
        """Why the last text ended: "stop", "length", or "" if none was begun, or it was left before its end."""
        return self._open.finish_reason()

    def fork(self, seed: Optional[int] = None) -> Text:
        """A second text that goes on independently; with the same random numbers unless it gets a seed."""
        check("fork", {"seed": Optional[int]}, seed=seed)
        return Text(self._open.fork(seed))

    def mark(self) -> _C.Mark:
        """A point to rewind to."""
        return self._open.mark()

    def rewind(self, mark: _C.Mark) -> None:
        """Undoes everything since the mark, which can be used again."""
        expect("rewind", _C.Mark, "what mark() returned", mark=mark)
        self._open.rewind(mark)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the text with its memory, without the model, for load() or Model.text(session=)."""
        self._open.save(name_of(path))

    def load(self, path: str | os.PathLike[str]) -> Text:
        """A text of the same model that continues from a file of save()."""
        with reading(path) as name:
            return Text(self._open.load(name))

    def to_bytes(self) -> bytes:
        """The bytes that save() writes."""
        return self._open.save_bytes()

    def from_bytes(self, data: bytes) -> Text:
        """load() from memory."""
        expect("from_bytes", bytes, "bytes", data=data)
        return Text(self._open.load_bytes(data))

    @property
    def num_tokens(self) -> int:
        """Tokens read and written so far."""
        return self._open.num_tokens()

    @property
    def num_bytes(self) -> int:
        """Bytes of memory that the text holds."""
        return self._open.num_bytes()

    def close(self) -> None:
        """Frees the memory of the text."""
        self._handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Stream(Iterator[str]):
    """An iterator over the pieces of a text, whole characters each. The model runs only while a piece is asked for, so
    `close()`, or asking for no more, stops it."""

    def __init__(self, text: Text, options: Sampling, finishes: bool = False) -> None:
        self._text: Optional[Text] = text
        self._finishes = finishes
        text._streams += 1
        self._number = text._streams
        text._open.begin(generate_options(options))

    def __next__(self) -> str:
        if self._text is None:
            raise StopIteration
        if self._text._streams != self._number:
            raise RuntimeError("stream: ended when another stream of its text began")
        piece = self._text._open.next_piece()
        if piece is not None:
            return piece
        rest = self._text.finish() if self._finishes else ""
        self.close()
        if not rest:
            raise StopIteration
        return rest

    def close(self) -> None:
        """Ends the text where it is."""
        self._text = None
