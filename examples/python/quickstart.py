"""Writes a text with a trained model, measures the model on another text and reads segments with a state.

    python quickstart.py RUN TEXT        e.g. runs/mine other.txt
"""

import os
import sys

import torch

import mnemo


def main(run: str | os.PathLike[str], text: str | os.PathLike[str]) -> None:
    model = mnemo.load(run)
    for piece in model.stream("Once upon", max_tokens=200):
        print(piece, end="", flush=True)
    print("\nperplexity", model.evaluate(text).perplexity)

    # A model is a torch module: (tokens, state) -> logits and the state for the next segment.
    tokens = torch.tensor([model.tokenizer.encode("Once upon")])
    step = model(tokens)
    step = model(tokens, step.state)
    print("logits", tuple(step.logits.shape))

    x, state = torch.randn(2, 8, 64), None
    layer = mnemo.nn.Attention("abc", 64, num_heads=4, num_slots=8)  # a memory in your own torch model
    for _ in range(2):
        y, state = layer(x, state)
    print("rows", tuple(y.shape))


if __name__ == "__main__":
    main(*sys.argv[1:])
