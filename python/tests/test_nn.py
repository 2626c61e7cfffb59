"""Modules and states: golden files, shared parameters, copies, checkpointing, autocast, DDP."""

import copy
import json
import os
import pickle
import socket

import pytest
import torch
from safetensors import safe_open
from torch import nn
from torch.utils import _pytree
from torch.utils.checkpoint import checkpoint

import mnemo
from conftest import GOLDEN, RUNS


class Golden:
    """A golden file: its config, and its tensors."""

    def __init__(self, name):
        with safe_open(GOLDEN / f"{name}.safetensors", "pt") as file:
            self.metadata = file.metadata()
            self.tensors = {name: file.get_tensor(name) for name in file.keys()}
        self.config = json.loads(self.metadata["config"])
        self.tolerance = float(self.metadata["tolerance"])
        self.steps = 1 + max(int(name.split(".")[1]) for name in self.tensors if name.startswith("step."))

    def close(self, name, found):
        torch.testing.assert_close(found, self.tensors[name], atol=self.tolerance, rtol=0, msg=lambda m: f"{name}: {m}")

    def fill(self, module, prefix=""):
        module.double()
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                parameter.copy_(self.tensors["param." + name.removeprefix(prefix)])
        module.train(self.metadata["training"] == "true")
        return module


@pytest.mark.parametrize(
    "name", ["abc/exp_whole", "abc/exp_segments", "abc/exp_large_logits", "knn/softmax_causal", "knn/softmax_causal_normalize"]
)
def test_attention_equals_golden_files(name):
    golden = Golden(name)
    options = dict(golden.config["attention"])
    scale = options.pop("scale", "sqrt_d")
    assert scale == "sqrt_d"
    module = mnemo.nn.Attention(
        options.pop("type"),
        options.pop("dim"),
        num_heads=options.pop("num_heads"),
        causal=options.pop("causal", True),
        memory=golden.config.get("memory", []),
        **options,
    )
    golden.fill(module, "attn.")
    state, loss, inputs = None, 0, []
    for k in range(golden.steps):
        inputs.append(golden.tensors[f"step.{k}.input.x"].clone().requires_grad_(True))
        y, state = module(inputs[-1], state)
        golden.close(f"step.{k}.output.x", y)
        for path, tensor in state.items():
            if f"step.{k}.state.{path}" in golden.tensors:
                golden.close(f"step.{k}.state.{path}", tensor)
        loss = loss + (golden.tensors[f"step.{k}.cotangent.x"] * y).sum()
    loss.backward()
    for path, parameter in module.named_parameters():
        golden.close("grad.param." + path.removeprefix("attn."), parameter.grad)
    for k, x in enumerate(inputs):
        golden.close(f"grad.step.{k}.input.x", x.grad)


def pass_of(golden, module):
    """The loss of a golden file's steps."""
    state, loss = None, 0
    for k in range(golden.steps):
        if f"step.{k}.input.x" in golden.tensors:
            hidden, state = module(golden.tensors[f"step.{k}.input.x"], state)
        else:
            step = module(golden.tensors[f"step.{k}.input.tokens"], state)
            hidden, state = step.hidden, step.state
        if f"step.{k}.output.hidden" in golden.tensors:
            golden.close(f"step.{k}.output.hidden", hidden)
        if f"step.{k}.cotangent.hidden" in golden.tensors:
            loss = loss + (golden.tensors[f"step.{k}.cotangent.hidden"] * hidden).sum()
        if f"step.{k}.cotangent.nll" in golden.tensors:
            nll = module.nll(hidden, golden.tensors[f"step.{k}.input.targets"])
            loss = loss + (golden.tensors[f"step.{k}.cotangent.nll"] * nll).sum()
    return loss


def test_a_layer_stack_equals_its_golden_file():
    golden = Golden("grc/sequence_bptt_full")
    backbone = dict(golden.config["backbone"])
    # The defaults that GRC had when the file was made.
    memory = [{"attend": "sample", "eval_read": "updated", "gate_bias": True, **one} for one in golden.config["memory"]]
    module = golden.fill(mnemo.nn.LayerStack(backbone.pop("dim"), memory=memory, **backbone))
    pass_of(golden, module).backward()
    for path, parameter in module.named_parameters():
        golden.close("grad.param." + path, parameter.grad)


@pytest.fixture
def stack():
    return mnemo.nn.LayerStack(16, num_layers=2, num_heads=2, ffn_dim=16, memory=[{"type": "segment_cache", "mem_len": 4}])


