"""Arguments of wrong types, refused by name before C++ sees them."""

from __future__ import annotations

import difflib
import functools
import numbers
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Union

from torch import Tensor

hints_of = functools.cache(typing.get_type_hints)


def _found(value: Any) -> str:
    if value is None:
        return "None"
    shown = f" {value!r}" if isinstance(value, (bool, int, float, str)) else ""
    return f"{type(value).__name__}{shown[:60]}"


def expect(who: str, kind: type | tuple[type, ...], words: str, /, **values: Any) -> None:
    """Raises TypeError for a value that is not of this kind."""
    for name, value in values.items():
        if not isinstance(value, kind):
            raise TypeError(f"{who}: expected {name} as {words}, found {_found(value)}")


def expect_text(who: str, /, **values: Any) -> None:
    """Also raises UnicodeEncodeError, a ValueError, for half a character, which C++ cannot take."""
    expect(who, str, "a str", **values)
    for value in values.values():
        value.encode()


def expect_tensors(who: str, /, **tensors: Any) -> None:
    expect(who, Tensor, "a torch.Tensor", **tensors)


def _fits(value: Any, hint: Any) -> bool:
    origin = typing.get_origin(hint)
    if origin in (Union, type(int | None)):
        return any(_fits(value, one) for one in typing.get_args(hint))
    if origin is Sequence:
        item = typing.get_args(hint)[0]
        many = isinstance(value, Iterable) and not isinstance(value, (str, Iterator))  # which would be read here
        return many and all(_fits(one, item) for one in value)
    if isinstance(value, bool) and hint in (int, float):
        return False
    numbers_of = {int: numbers.Integral, float: numbers.Real}  # numpy's too
    return isinstance(value, numbers_of.get(hint, origin or hint))


def check(who: str, hints: Mapping[str, Any], /, **given: Any) -> None:
    """Raises TypeError that names an argument which is not among the hints, or is of another type; ValueError for an
    integer of more than 64 bits."""
    for name, value in given.items():
        if name not in hints:
            near = difflib.get_close_matches(name, hints, n=1, cutoff=0.7)
            hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(hints)}"
            raise TypeError(f"{who}: unknown option '{name}'; {hint}")
        if not _fits(value, hints[name]):
            wanted = str(getattr(hints[name], "__name__", "") if isinstance(hints[name], type) else hints[name])
            wanted = wanted.replace("typing.", "").replace("collections.abc.", "")
            raise TypeError(f"{who}: expected {name} as {wanted}, found {_found(value)}")
        if isinstance(value, str):
            expect_text(who, **{name: value})
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise ValueError(f"{who}: expected {name} of 64 bits, found {value}")


def several(who: str, values: Any, kind: type | tuple[type, ...], words: str) -> list[Any]:
    """One value of a kind, or any number of values, as a list."""
    if isinstance(values, kind):
        return [values]
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise TypeError(f"{who}: expected {words}, or a list of them, found {_found(values)}")
    return list(values)


def texts(who: str, name: str, values: Any) -> list[str]:
    """A text, or any number of them, as a list."""
    given = several(who, values, str, f"{name} as a str")
    expect_text(who, **{f"{name}[{i}]": one for i, one in enumerate(given)})
    return given


def memories(who: str, memory: Any) -> list[dict[str, Any]]:
    """Options of the memories of a layer: a list of dicts, or one."""
    given = several(who, memory, Mapping, 'memory as {"type": "knn", ...}')
    expect(who, Mapping, '{"type": "knn", ...}', **{f"memory[{i}]": one for i, one in enumerate(given)})
    return [dict(one) for one in given]
