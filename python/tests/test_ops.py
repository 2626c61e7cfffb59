"""mnemo.ops: gradients, torch.compile, and other implementations of the same formulas."""

import doctest
import pathlib
import re

import pytest
import torch
from torch.autograd import gradcheck
from torch.library import opcheck

import mnemo
from conftest import RUNS
from mnemo import ops


def heads(*shape, grad=True, layout="plain"):
    """Numbers [B,H,T,d] in one of three layouts."""
    b, h, t, d = shape
    if layout == "heads":
        x = torch.randn(b, t, h, d, dtype=torch.float64).transpose(1, 2)
    elif layout == "wide":
        x = torch.randn(b, h, t, 2 * d, dtype=torch.float64)[..., ::2]
    else:
        x = torch.randn(b, h, t, d, dtype=torch.float64)
    return x.detach().requires_grad_(grad)


def memory_after(layout="plain", grad=True):
    """A memory that has read some tokens."""
    args = [heads(2, 2, 3, 4, grad=False) for _ in range(3)] + [heads(2, 2, 3, 5, grad=False)]
    with torch.no_grad():
        memory = ops.abc_causal(*args)[1]
    return [tensor.clone().requires_grad_(grad) for tensor in memory]


def samples(layout="plain", grad=True):
    """(operator, arguments) of every operator and its variants."""
    x = lambda *shape: heads(*shape, grad=grad, layout=layout)  # noqa: E731
    row = lambda *shape: torch.randn(*shape, dtype=torch.float64, requires_grad=grad)  # noqa: E731
    q, k, v, s = x(2, 2, 6, 4), x(2, 2, 6, 4), x(2, 2, 6, 4), x(2, 2, 6, 5)
    valid = torch.tensor([[True] * 6, [False, True, True, True, False, True]])
    library = torch.ops.mnemo
    for activation in ("exp", "relu", "sigmoid"):
        memory = memory_after(grad=grad)
        if activation != "exp":
            memory[2] = memory[2].detach().abs().requires_grad_(grad)
        yield library.abc_causal, (q, k, v, s, *memory, None, activation, 1e-6, 0.5)
        yield library.abc, (q, k, v, s, None, activation, 1e-6, 0.5)
    yield library.abc_causal, (q, k, v, s, *memory_after(grad=grad), valid, "exp", 1e-6, 0.5)
    yield library.abc, (q, k, v, s, valid, "exp", 1e-6, 0.5)
    yield library.attention, (q, k, v, None, None, True, 0.5)
    yield library.attention, (q, x(2, 2, 9, 4), x(2, 2, 9, 3), torch.rand(6, 9) > 0.4, None, False, 0.5)
    yield library.attention, (q, k, v, None, valid, False, 0.5)
    gates = [row(3, 6), row(3), row(3, 6), None, row(3, 6), row(3)]
    yield library.grc_update, (row(2, 4, 3), row(2, 4, 3), *gates, None, None, False)
    yield library.grc_update, (row(1, 4, 3), row(2, 4, 3), *gates, row(3), row(3), True)
    yield library.grc_read, (q, k, v, row(2, 6, 12), row(2), 0.5)


def names():
    return [f"{operator}-{i}" for i, (operator, _) in enumerate(samples())]


NUMBERS = range(len(names()))


@pytest.mark.parametrize("number", NUMBERS, ids=names())
@pytest.mark.parametrize("layout", ["plain", "heads", "wide"])
def test_gradcheck(number, layout):
    operator, arguments = list(samples(layout))[number]
    assert gradcheck(operator, arguments, atol=1e-7, rtol=1e-5)


@pytest.mark.parametrize("number", NUMBERS, ids=names())
def test_opcheck(number):
    operator, arguments = list(samples())[number]
    opcheck(operator.default, arguments)


def step(q, k, v, s, weight):
    """One layer of each operator, with a second segment."""
    o, memory = ops.abc_causal(q, k, v, s)
    o, memory = ops.abc_causal(o, k, v, s, memory)
    a = ops.attention(o, k, v, causal=True)
    full, _ = ops.abc(a, k, v, s)
    cache = ops.grc_update(full[:, 0, :4], full[:, 1, :4], (weight, None), (weight, None), (weight, None))
    read = cache[:, None].expand(-1, 2, -1, -1)
    return ops.grc_read(q, read, read, full.transpose(1, 2).flatten(2), weight[0, :2]).sum() + memory.k.sum()


def test_compiles_to_one_graph_with_any_length():
    compiled = torch.compile(step, fullgraph=True, dynamic=True)
    for tokens in (8, 13, 21):
        inputs = [torch.randn(2, 2, tokens, 4) for _ in range(3)] + [torch.randn(2, 2, tokens, 5), torch.randn(4, 8)]
        found = []
        for function in (step, compiled):
            leaves = [x.clone().requires_grad_(True) for x in inputs]
            loss = function(*leaves)
            found.append([loss, *torch.autograd.grad(loss, leaves)])
        for eager, one_graph in zip(*found):
            torch.testing.assert_close(one_graph, eager, atol=1e-5, rtol=1e-4)


