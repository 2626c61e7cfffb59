"""Refuses every torch but the one that the extension was built for: LibTorch has no stable binary interface."""

import torch

BUILT_FOR = "2.15"

if ".".join(torch.__version__.split(".")[:2]) != BUILT_FOR:
    raise ImportError(
        f"mnemo was built for torch {BUILT_FOR} and cannot run with torch {torch.__version__}: "
        f"pip install 'torch=={BUILT_FOR}.*', or build mnemo from source beside this torch"
    )
