"""The extension as it is installed."""

import os
import pathlib
import subprocess
import sys

import pytest
import torch

import mnemo

EXTENSION = pathlib.Path(mnemo._C.__file__)


def output(*words):
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, check=True).stdout


def test_loads_nothing_of_a_desktop():
    torchs = os.path.join(os.path.dirname(torch.__file__), "lib")  # where $ORIGIN/../torch/lib is not, in scripts/python
    loaded = output("env", f"LD_LIBRARY_PATH={torchs}", "ldd", EXTENSION)
    assert "libtorch_python" in loaded and "not found" not in loaded
    for name in ("X11", "glib", "cairo", "rsvg", "gobject"):
        assert name not in loaded, loaded


def test_one_libgomp():
    script = "import mnemo; print({line.split()[-1] for line in open('/proc/self/maps') if 'libgomp' in line})"
    assert len(eval(output(sys.executable, "-c", script))) == 1


def test_shows_only_its_entry():
    shown = [line.split()[-1] for line in output("nm", "-D", "--defined-only", EXTENSION).splitlines()]
    assert [name for name in shown if "mnemo" in name or "PyInit" in name] == ["PyInit__C"], shown[:20]


def test_finds_torch_beside_itself():
    assert "[$ORIGIN/../torch/lib]" in output("readelf", "-d", EXTENSION)


def test_is_small():
    assert EXTENSION.stat().st_size < 40 << 20  # the wheel is compressed; scripts/python checks its 20 MB


def test_refuses_another_torch(tmp_path):
    (tmp_path / "torch.py").write_text("__version__ = '2.14.1+cpu'\n")
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import mnemo"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ImportError: mnemo was built for torch 2.15 and cannot run with torch 2.14.1")


OWN_LIBS = {"sklearn": "scikit_learn", "PIL": "pillow"}


@pytest.mark.parametrize("other", ["torchvision", "transformers", "tokenizers", "sentencepiece", "PIL", "sklearn"])
@pytest.mark.parametrize("first", [True, False])
def test_import_orders(other, first):
    pytest.importorskip(other)
    order = f"import mnemo, {other}" if first else f"import {other}, mnemo"
    script = f"""
import torch
threads = torch.get_num_threads()
{order}
assert torch.get_num_threads() == threads
model = mnemo.nn.Attention(dim=8, num_heads=2)
model(torch.randn(1, 4, 8))[0].sum().backward()
print({{line.split()[-1] for line in open('/proc/self/maps') if 'libgomp' in line}})
"""
    gomps = eval(output(sys.executable, "-c", script))
    bundled = [path for path in gomps if f"/{OWN_LIBS.get(other, other)}.libs/" in path]
    assert len(gomps) == 1 + len(bundled), f"torch's libgomp, and none but what {other} brings: {gomps}"