def test_equals_flash_linear_attention():
    """fla/ops/abc/naive.py, whose casts to float32 are made casts to float64."""
    fla = pytest.importorskip("fla.ops.abc.naive") if torch.cuda.is_available() else None
    path = pathlib.Path(torch.__file__).parents[1] / "fla/ops/abc/naive.py"
    if not path.exists():
        pytest.skip("fla-core is not installed")
    del fla
    source = re.sub(r"torch\.float\b", "torch.float64", path.read_text()).replace(".float()", ".double()")
    theirs = {}
    exec(compile(source, str(path), "exec"), theirs)  # noqa: S102
    q, k, v, s = (torch.randn(2, 3, 40, n, dtype=torch.float64) for n in (8, 8, 8, 6))
    o, memory = ops.abc_causal(q, k, v, s)
    expected, state = theirs["naive_recurrent_abc"](q, k, v, s, output_final_state=True)
    torch.testing.assert_close(o, expected, atol=1e-10, rtol=0)
    torch.testing.assert_close(memory.k.transpose(-1, -2), state[0], atol=1e-10, rtol=0)
    torch.testing.assert_close(memory.v, state[1], atol=1e-10, rtol=0)


def test_parts_equal_the_whole():
    q, k, v, s = (torch.randn(2, 3, 40, 8, dtype=torch.float64) for _ in range(4))
    whole, last = ops.abc_causal(q, k, v, s)
    parts, memory = [], None
    for i in range(0, 40, 16):
        o, memory = ops.abc_causal(*(x[:, :, i : i + 16] for x in (q, k, v, s)), memory)
        parts.append(o)
    torch.testing.assert_close(torch.cat(parts, 2), whole, atol=1e-12, rtol=0)
    torch.testing.assert_close(memory, last, atol=1e-12, rtol=0)


def test_attention_equals_torchs():
    q, k, v = (torch.randn(2, 3, 40, 8) for _ in range(3))
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(ops.attention(q, k, v, causal=True), expected, atol=1e-5, rtol=1e-5)


def test_refuses_what_does_not_fit():
    q, k, v, s = (torch.randn(2, 3, 5, 8) for _ in range(4))
    with pytest.raises(ValueError, match=r"expected k \[B,H,T,d\]"):
        ops.abc_causal(q, k[:, :, :4], v, s)
    with pytest.raises(ValueError, match="activation"):
        ops.abc_causal(q, k, v, s, activation="tanh")
    with pytest.raises(TypeError, match="expected all tensors of"):
        ops.abc_causal(q, k.double(), v, s)
    with pytest.raises(TypeError, match="float32, float64 or bfloat16"):
        ops.attention(q.half(), k.half(), v.half())
    with pytest.raises(TypeError, match="masks of bool"):
        ops.attention(q, k, v, mask=torch.ones(5, 5))
    with pytest.raises(ValueError, match="exclude each other"):
        ops.attention(q, k, v, mask=torch.ones(5, 5, dtype=torch.bool), causal=True)
    for place in range(3):
        tensors = [t.to("meta") if i == place else t for i, t in enumerate((q, k, v))]
        with pytest.raises(ValueError, match="expected all tensors on"):
            ops.attention(*tensors)
    with pytest.raises(ValueError, match="expected all tensors on"):
        ops.attention(q, k, v, valid=torch.ones(2, 5, dtype=torch.bool, device="meta"))
    with pytest.raises(ValueError, match="at least one head"):
        ops.grc_read(q[:, :0], k[:, :0], v[:, :0], torch.zeros(2, 5, 0), torch.zeros(0))
    with pytest.raises(ValueError, match="at least one slot"):
        ops.abc(q, k, v, s[..., :0])


def test_second_derivatives_are_refused():
    q, k, v = (torch.randn(1, 2, 3, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    with pytest.raises(NotImplementedError, match="second derivatives"):
        torch.autograd.grad(ops.attention(q, k, v).sum(), q, create_graph=True)
    torch.autograd.grad(ops.attention(q, k, v).sum(), q)


WITH_EXAMPLES = [file.stem for file in pathlib.Path(mnemo.__file__).parent.glob("*.py") if ">>>" in file.read_text()]


@pytest.mark.parametrize("module", sorted(WITH_EXAMPLES))
def test_docstrings(module):
    found = doctest.testmod(getattr(mnemo, module), extraglobs={"torch": torch, "mnemo": mnemo, "RUN": RUNS / "text"})
    assert found.failed == 0 and found.attempted > 0
