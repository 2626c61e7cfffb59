"""The figures of scripts/bench-python.

  bench.py COUNTERPART [PART...]
"""

import gc
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import torch

import mnemo

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUNS = ROOT / "tests/data/earlier_runs"
ROUNDS = 31
MODEL = """
name = "bench"
[data]
train = "text.txt"
unit = "characters"
[model]
segment_size = 128
memory = [{ type = "segment_cache", mem_len = 128 }]
[model.backbone]
num_layers = 4
dim = 256
num_heads = 4
ffn_dim = 1024
[train]
steps = 1
batch_size = 2
tensorboard = false
"""
missed = []


def tell(what, figure, target, met):
    print(f"{what:<58} {figure:>22}   target {target:<10} {'met' if met else 'MISSED'}", flush=True)
    if not met:
        missed.append(what)


class Counterpart:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, *words):
        print(*words, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def ratio(self, ours, *words):
        """C++'s seconds over ours: median and range of rounds, after one to warm up."""
        ratios, seconds = [], []
        for number in range(-1, ROUNDS):
            if number % 2:
                theirs, mine = self(*words), ours()
            else:
                mine, theirs = ours(), self(*words)
            if number >= 0:
                ratios.append(theirs / mine)
                seconds.append(mine)
        spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
        print(f"  {words[0]}: {1000 * statistics.median(seconds):.1f} ms; C++ over Python {spread}")
        return statistics.median(ratios)


def seconds(work, repeats=1):
    """Of the processor, as others use the machine, too."""
    begun = time.process_time()
    for _ in range(repeats):
        work()
    return time.process_time() - begun


def imports(folder, counterpart):
    script = "import time, torch; t = time.perf_counter(); import mnemo; print(time.perf_counter() - t)"
    found = [float(subprocess.check_output([sys.executable, "-c", script], cwd="/")) for _ in range(7)]
    figure = statistics.median(found)
    tell("import mnemo after torch", f"{1000 * figure:.0f} ms", "100 ms", figure <= 0.1)


def stream(folder, counterpart):
    model = mnemo.load(folder)

    def ours():
        text = model.text()
        text.feed("the ")
        return seconds(lambda: sum(len(piece) for piece in text.stream(max_tokens=256)))

    ratio = counterpart.ratio(ours, "stream", folder, 256)
    tell("a stream of 256 tokens: speed over C++'s", f"{ratio:.3f}", "0.97", ratio >= 0.97)


def attention(folder, counterpart):
    layer, x = mnemo.nn.Attention(dim=256), torch.randn(8, 256, 256, requires_grad=True)

    def work():
        layer.zero_grad()
        x.grad = None
        layer(x)[0].sum().backward()

    ratio = counterpart.ratio(lambda: seconds(work, 2), "attention", 2)
    tell("nn.Attention at [8,256,256], both ways: speed over C++'s", f"{ratio:.3f}", "0.98", ratio >= 0.98)


def step(folder, counterpart):
    model = mnemo.load(folder).train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    text, state = torch.randint(10, (8, 129)), model.initial_state(8)

    def work():
        nonlocal state
        optimizer.zero_grad()
        result = model(text[:, :-1], state)
        model.loss(result, text[:, 1:]).backward()
        optimizer.step()
        state = result.state.detach()

    times = 1 / counterpart.ratio(lambda: seconds(work), "step", folder, 1)
    tell("a training step: times C++'s", f"{times:.3f}", "1.05", times <= 1.05)


def rss():
    gc.collect()
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def leaks(folder, counterpart):
    model = mnemo.load(RUNS / "text")
    layer, x = mnemo.nn.GRC(16, num_heads=2), torch.randn(2, 3, 16)
    tokens, state = torch.tensor([[1, 2, 3]]), layer(x)[1].detach()
    heads = [torch.randn(1, 2, 3, 4, requires_grad=True) for _ in range(4)]

    def broken_off():
        pieces = model.stream("t", max_tokens=50)
        next(pieces)
        pieces.close()

    calls = {
        "generate": lambda: model.generate("t", max_tokens=2),
        "a stream that is closed": broken_off,
        "score": lambda: model.score("the"),
        "model and loss, backward": lambda: model.loss(model(tokens), tokens).backward(),
        "nn.GRC, backward": lambda: layer(x, state)[0].sum().backward(),
        "ops.abc_causal, backward": lambda: mnemo.ops.abc_causal(*heads)[0].sum().backward(),
        "states": lambda: dict(state.select_batch([1, 0]).detach()),
        "a refused call": lambda: refused(model),
    }
    for name, call in calls.items():
        for _ in range(1000):
            call()
        watched = [model, layer, x, tokens, state, heads, None, True, mnemo.State]
        watched += [*model.parameters(), *layer.parameters()]
        before, counts, objects = rss(), [sys.getrefcount(one) for one in watched], len(gc.get_objects())
        for _ in range(10_000):
            call()
        grown = rss() - before
        counts = [sys.getrefcount(one) - count for one, count in zip(watched, counts)]
        objects = len(gc.get_objects()) - objects
        flat = max(counts) < 10 and objects < 10
        figure = f"{grown // 1024} KB, {max(counts):+d} references"
        tell(f"10,000 calls: {name}", figure, "1,024 KB", grown < 1 << 20 and flat)


def refused(model):
    try:
        model.generate("t", temperature=-1.0)
    except ValueError:
        return
    raise AssertionError("expected an error")


def interrupt(folder, counterpart):
    sys.path.insert(0, str(ROOT / "python/tests"))
    from conftest import GOLDEN, detector

    signal.signal(signal.SIGINT, signal.default_int_handler)
    text, pairs = mnemo.load(RUNS / "text"), mnemo.load(RUNS / "pairs")
    images = mnemo.load(GOLDEN / "vision_import/timm_vit")
    finder, (_, painted) = mnemo.load(detector()[0]), detector()
    picture = GOLDEN / "images/files/photo_7865c0.jpg"
    long = folder / "long.txt"
    long.write_text((RUNS / "text.txt").read_text() * 5000)
    calls = {
        "generate": lambda: text.generate("the ", max_tokens=1 << 24),
        "feed": lambda: text.text().feed("the house " * 500_000),
        "score": lambda: text.score("the house " * 500_000),
        "evaluate": lambda: text.evaluate(long),
        "translate": lambda: pairs.translate(["the house"] * 200_000),
        "classify": lambda: images.classify([picture] * 20_000),
        "detect": lambda: finder.detect([painted / "0.png"] * 20_000),
        "train": lambda: stopped(mnemo.train(folder / "bench.toml", out=folder / "long", set={"train.steps": 100_000})),
    }
    for name, call in calls.items():
        sent = []

        def send():
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        timer = threading.Timer(1.0, send)
        timer.start()
        try:
            call()
            raise AssertionError(f"{name} was not ended by Ctrl-C")
        except KeyboardInterrupt:
            took = time.monotonic() - sent[0]
        timer.join()
        text.generate("the ", max_tokens=2)
        tell(f"Ctrl-C in {name}", f"{took:.2f} s", "1 s", took <= 1)


def stopped(training):
    if training.stopped:
        raise KeyboardInterrupt


def main(program, *wanted):
    parts = {"import": imports, "stream": stream, "attention": attention, "step": step}
    parts |= {"leaks": leaks, "interrupt": interrupt}
    unknown = set(wanted) - set(parts)
    if unknown:
        sys.exit(f"unknown part {unknown}; expected {', '.join(parts)}")
    torch.set_num_threads(1)
    counterpart = Counterpart(program)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text.txt").write_text((RUNS / "text.txt").read_text() * 20)
        (folder / "bench.toml").write_text(MODEL)
        # In a process of its own: the counterpart's heap has not seen a training either.
        script = "import mnemo, sys; print(mnemo.train(sys.argv[1], out=sys.argv[2]).model)"
        words = [sys.executable, "-c", script, folder / "bench.toml", folder / "run"]
        trained = subprocess.check_output(words, text=True).strip()
        for part in wanted or parts:
            parts[part](folder if part in ("leaks", "interrupt") else trained, counterpart)
    sys.exit(f"missed: {', '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
