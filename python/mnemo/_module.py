"""Modules whose parameters are the tensors of a C++ model."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

import torch
from torch import Tensor, nn

from . import _C
from ._arguments import check, expect, expect_tensors
from ._state import State, handle_of


@dataclass(frozen=True)
class Step:
    """The result of a model for a segment: `logits, hidden, state, auxiliary = model(tokens)`.

        >>> tokens = torch.tensor([[1, 2, 3]])
        >>> step = mnemo.load(RUN)(tokens)
        >>> tuple(step.logits.shape[:2]), step.state.batch
        ((1, 3), 1)
    """

    hidden: Tensor
    """[B,T,D]"""
    state: State
    """For the next segment."""
    auxiliary: dict[str, tuple[Tensor, float]]
    """In training: further losses of the memories, [B] or [B,T] each, and the weight of each."""
    _handle: Any = field(repr=False, compare=False)
    _with_grad: bool = field(repr=False, compare=False)

    @functools.cached_property
    def logits(self) -> Tensor:
        """[B,T,V], computed when first asked for; `hidden` of a layer_stack, which has no head."""
        if not self._handle.has_head():
            return self.hidden
        with torch.set_grad_enabled(self._with_grad):
            found: Tensor = self._handle.logits(self.hidden)
            return found

    def __iter__(self) -> Iterator[Any]:
        return iter((self.logits, self.hidden, self.state, self.auxiliary))

    def __repr__(self) -> str:
        return f"Step(hidden={list(self.hidden.shape)}, state={self.state}, auxiliary={list(self.auxiliary)})"


def _version(tensor: Tensor) -> int:
    """Tensors of torch.inference_mode() count no changes."""
    return 0 if tensor.is_inference() else tensor._version


class _Scope(nn.Module):
    """Holds the parameters below a prefix of their names."""


class Module(nn.Module):
    """A function (input, state) -> (output, state) in C++, with parameters that both halves share.

    Each Parameter is the very tensor that C++ computes with. What puts another in its place (`load_state_dict` with
    assign=True, `to_empty`, parametrizations, `functional_call`) is seen at the next call, and the C++ half is built
    again around the new tensors.
    """

    _handle: Any
    _slots: list[tuple[dict[str, Any], str, Any]]
    _versions: list[tuple[int, int]]

    def __init__(self, handle: Any) -> None:
        super().__init__()
        self._names: list[str] = []
        self._committed: list[tuple[str, str]] = []  # path of a field of the model's own, name of its buffer
        self._adopt(handle)
        self._add_buffers(handle)
        self._bind_to(handle)

    def _rebuilt(self, handle: Any, given: Mapping[str, Tensor]) -> Any:
        """The C++ half around the given tensors; `handle` is the old one, or None in a copy."""
        raise NotImplementedError

    def _scope(self, name: str) -> tuple[nn.Module, str]:
        *path, last = name.split(".")
        owner: nn.Module = self
        for part in path:
            found = owner._modules.get(part)
            if found is None:
                owner._modules[part] = found = _Scope()
            owner = found
        return owner, last

    def _adopt(self, handle: Any) -> None:
        for name, tensor in handle.parameters():
            tensor.__class__ = nn.Parameter  # the same TensorImpl
            owner, last = self._scope(name)
            owner.register_parameter(last, tensor)
            self._names.append(name)

    def _add_buffers(self, handle: Any) -> None:
        """Fields of the state that belong to the model, such as a GRC cache, are buffers: saved, moved and copied."""
        if not hasattr(handle, "commit"):
            return
        for path, dims, tensor in handle.initial_state(1).fields():
            if "B" in dims.split():
                continue
            name = f"state.{path}"
            owner, last = self._scope(name)
            owner.register_buffer(last, tensor.clone())
            self._committed.append((path, name))

    def _bind_to(self, handle: Any) -> None:
        """Notes what C++ is bound to: every entry on the way to a parameter."""
        slots: list[tuple[dict[str, Any], str, Any]] = []
        seen = set()
        for name in self._names:
            owner: nn.Module = self
            *path, last = name.split(".")
            for part in path:
                child = owner._modules[part]
                if (id(owner), part) not in seen:
                    seen.add((id(owner), part))
                    slots.append((owner._modules, part, child))
                assert child is not None
                owner = child
            slots.append((owner._parameters, last, owner._parameters.get(last)))
        object.__setattr__(self, "_slots", slots)
        object.__setattr__(self, "_versions", [])
        object.__setattr__(self, "_handle", handle)

    def _bound(self) -> Any:
        """The C++ half, bound to the parameters as they are now."""
        for entries, name, value in self._slots:
            if value is None or entries.get(name) is not value:
                given = {name: self.get_parameter_value(name) for name in self._names}
                self._bind_to(self._rebuilt(self._handle, given))
                break
        if self._committed:
            self._commit_buffers()
        return self._handle

    def get_parameter_value(self, name: str) -> Tensor:
        """The tensor that stands in the place of a parameter, computed by a parametrization or not."""
        owner, last = self._scope(name)
        value = getattr(owner, last)
        if not isinstance(value, Tensor):
            raise TypeError(f"expected a tensor as the parameter '{name}', found {type(value).__name__}")
        return value

    def _buffers_now(self) -> list[tuple[str, Tensor]]:
        return [(path, self.get_parameter_value(name)) for path, name in self._committed]

    def _commit_buffers(self) -> None:
        """Gives C++ the buffers, if something else than commit() has written to them."""
        buffers = self._buffers_now()
        versions = [(id(tensor), _version(tensor)) for _, tensor in buffers]
        if versions == self._versions:
            return
        initial = State._of(self._handle.initial_state(1))
        tensors = {**initial, **{path: tensor.detach().to(initial[path].dtype) for path, tensor in buffers}}
        self._handle.commit(State(tensors, initial.dims)._handle)
        object.__setattr__(self, "_versions", versions)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        for name in ("_handle", "_slots", "_versions"):
            state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        object.__setattr__(self, "_handle", None)
        object.__setattr__(self, "_slots", [({}, "", None)])  # bound at the first call
        object.__setattr__(self, "_versions", [])

    def initial_state(self, batch: int) -> State:
        """The state before the first segment of `batch` sequences."""
        check("initial_state", {"batch": int}, batch=batch)
        return State._of(self._bound().initial_state(batch))


class ModelModule(Module):
    """A whole model, or a stack of layers: Model and nn.LayerStack."""

    def _bound(self) -> _C.Model:
        handle: _C.Model = super()._bound()
        return handle

    def forward(
        self,
        input: Tensor,
        state: Optional[State] = None,
        *,
        valid: Optional[Tensor] = None,
        token_types: Optional[Tensor] = None,
        source: Optional[Tensor] = None,
        source_valid: Optional[Tensor] = None,
        starts: bool = True,
        ends: bool = True,
    ) -> Step:
        """One segment: (input, state) -> (logits, hidden, state, auxiliary losses).

        input: tokens [B,T] of int64 (of a translation model the target's); pixels [B,C,H,W] of a model of images; rows
        [B,T,D] of a layer stack. state: after the segments before, or None. valid [B,T] bool: false for padding.
        token_types [B,T] int64: of an encoder that has them (BERT). source [B,S] int64, source_valid [B,S]: of a
        translation model. starts, ends: whether the segment begins and ends in this call. Raises mnemo.ShapeError,
        mnemo.InputError, or TypeError for a tensor of another dtype.
        """
        expect_tensors("forward", input=input)
        expect("forward", bool, "a bool", starts=starts, ends=ends)
        given = {"valid": valid, "token_types": token_types, "source": source, "source_valid": source_valid}
        expect_tensors("forward", **{name: tensor for name, tensor in given.items() if tensor is not None})
        handle = self._bound()
        hidden, after, auxiliary = handle.forward(
            input, handle_of(state), valid, token_types, source, source_valid, self.training, starts, ends
        )
        return Step(hidden, State._of(after), auxiliary, handle, torch.is_grad_enabled())

    def nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """-log p(target) [B,T] for hidden [B,T,D] and targets [B,T]; 0 where the target is mnemo.IGNORE."""
        expect_tensors("nll", hidden=hidden, targets=targets)
        return self._bound().nll(hidden, targets)

    def loss(self, step: Step, targets: Tensor) -> Tensor:
        """The mean of nll() over the targets that count, and the weighted means of the auxiliary losses."""
        if not isinstance(step, Step):
            raise TypeError(f"loss: expected what the model returned, a mnemo.Step, found {type(step).__name__}")
        nll = self.nll(step.hidden, targets)
        total = nll.sum() / (targets != _C.IGNORE).sum().clamp(min=1)
        for values, weight in step.auxiliary.values():
            total = total + weight * values.mean()
        return total

    def commit(self, state: State) -> None:
        """Keeps the fields of a state that belong to the model, such as a GRC cache of lifetime "model": after a
        training step. They are buffers of the module."""
        handle, given = self._bound(), handle_of(state)
        if given is None:
            raise TypeError("commit: expected a mnemo.State, found None")
        handle.commit(given)
        tensors = dict(state)
        with torch.no_grad():
            for path, buffer in self._buffers_now():
                buffer.copy_(tensors[path])
        versions = [(id(tensor), _version(tensor)) for _, tensor in self._buffers_now()]
        object.__setattr__(self, "_versions", versions)
