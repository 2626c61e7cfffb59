"""Paths of arguments."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from . import _C


def name_of(path: str | os.PathLike[str]) -> str:
    """As the library takes it. Raises TypeError for what is no path, ValueError for one that is not UTF-8."""
    name = os.fsdecode(os.fspath(path))
    name.encode()
    return name


@contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[str]:
    """The name of what is read; FileNotFoundError in place of InputError where there is nothing of that name."""
    name = name_of(path)
    try:
        yield name
    except _C.InputError as error:
        if not os.path.exists(name):
            raise FileNotFoundError(str(error)) from None
        raise