def test_ten_steps_with_torchs_adam_equal_the_golden_file():
    """The parameters that torch.optim changes are those that C++ computes with."""
    golden = Golden("recurrent/adam_xl")
    options = json.loads(golden.metadata["optim"])
    config = dict(golden.config)
    config.setdefault("segment_size", golden.tensors["step.0.input.tokens"].shape[1])
    module = golden.fill(mnemo._module.ModelModule(mnemo._C.build_stack(config, 0, {})))
    optimizer = torch.optim.Adam(module.parameters(), lr=options["lr"], betas=options["betas"], eps=options["eps"])
    losses, norms = [], []
    for number in range(options["steps"]):
        optimizer.zero_grad()
        loss = pass_of(golden, module) if number == 0 else pass_without_outputs(golden, module)
        loss.backward()
        losses.append(loss.detach())
        norms.append(nn.utils.clip_grad_norm_(module.parameters(), options["clip_norm"]))
        optimizer.step()
    golden.close("optim.loss", torch.stack(losses))
    torch.testing.assert_close(torch.stack(norms), golden.tensors["optim.grad_norm"], atol=1e-6, rtol=1e-6)
    for path, parameter in module.named_parameters():
        torch.testing.assert_close(parameter.detach(), golden.tensors["optim.after.param." + path], atol=1e-6, rtol=0)


def pass_without_outputs(golden, module):
    kept = golden.tensors
    golden.tensors = {name: tensor for name, tensor in kept.items() if ".output." not in name}
    try:
        return pass_of(golden, module)
    finally:
        golden.tensors = kept


def rows(batch=2, tokens=5, dim=16):
    return torch.randn(batch, tokens, dim)


def test_whatever_replaces_a_parameter_reaches_cpp(stack):
    x = rows()
    before = stack(x)[0]
    other = mnemo.nn.LayerStack(16, num_layers=2, num_heads=2, ffn_dim=16, memory=[{"type": "segment_cache", "mem_len": 4}])
    expected = other(x)[0]
    assert not torch.equal(before, expected)
    weights = {name: tensor.clone() for name, tensor in other.state_dict().items()}

    copied = copy.deepcopy(stack)
    copied.load_state_dict(weights)
    assert torch.equal(copied(x)[0], expected)

    assigned = copy.deepcopy(stack)
    assigned.load_state_dict(weights, assign=True)
    assert torch.equal(assigned(x)[0], expected)
    assigned(x)[0].sum().backward()
    assert all(parameter.grad is not None for parameter in assigned.parameters())

    assert torch.equal(torch.func.functional_call(stack, weights, (x,))[0], expected)
    assert torch.equal(stack(x)[0], before)

    emptied = copy.deepcopy(stack).to_empty(device="cpu")
    emptied.load_state_dict(weights)
    assert torch.equal(emptied(x)[0], expected)


def test_parametrizations_reach_cpp(stack):
    class Half(nn.Module):
        def forward(self, weight):
            return weight / 2

    x = rows()
    expected = copy.deepcopy(stack)
    name = "backbone.layers.0.attn.q"
    with torch.no_grad():
        expected.get_submodule(name).weight.div_(2)
    nn.utils.parametrize.register_parametrization(stack.get_submodule(name), "weight", Half())
    torch.testing.assert_close(stack(x)[0], expected(x)[0])
    stack(x)[0].sum().backward()
    assert stack.get_submodule(name).parametrizations.weight.original.grad.abs().sum() > 0


def test_copies_and_pickles_are_independent(stack):
    x = rows()
    y = stack(x)[0]
    for other in (copy.deepcopy(stack), pickle.loads(pickle.dumps(stack))):
        assert torch.equal(other(x)[0], y)
        with torch.no_grad():
            next(other.parameters()).zero_()
        assert not torch.equal(other(x)[0], y) and torch.equal(stack(x)[0], y)


def test_a_cache_of_the_model_is_a_buffer():
    make = lambda: mnemo.nn.LayerStack(  # noqa: E731
        16, num_layers=1, num_heads=2, ffn_dim=16, memory=[{"type": "grc", "lifetime": "model", "cache_len": 3}], seed=1
    )
    stack, x = make(), rows()
    fresh = stack.eval()(x)[0]
    stack.train()
    stack.commit(stack(x)[1])
    after = stack.eval()(x)[0]
    assert not torch.equal(after, fresh)
    other = make().eval()
    assert torch.equal(other(x)[0], fresh)
    other.load_state_dict(stack.state_dict())
    assert torch.equal(other(x)[0], after)
    assert torch.equal(copy.deepcopy(stack)(x)[0], after)
    assert torch.equal(pickle.loads(pickle.dumps(stack))(x)[0], after)


