"""Operators of torch's dispatcher: they have gradients, run under torch.compile(fullgraph=True) and have no state.

B batch, H heads, T or Q queries, S or K keys, n slots, d head width. float32 or float64; bfloat16 is computed in
float32. First derivatives; the backward pass runs the forward pass again.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from ._arguments import expect, expect_tensors

__all__ = ["AbcMemory", "abc", "abc_causal", "attention", "grc_read", "grc_update"]

_library: Any = torch.ops.mnemo


class AbcMemory(NamedTuple):
    """Memory of attention with bounded memory: k [B,H,n,d] and v [B,H,n,dv], z [B,H,n]."""

    k: Tensor
    v: Tensor
    z: Tensor


def _check(who: str, **heads: Tensor) -> None:
    """Tensors of four dimensions; the operators check the rest."""
    expect_tensors(f"mnemo.ops.{who}", **heads)
    for name, tensor in heads.items():
        if tensor.dim() != 4:
            raise ValueError(f"mnemo.ops.{who}: expected {name} of four dimensions, found {list(tensor.shape)}")


def _optional(who: str, **masks: Optional[Tensor]) -> None:
    expect_tensors(f"mnemo.ops.{who}", **{name: mask for name, mask in masks.items() if mask is not None})


def _activation(who: str, name: str) -> None:
    if name not in ("exp", "relu", "sigmoid"):
        raise ValueError(f'mnemo.ops.{who}: expected activation "exp", "relu" or "sigmoid", found {name!r}')


def _number(who: str, **number: float) -> float:
    expect(f"mnemo.ops.{who}", (int, float), "a number", **number)
    (value,) = number.values()
    return float(value)


def _scale(who: str, q: Tensor, scale: Optional[float]) -> float:
    return float(q.shape[-1]) ** -0.5 if scale is None else _number(who, scale=scale)


def abc_causal(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s: Tensor,
    memory: Optional[AbcMemory] = None,
    *,
    valid: Optional[Tensor] = None,
    activation: str = "exp",
    eps: float = 1e-6,
    scale: Optional[float] = None,
) -> tuple[Tensor, AbcMemory]:
    """Causal attention with bounded memory (Peng et al. 2022, eq. 4-6 and B.1).

        exp: z_t = logaddexp(z_{t-1}, s_t), K_t = e^{z_{t-1}-z_t} K_{t-1} + e^{s_t-z_t} k_t^T, V_t likewise,
             o_t = V_t^T softmax(K_t q_t scale)
        relu, sigmoid: weights a = relu(s) or sigma(s), divided by their sum + eps

    q, k [B,H,T,d], v [B,H,T,dv], s [B,H,T,n] control logits. memory: after earlier tokens, None at the start.
    valid [B,T] bool: other tokens write nothing. Returns o [B,H,T,dv] and the memory after the last token.

        >>> q, k, v, s = torch.randn(4, 2, 3, 16, 8).unbind()
        >>> o, memory = abc_causal(q, k, v, s)
        >>> o.shape, memory.k.shape, memory.z.shape
        (torch.Size([2, 3, 16, 8]), torch.Size([2, 3, 8, 8]), torch.Size([2, 3, 8]))
    """
    _check("abc_causal", q=q, k=k, v=v, s=s)
    _optional("abc_causal", valid=valid)
    _activation("abc_causal", activation)
    if memory is None:
        slots, start = s.shape[-1], float("-inf") if activation == "exp" else 0.0
        memory = AbcMemory(
            q.new_zeros(*q.shape[:2], slots, k.shape[-1]),
            q.new_zeros(*q.shape[:2], slots, v.shape[-1]),
            q.new_full((*q.shape[:2], slots), start),
        )
    expect("mnemo.ops.abc_causal", (tuple, list), "an AbcMemory", memory=memory)
    memory = AbcMemory(*memory)
    expect_tensors("mnemo.ops.abc_causal", **memory._asdict())
    numbers = _number("abc_causal", eps=eps), _scale("abc_causal", q, scale)
    o, *after = _library.abc_causal(q, k, v, s, *memory, valid, activation, *numbers)
    return o, AbcMemory(*after)


def abc(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s: Tensor,
    *,
    valid: Optional[Tensor] = None,
    activation: str = "exp",
    eps: float = 1e-6,
    scale: Optional[float] = None,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Attention with the memory after all tokens, for every query (encoders, cross-attention).

    q [B,H,T,d], k [B,H,S,d], v [B,H,S,dv], s [B,H,S,n], valid [B,S] bool. Returns o [B,H,T,dv] and the memory (k, v).

        >>> q, k, v, s = torch.randn(4, 2, 3, 16, 8).unbind()
        >>> abc(q, k, v, s)[0].shape
        torch.Size([2, 3, 16, 8])
    """
    _check("abc", q=q, k=k, v=v, s=s)
    _optional("abc", valid=valid)
    _activation("abc", activation)
    numbers = _number("abc", eps=eps), _scale("abc", q, scale)
    o, memory_k, memory_v = _library.abc(q, k, v, s, valid, activation, *numbers)
    return o, (memory_k, memory_v)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    mask: Optional[Tensor] = None,
    valid: Optional[Tensor] = None,
    scale: Optional[float] = None,
) -> Tensor:
    """Softmax attention in tiles, without a [Q,K] buffer.

    q [B,H,Q,d], k [B,H,K,d], v [B,H,K,dv]. causal: query i sees the keys 0 .. i + K - Q. mask [Q,K] bool: true = sees;
    not beside causal. valid [B,K] bool: false = padding. A query that sees no key gets zeros. Returns o [B,H,Q,dv].

        >>> q, k, v = torch.randn(3, 2, 3, 16, 8).unbind()
        >>> attention(q, k, v, causal=True).shape
        torch.Size([2, 3, 16, 8])
    """
    _check("attention", q=q, k=k, v=v)
    _optional("attention", mask=mask, valid=valid)
    expect("mnemo.ops.attention", bool, "a bool", causal=causal)
    o: Tensor = _library.attention(q, k, v, mask, valid, causal, _scale("attention", q, scale))
    return o


