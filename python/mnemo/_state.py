"""States: the memory of a model as a value."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

import torch
from torch import Tensor
from torch.utils import _pytree

from . import _C
from ._arguments import check, expect, expect_tensors
from ._paths import name_of, reading


class State(Mapping[str, Tensor]):
    """All that a model remembers: named tensors, which no call changes in place.

    A dimension named B is the batch (a tensor without it belongs to the model, not to a sequence); M are rows of the
    past, right-aligned. Methods return new states that share tensors where they can.

    Pickles, compares with ==, and is a node of torch.utils._pytree. A state that was loaded, unpickled or made of
    tensors fits every model that has tensors of these names and shapes.

        >>> state = State({"memory": torch.zeros(2, 3, 4)}, {"memory": "B M D"})
        >>> state.batch, state.select_batch([1])["memory"].shape, state.repeat(2).batch
        (2, torch.Size([1, 3, 4]), 4)
    """

    __slots__ = ("_handle", "_tensors", "_dims")

    def __init__(self, tensors: Mapping[str, Tensor], dims: Mapping[str, str]) -> None:
        """dims: for each tensor the names of its dimensions, such as "B M D"."""
        if not isinstance(tensors, Mapping) or not isinstance(dims, Mapping):
            raise TypeError("State: expected a mapping of tensors and a mapping of their dims")
        expect_tensors("State", **tensors)
        for name in tensors:
            if not isinstance(dims.get(name), str):
                raise TypeError(f'State: expected the dims of {name!r}, such as "B M D", found {dims.get(name)!r}')
        fields = [(name, dims[name], tensor) for name, tensor in tensors.items()]
        self._attach(_C.State(fields))

    def _attach(self, handle: _C.State) -> None:
        self._handle = handle
        self._tensors: Optional[dict[str, Tensor]] = None
        self._dims: dict[str, str] = {}

    @classmethod
    def _of(cls, handle: _C.State) -> State:
        state = cls.__new__(cls)
        state._attach(handle)
        return state

    def _read(self) -> dict[str, Tensor]:
        if self._tensors is None:
            fields = self._handle.fields()
            self._dims = {name: dims for name, dims, _ in fields}
            self._tensors = {name: tensor for name, _, tensor in fields}
        return self._tensors

    def __getitem__(self, name: str) -> Tensor:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    @property
    def dims(self) -> dict[str, str]:
        """The names of each tensor's dimensions: "B M D"."""
        self._read()
        return dict(self._dims)

    @property
    def batch(self) -> int:
        """Number of sequences; -1 for a state that holds none."""
        return self._handle.batch()

    def detach(self) -> State:
        """Cut off from the graph, as between the steps of truncated backpropagation."""
        return State._of(self._handle.detach())

    def clone(self) -> State:
        """Copies of all tensors."""
        return State._of(self._handle.clone())

    def to(self, dtype: torch.dtype) -> State:
        """Floating-point tensors in another type."""
        expect("to", torch.dtype, "a torch.dtype", dtype=dtype)
        return State._of(self._handle.to(dtype))

    def select_batch(self, rows: Sequence[int] | Tensor) -> State:
        """The sequences with these numbers, in this order."""
        return State._of(self._handle.select_batch(_tensor(rows, torch.int64)))

    def repeat(self, times: int) -> State:
        """Each sequence `times` times, side by side, as beams of a search."""
        check("repeat", {"times": int}, times=times)
        if not 1 <= times <= 1 << 16:
            raise ValueError(f"repeat: expected 1 to {1 << 16}, found {times}")
        return self.select_batch(torch.arange(max(self.batch, 0)).repeat_interleave(times))

    @staticmethod
    def concat(states: Sequence[State]) -> State:
        """The sequences of several states; shorter pasts are padded on the left."""
        return State._of(_C.concat_states([_required(state) for state in states]))

    def reset_rows(self, rows: Sequence[bool] | Tensor, initial: State) -> State:
        """The sequences where rows [B] is true begin again, as in `initial`, a state of as many sequences."""
        return State._of(self._handle.reset_rows(_tensor(rows, torch.bool), _required(initial)))

    def num_bytes(self) -> int:
        """Bytes of all tensors."""
        return self._handle.num_bytes()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a safetensors file."""
        self._handle.save(name_of(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> State:
        """Reads a file of save()."""
        with reading(path) as name:
            return cls._of(_C.load_state(name))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, State):
            return NotImplemented
        mine, theirs = self._read(), other._read()
        return self.dims == other.dims and all(
            mine[name].dtype == theirs[name].dtype and torch.equal(mine[name], theirs[name]) for name in mine
        )

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return State, (dict(self._read()), self.dims)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name} [{dims}]={list(self[name].shape)}" for name, dims in self.dims.items())
        return f"State({fields})"


def _flatten(state: State) -> tuple[list[Any], Any]:
    return list(state._read().values()), tuple(state.dims.items())


def _unflatten(values: Any, dims: Any) -> Any:
    tensors = dict(zip((name for name, _ in dims), values))
    if all(isinstance(value, Tensor) for value in tensors.values()):
        return State(tensors, dict(dims))
    return tensors  # of a tree_map that returns no tensors


_pytree.register_pytree_node(State, _flatten, _unflatten, serialized_type_name="mnemo.State")


def _tensor(values: Any, dtype: torch.dtype) -> Tensor:
    """torch.as_tensor, whose errors are ValueError."""
    try:
        return torch.as_tensor(values, dtype=dtype)
    except RuntimeError as error:
        raise ValueError(str(error)) from None


def _required(state: State) -> _C.State:
    if not isinstance(state, State):
        raise TypeError(f"expected a mnemo.State, found {type(state).__name__}")
    return state._handle


def handle_of(state: Optional[State]) -> Optional[_C.State]:
    """The C++ half of an argument `state`."""
    if state is None:
        return None
    if not isinstance(state, State):
        raise TypeError(f"expected a mnemo.State or None, found {type(state).__name__}")
    return state._handle