def test_states_are_values(stack, tmp_path):
    stack.eval()
    _, state = stack(rows(3))
    assert state.batch == 3 and state.num_bytes() > 0 and set(state.dims) == set(state)
    x = rows(3)
    whole = stack(x, state)[0]
    for rows_of in ([2, 0], [1]):
        torch.testing.assert_close(stack(x[rows_of], state.select_batch(rows_of))[0], whole[rows_of], atol=1e-6, rtol=0)
    joined = mnemo.State.concat([state.select_batch([0]), state.select_batch([1, 2])])
    assert joined == state != state.select_batch([0, 0, 0])
    assert state.repeat(2).batch == 6 and state.repeat(2).select_batch([0, 2, 4]) == state
    fresh = stack.initial_state(3)
    reset = state.reset_rows([True, False, False], fresh)
    torch.testing.assert_close(stack(x, reset)[0][1:], whole[1:], atol=1e-6, rtol=0)
    torch.testing.assert_close(stack(x, reset)[0][:1], stack(x)[0][:1], atol=1e-6, rtol=0)
    state.save(tmp_path / "state.safetensors")
    for same in (mnemo.State.load(tmp_path / "state.safetensors"), pickle.loads(pickle.dumps(state)), state.clone()):
        assert same == state and torch.equal(stack(x, same)[0], whole)
    doubled = _pytree.tree_map(lambda tensor: tensor * 2 if tensor.is_floating_point() else tensor, state)
    assert isinstance(doubled, mnemo.State) and not torch.equal(stack(x, doubled)[0], whole)
    assert not any(tensor.requires_grad for tensor in state.detach().values())
    with pytest.raises(mnemo.ShapeError, match="as many as the input's"):
        stack(rows(2), state)
    with pytest.raises(ValueError, match="another model"):
        mnemo.nn.GRC(16)(x, state)


def test_gradients_flow_through_states():
    module = mnemo.nn.GRC(16, num_heads=2, cache_len=4, bptt_depth="full").double()
    x = [rows().double().requires_grad_(True) for _ in range(3)]
    state = None
    for part in x:
        y, state = module(part, state)
    y.sum().backward()
    assert all(part.grad.abs().sum() > 0 for part in x)


def test_checkpoint_gives_the_same_gradients():
    module = mnemo.nn.Attention("abc", 16, num_heads=2, num_slots=3)
    x = rows().requires_grad_(True)
    plain = torch.autograd.grad(module(x)[0].sum(), [x, *module.parameters()])
    kept = torch.autograd.grad(checkpoint(lambda a: module(a)[0], x, use_reentrant=False).sum(), [x, *module.parameters()])
    for a, b in zip(plain, kept):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("attention", ["softmax", "abc", "linear"])
def test_bf16_autocast(attention):
    module = mnemo.nn.Attention(attention, 16, num_heads=2)
    x = rows()
    exact = module(x)[0]
    with torch.autocast("cpu", torch.bfloat16):
        y, _ = module(x)
    y.float().sum().backward()
    torch.testing.assert_close(y.float(), exact, atol=0.05, rtol=0.1)


def test_model_is_a_module(model):
    again = mnemo.load(RUNS / "text")
    tokens = torch.tensor([again.tokenizer.encode("the house that jack built")])
    step = again(tokens[:, :-1])
    assert [one is other for one, other in zip(step, (step.logits, step.hidden, step.state))] == [True] * 3
    with torch.no_grad():
        unused = again(tokens)
    assert step.logits.requires_grad and not unused.logits.requires_grad
    scores = torch.log_softmax(step.logits, -1).gather(-1, tokens[:, 1:, None]).squeeze(-1)
    torch.testing.assert_close(again.nll(step.hidden, tokens[:, 1:]), -scores, atol=1e-5, rtol=1e-5)
    again.train()
    before = again.generate("the ", max_tokens=20, temperature=0)
    optimizer = torch.optim.AdamW(again.parameters(), lr=0.05)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = again.loss(again(tokens[:, :-1]), tokens[:, 1:])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    assert again.generate("the ", max_tokens=20, temperature=0) != before


def ddp_worker(rank, port, results):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    module = mnemo.nn.Attention("abc", 16, num_heads=2, num_slots=3, seed=1)
    shared = nn.parallel.DistributedDataParallel(module)
    torch.manual_seed(0)
    x = rows(4)[2 * rank : 2 * rank + 2]
    y, state = shared(x)
    shared(x, state)[0].pow(2).mean().backward()
    results[rank] = [parameter.grad for parameter in module.parameters()]
    torch.distributed.destroy_process_group()


def test_ddp_equals_one_process():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    results = context.Manager().dict()
    torch.multiprocessing.spawn(ddp_worker, (port, results), nprocs=2)
    module = mnemo.nn.Attention("abc", 16, num_heads=2, num_slots=3, seed=1)
    torch.manual_seed(0)
    x = rows(4)
    y, state = module(x)
    module(x, state)[0].pow(2).mean().backward()
    for parameter, *grads in zip(module.parameters(), results[0], results[1]):
        for grad in grads:
            torch.testing.assert_close(grad, parameter.grad, atol=1e-6, rtol=0)
