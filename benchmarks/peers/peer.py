"""A long-lived peer of `mnemo bench`: reads one request a line, answers with seconds.

  peer.py CASE_JSON [--fused]
  train N        -> seconds of N training steps
  generate P N   -> seconds of N tokens, from position P on
  quit
"""
import json
import sys
import time

import torch
import torch.nn.functional as F

from models import Decoder, Generator


def main():
    case = json.loads(sys.argv[1])
    torch.set_num_threads(case["threads"])
    torch.manual_seed(0)
    model = Decoder(case["vocab"], case["layers"], case["dim"], case["heads"], case["ffn"], case["mem_len"], case["mem_tokens"],
                    case["slots"], case["segment"])
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, fused="--fused" in sys.argv or None)
    batch, segment, segments = case["batch"], case["segment"], case["segments"]
    tokens = torch.randint(case["vocab"], (batch, segment * segments + 1))

    def train_step():
        state, loss = model.initial(batch), 0
        for s in range(segments):
            piece = tokens[:, s * segment:(s + 1) * segment + 1]
            h, state = model(piece[:, :-1], state)
            loss = loss + F.cross_entropy(model.logits(h).flatten(0, 1), piece[:, 1:].flatten()) / segments
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()

    generators = {}
    print("ready", flush=True)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "quit":
            return
        if words[0] == "train":
            begin = time.perf_counter()
            for _ in range(int(words[1])):
                train_step()
            print(time.perf_counter() - begin, flush=True)
        elif words[0] == "generate":
            position, count = int(words[1]), int(words[2])
            with torch.inference_mode():
                if position not in generators:
                    generators[position] = Generator(model), torch.zeros(1, 1, dtype=torch.long)
                generator, token = generators[position]
                while generator.count < position:
                    token = generator.step(token)
                begin = time.perf_counter()
                for _ in range(count):
                    token = generator.step(token)
                    token.item()
                elapsed = time.perf_counter() - begin
                generators[position] = generator, token
                print(elapsed, flush=True)


main()
