"""Memory in a model of transformers."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor, nn

from ._arguments import check, hints_of
from ._state import State


class WrappedOutput(NamedTuple):
    """The output of the wrapped model, and the states of its memories for the next segment, by layer."""

    output: Any
    state: dict[str, State]


class _Call(threading.local):
    """The segment that this thread reads: its states before and after, and its tokens that are no padding."""

    given: Mapping[str, State] = {}
    valid: Optional[Tensor] = None

    def __init__(self) -> None:
        self.after: dict[str, State] = {}


_call = _Call()


class _AddMemory:
    """The hook of a layer's attention. An object, so that a copy of a model has hooks with its own memory and gate."""

    def __init__(self, name: str, memories: nn.ModuleDict, gates: nn.ParameterDict):
        self.name, self.memories, self.gates = name, memories, gates

    def __call__(self, module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> Any:
        rows: Tensor = arguments[0] if arguments else keywords["hidden_states"]
        read, _call.after[self.name] = self.memories[self.name](rows, _call.given.get(self.name), _call.valid)
        gated = torch.tanh(self.gates[self.name]) * read
        return (output[0] + gated, *output[1:]) if isinstance(output, tuple) else output + gated


class Wrapped(nn.Module):
    """A model of transformers whose layers also read a memory: (segment, state) -> (output, state).

    In each chosen layer, y = attention(x) becomes y + tanh(gate) * memory(x, state). The gate begins at 0, so at first
    the model is unchanged.
    """

    def __init__(self, model: nn.Module, memory: Mapping[str, Any], layers: Optional[Sequence[int]], attention: str):
        from .nn import Attention

        super().__init__()
        blocks = _blocks(model)
        chosen = range(len(blocks)) if layers is None else layers
        config: Any = model.config
        self.model = model
        self.memories = nn.ModuleDict()
        self.gates = nn.ParameterDict()
        weight = next(model.parameters())
        for number in chosen:
            if not 0 <= number < len(blocks):
                raise ValueError(f"wrap: layers: expected 0 to {len(blocks) - 1}, found {number}")
            name = str(number)
            if name in self.memories:
                raise ValueError(f"wrap: layers: expected each number once, found {number} again")
            self.memories[name] = Attention(
                attention, config.hidden_size, num_heads=config.num_attention_heads, memory=[dict(memory)]
            ).to(weight.dtype)
            self.gates[name] = nn.Parameter(torch.zeros((), dtype=weight.dtype))
            hook = _AddMemory(name, self.memories, self.gates)
            _attention_of(blocks[number]).register_forward_hook(hook, with_kwargs=True)

    def forward(
        self, input_ids: Tensor, state: Optional[Mapping[str, State]] = None, **keywords: Any
    ) -> WrappedOutput:
        """input_ids [B,T]: the next segment. state: of the segment before, or None. Keywords go to the model; its own
        cache of keys is off, as the segment is whole. attention_mask [B,T]: memories do not keep padding either.
        Raises ValueError with gradient checkpointing, which would run a layer again without its state."""
        if self.training and getattr(self.model, "is_gradient_checkpointing", False):
            raise ValueError("wrap: gradient checkpointing is not supported; turn it off (gradient_checkpointing_disable)")
        mask = keywords.get("attention_mask")
        if mask is not None and (not isinstance(mask, Tensor) or mask.shape != input_ids.shape):
            raise ValueError(f"wrap: expected attention_mask {list(input_ids.shape)}, 0 for padding")
        if unknown := [key for key in state or {} if key not in self.memories]:
            raise ValueError(f"wrap: expected states by {list(self.memories)}, as WrappedOutput has them, found {unknown}")
        before = _call.given, _call.valid, _call.after
        _call.given, _call.valid, _call.after = state or {}, None if mask is None else mask.bool(), {}
        try:
            output = self.model(input_ids, use_cache=False, **keywords)
            return WrappedOutput(output, _call.after)
        finally:
            _call.given, _call.valid, _call.after = before


def _blocks(model: nn.Module) -> nn.ModuleList:
    """The layers of a model with GPT-2's or Llama's names."""
    for path in ("transformer.h", "model.layers"):
        found: Any = model
        for part in path.split("."):
            found = getattr(found, part, None)
        if isinstance(found, nn.ModuleList):
            return found
    raise TypeError(
        f"wrap: expected a causal model of transformers with the layers of GPT-2 (transformer.h) or Llama "
        f"(model.layers), found {type(model).__name__}"
    )


def _attention_of(block: nn.Module) -> nn.Module:
    for name in ("attn", "self_attn"):
        found = getattr(block, name, None)
        if isinstance(found, nn.Module):
            return found
    raise TypeError(f"wrap: found no attention (attn, self_attn) in a layer {type(block).__name__}")


def wrap(
    model: nn.Module,
    memory: Mapping[str, Any] | None = None,
    layers: Optional[Sequence[int]] = None,
    attention: str = "softmax",
) -> Wrapped:
    """Memory for your own GPT-2 or Llama of transformers.

    memory: as one of `memory` of a recipe; the default is {"type": "grc", "lifetime": "sequence"}. layers: numbers of
    the layers that read it; None: all. attention: of the memory's own branch. Freeze the model's parameters to train
    memory and gates alone.

        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> gpt2 = GPT2LMHeadModel(GPT2Config(n_embd=32, n_head=2, n_layer=2, n_positions=16))
        >>> model = mnemo.nn.wrap(gpt2, memory={"type": "knn", "memory_len": 512}, layers=[1])
        >>> output, state = model(torch.zeros(1, 16, dtype=torch.int64))
        >>> output, state = model(torch.zeros(1, 16, dtype=torch.int64), state)
        >>> output.logits.shape, list(state)
        (torch.Size([1, 16, 50257]), ['1'])
    """
    check("wrap", hints_of(wrap), memory=memory, layers=layers, attention=attention)
    return Wrapped(model, {"type": "grc", "lifetime": "sequence"} if memory is None else memory, layers, attention)
