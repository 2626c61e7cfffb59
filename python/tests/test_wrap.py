"""Memory in models of transformers."""

import pytest
import torch
from torch import nn

import mnemo

transformers = pytest.importorskip("transformers")


def gpt2():
    config = transformers.GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=20, n_positions=16)
    return transformers.GPT2LMHeadModel(config)


def llama():
    config = transformers.LlamaConfig(
        num_hidden_layers=2, hidden_size=32, intermediate_size=32, num_attention_heads=2, num_key_value_heads=2, vocab_size=20
    )
    return transformers.LlamaForCausalLM(config)


@pytest.mark.parametrize("make", [gpt2, llama])
@pytest.mark.parametrize("memory", [None, {"type": "knn", "memory_len": 32, "top_k": 4}])
def test_a_closed_gate_changes_nothing_and_an_open_one_remembers(make, memory):
    model = make().eval()
    first, second = torch.randint(0, 20, (2, 3, 8))
    with torch.no_grad():
        expected = model(second).logits
    wrapped = mnemo.nn.wrap(model, memory, layers=[1])
    _, state = wrapped(first)
    output, _ = wrapped(second, state)
    torch.testing.assert_close(output.logits, expected, atol=1e-5, rtol=0)
    assert set(state) == {"1"} and isinstance(state["1"], mnemo.State)

    with torch.no_grad():
        wrapped.gates["1"].fill_(1.0)
    remembered, after = wrapped(second, state)[0].logits, wrapped(second)[0].logits
    assert not torch.allclose(remembered, after, atol=1e-6)
    nn.functional.cross_entropy(remembered.flatten(0, 1), first.flatten()).backward()
    assert all(p.grad is not None for p in wrapped.memories.parameters()) and wrapped.gates["1"].grad.abs() > 0


def test_refuses_what_it_does_not_know():
    with pytest.raises(TypeError, match="GPT-2"):
        mnemo.nn.wrap(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="layers"):
        mnemo.nn.wrap(gpt2(), layers=[5])
