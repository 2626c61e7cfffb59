"""Memory in models of transformers."""

import copy
import io
import threading

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
    with pytest.raises(ValueError, match="each number once, found 1 again"):
        mnemo.nn.wrap(gpt2(), layers=[1, 1])
    with pytest.raises(TypeError, match="layers"):
        mnemo.nn.wrap(gpt2(), layers=map(int, ["0"]))
    wrapped = opened()
    tokens = torch.randint(0, 20, (2, 8))
    with pytest.raises(ValueError, match=r"expected states by \['0', '1'\], as WrappedOutput has them, found \[0\]"):
        wrapped(tokens, {0: wrapped(tokens).state["0"]})


def opened(memory=None, make=gpt2):
    wrapped = mnemo.nn.wrap(make().eval(), memory)
    for gate in wrapped.gates.values():
        gate.data.fill_(1.0)
    return wrapped


@torch.no_grad()
def test_a_copy_has_its_own_memory():
    wrapped, tokens = opened(), torch.randint(0, 20, (2, 8))
    expected = wrapped(tokens)[0].logits
    stored = io.BytesIO()
    torch.save(wrapped, stored)
    stored.seek(0)
    for other in (copy.deepcopy(wrapped), torch.load(stored, weights_only=False)):
        for gate in wrapped.gates.values():
            gate.fill_(0.0)
        output, state = other(tokens)
        assert torch.equal(output.logits, expected) and set(state) == {"0", "1"}
        for gate in wrapped.gates.values():
            gate.fill_(1.0)


@torch.no_grad()
def test_threads_do_not_share_states():
    wrapped = opened()
    firsts, second = torch.randint(0, 20, (4, 2, 8)), torch.randint(0, 20, (2, 8))
    states = [wrapped(first)[1] for first in firsts]
    expected = [wrapped(second, state)[0].logits for state in states]
    wrong = []

    def read(number):
        with torch.no_grad():
            for _ in range(20):
                if not torch.equal(wrapped(second, states[number])[0].logits, expected[number]):
                    wrong.append(number)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("memory", [None, {"type": "knn", "memory_len": 32, "top_k": 4}])
@torch.no_grad()
def test_padding_is_not_remembered(memory):
    wrapped = opened(memory, llama)
    tokens, second = torch.randint(0, 20, (2, 8)), torch.randint(0, 20, (2, 8))
    mask = torch.ones(2, 8, dtype=torch.int64)
    mask[:, :3] = 0
    other = tokens.clone()
    other[:, :3] = (other[:, :3] + 1) % 20
    (one, after), (two, after_two) = (wrapped(t, attention_mask=mask) for t in (tokens, other))
    torch.testing.assert_close(one.logits[:, 3:], two.logits[:, 3:], atol=1e-5, rtol=0)
    torch.testing.assert_close(wrapped(second, after)[0].logits, wrapped(second, after_two)[0].logits, atol=1e-5, rtol=0)
    with pytest.raises(ValueError, match="attention_mask"):
        wrapped(tokens, attention_mask=mask[:, :4])


def test_gradient_checkpointing_is_refused():
    wrapped = opened().train()
    wrapped.model.gradient_checkpointing_enable()
    with pytest.raises(ValueError, match="gradient_checkpointing_disable"):
        wrapped(torch.randint(0, 20, (2, 8)))
