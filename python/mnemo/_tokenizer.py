"""Tokenizers of models of texts."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from . import _C
from ._arguments import check, expect_text


class Tokenizer:
    """Turns texts into token ids and back: `Model.tokenizer`.

        >>> tokenizer = mnemo.load(RUN).tokenizer
        >>> ids = tokenizer.encode("the")
        >>> ids, tokenizer.decode(ids), tokenizer.offsets("the")
        ([3, 8, 1], 'the', [(0, 1), (1, 2), (2, 3)])
    """

    def __init__(self, handle: _C.Tokenizer) -> None:
        self._handle = handle

    @property
    def type(self) -> str:
        """"bytes", "characters", "words", "wordpiece", "bpe" or "sentencepiece"."""
        return self._handle.type

    @property
    def size(self) -> int:
        """Number of tokens; ids are 0 to size - 1."""
        return self._handle.size

    @property
    def unknown_id(self) -> int:
        """The id of units outside the vocabulary, or -1 if there are none."""
        return self._handle.unknown_id

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens around it."""
        expect_text("encode", text=text)
        return self._handle.encode(text)

    def decode(self, ids: Sequence[int] | Tensor) -> str:
        """The text of token ids [T]. Raises mnemo.InputError for an id outside the vocabulary."""
        if isinstance(ids, Tensor) and ids.is_meta:
            raise ValueError("decode: expected token ids [T] of int, found a tensor on meta")
        given = ids.tolist() if hasattr(ids, "tolist") else ids  # a tensor's, or numpy's
        check("decode", {"ids": Sequence[int]}, ids=given)
        return self._handle.decode(given)

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """For each token of a text its first character and the one after its last. Raises mnemo.InputError where the
        tokens do not spell the text."""
        expect_text("offsets", text=text)
        return self._handle.offsets(text)

    def find(self, token: str) -> int:
        """The id of a token by its text, special ones such as "[MASK]" included, or -1. Vocabularies made from a text
        find none."""
        expect_text("find", token=token)
        return self._handle.find(token)

    def __repr__(self) -> str:
        return f"Tokenizer(type={self.type!r}, size={self.size})"