def grc_update(
    cache: Tensor,
    rows: Tensor,
    reset: tuple[Tensor, Optional[Tensor]],
    update: tuple[Tensor, Optional[Tensor]],
    candidate: tuple[Tensor, Optional[Tensor]],
    *,
    norm: Optional[tuple[Tensor, Tensor]] = None,
) -> Tensor:
    """One step of the gated recurrent cache (Zhang et al. 2024, eq. 4 and 5).

        r, u = sigma(W [X, C]), N = W [X, r*C], C' = u*N + (1-u)*C

    With norm = (weight, bias) as the authors' code: [C, X] in place of [X, C], and N = LayerNorm(gelu(...)).

    cache C [B,N,C] or [1,N,C], rows X [B,N,C]; reset, update, candidate: weight [C,2C] and bias [C] or None. Returns C'
    [B,N,C].

        >>> gate = (torch.randn(8, 16), None)
        >>> grc_update(torch.zeros(2, 4, 8), torch.randn(2, 4, 8), gate, gate, gate).shape
        torch.Size([2, 4, 8])
    """
    expect_tensors("mnemo.ops.grc_update", cache=cache, rows=rows)
    gates = {"reset": reset, "update": update, "candidate": candidate, "norm": norm}
    for name, pair in gates.items():
        if pair is None and name == "norm":
            continue
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            found = type(pair).__name__
            raise TypeError(f"mnemo.ops.grc_update: expected {name} as (weight, bias or None), found {found}")
        weight, bias = pair
        expect_tensors("mnemo.ops.grc_update", **{f"{name}[0]": weight})
        _optional("grc_update", **{f"{name}[1]": bias})
    of_norm = (None, None) if norm is None else norm
    after: Tensor = _library.grc_update(cache, rows, *reset, *update, *candidate, *of_norm, norm is not None)
    return after


def grc_read(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, mixing: Tensor, *, scale: Optional[float] = None
) -> Tensor:
    """Reads the cache and mixes it with an attention's output (Zhang et al. 2024, eq. 1 and 3).

        m_h = softmax(q_h k_h^T scale) v_h, y_h = sigma(mixing_h) [m_h, 0] + (1 - sigma(mixing_h)) o_h

    q [B,H,T,c] of the rows, k, v [B,H,N,c] of the cache, o [B,T,H*d] with d >= c, mixing [H]. Returns y [B,T,H*d].

        >>> q, k, v = torch.randn(2, 3, 16, 4), torch.randn(2, 3, 6, 4), torch.randn(2, 3, 6, 4)
        >>> grc_read(q, k, v, torch.randn(2, 16, 24), torch.zeros(3)).shape
        torch.Size([2, 16, 24])
    """
    _check("grc_read", q=q, k=k, v=v)
    expect_tensors("mnemo.ops.grc_read", o=o, mixing=mixing)
    y: Tensor = _library.grc_read(q, k, v, o, mixing, _scale("grc_read", q, scale))
    return y
