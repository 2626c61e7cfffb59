"""Memories as modules of your own models: `y, state = module(x, state)`.

All memory is in the state, and gradients flow through it from segment to segment, as in Mnemo's training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

import torch
from torch import Tensor

from . import _C
from ._arguments import check, expect_tensors, hints_of, memories
from ._module import Module, ModelModule
from ._state import State, handle_of
from ._wrap import Wrapped, wrap

__all__ = ["GRC", "KNN", "Attention", "LayerStack", "Wrapped", "wrap"]


def _seed(seed: Optional[int]) -> int:
    """The seed of the initial weights: the given one, or the next number of torch's generator."""
    if seed is None:
        return int(torch.randint(0, 2**31 - 1, ()).item())
    if not 0 <= seed < 1 << 63:
        raise ValueError(f"seed: expected 0 to 2^63 - 1, found {seed}")
    return seed


class Attention(Module):
    """One attention with its projections and the memories around it: x [B,T,D], state -> y [B,T,D], state.

    attention: a name ("softmax", "relative", "abc", "linear", ...) whose options follow as keywords, as in
    `backbone.attention` of a recipe. memory: memories around it, as `memory` of a recipe: [{"type": "grc", ...}].

        >>> layer = mnemo.nn.Attention("abc", 64, num_heads=4, num_slots=8)
        >>> x = torch.randn(2, 16, 64)
        >>> y, state = layer(x)            # the first segment
        >>> y, state = layer(x, state)     # the next
        >>> y.shape, state.batch
        (torch.Size([2, 16, 64]), 2)
    """

    def __init__(
        self,
        attention: str = "softmax",
        dim: int = 96,
        *,
        num_heads: int = 4,
        causal: bool = True,
        memory: Sequence[Mapping[str, Any]] = (),
        seed: Optional[int] = None,
        **options: Any,
    ) -> None:
        given = {"attention": attention, "dim": dim, "num_heads": num_heads, "causal": causal, "seed": seed}
        check("Attention", hints_of(Attention.__init__), **given)
        table = {"type": attention, **options}
        arguments = (table, memories("Attention", memory), dim, num_heads, causal)
        seed = _seed(seed)
        super().__init__(_C.Attention(*arguments, seed, {}))
        self._arguments = arguments

    def _rebuilt(self, handle: Any, given: Mapping[str, Tensor]) -> Any:
        return _C.Attention(*self._arguments, 0, dict(given))

    def forward(
        self, x: Tensor, state: Optional[State] = None, valid: Optional[Tensor] = None
    ) -> tuple[Tensor, State]:
        """A whole segment x [B,T,D]. state: after the segments before, or None. valid [B,T] bool: false for padding."""
        expect_tensors("forward", x=x, **({} if valid is None else {"valid": valid}))
        y, after = self._bound().forward(x, handle_of(state), valid, self.training)
        return y, State._of(after)

    def extra_repr(self) -> str:
        table, memory, dim, num_heads, causal = self._arguments
        return f"{table}, {dim}, num_heads={num_heads}, causal={causal}, memory={memory}"


class GRC(Attention):
    """An attention with a gated recurrent cache around it (Zhang et al. 2024); keywords are options of `grc`.

        >>> y, state = mnemo.nn.GRC(64, cache_len=32)(torch.randn(2, 16, 64))
        >>> {name: tuple(tensor.shape) for name, tensor in state.items()}
        {'grc.cache': (2, 32, 32)}
    """

    def __init__(
        self,
        dim: int = 96,
        *,
        num_heads: int = 4,
        attention: str = "softmax",
        causal: bool = True,
        seed: Optional[int] = None,
        **options: Any,
    ) -> None:
        memory = {"type": "grc", "lifetime": "sequence", **options}
        super().__init__(attention, dim, num_heads=num_heads, causal=causal, memory=[memory], seed=seed)


class KNN(Attention):
    """An attention whose queries also look up keys and values of the past (Wu et al. 2022); keywords are options of
    `knn`.

        >>> y, state = mnemo.nn.KNN(64, memory_len=1024)(torch.randn(2, 16, 64))
        >>> y.shape
        torch.Size([2, 16, 64])
    """

    def __init__(
        self,
        dim: int = 96,
        *,
        num_heads: int = 4,
        attention: str = "softmax",
        seed: Optional[int] = None,
        **options: Any,
    ) -> None:
        super().__init__(attention, dim, num_heads=num_heads, memory=[{"type": "knn", **options}], seed=seed)


class LayerStack(ModelModule):
    """Whole layers with any memories, also those that stand beside attention: rows [B,T,D] to rows.

    memory: as `memory` of a recipe: [{"type": "segment_cache", "mem_len": 64}]. Keywords are options of the backbone.
    Returns (y, state).

        >>> stack = mnemo.nn.LayerStack(64, memory=[{"type": "segment_cache", "mem_len": 32}])
        >>> y, state = stack(torch.randn(2, 16, 64))
        >>> state.dims["segment_cache.layers.0"], state["segment_cache.layers.0"].shape
        ('B M D', torch.Size([2, 16, 64]))
    """

    def __init__(
        self,
        dim: int = 96,
        *,
        num_layers: int = 2,
        num_heads: int = 4,
        memory: Sequence[Mapping[str, Any]] = (),
        attention: str | Mapping[str, Any] = "softmax",
        seed: Optional[int] = None,
        **backbone: Any,
    ) -> None:
        given = {"dim": dim, "num_layers": num_layers, "num_heads": num_heads, "attention": attention}
        check("LayerStack", hints_of(LayerStack.__init__), seed=seed, **given)
        layers = {**given, **backbone}
        options = {"kind": "layer_stack", "backbone": layers, "memory": memories("LayerStack", memory)}
        super().__init__(_C.build_stack(options, _seed(seed), {}))
        self._options = options

    def _rebuilt(self, handle: Any, given: Mapping[str, Tensor]) -> Any:
        return _C.build_stack(self._options, 0, dict(given)) if handle is None else handle.rebuilt(dict(given))

    def forward(  # type: ignore[override]
        self, x: Tensor, state: Optional[State] = None, valid: Optional[Tensor] = None
    ) -> tuple[Tensor, State]:
        """A whole segment x [B,T,D]. state: after the segments before, or None. valid [B,T] bool: false for padding."""
        step = super().forward(x, state, valid=valid)
        return step.hidden, step.state

    def extra_repr(self) -> str:
        return str(self._options)
