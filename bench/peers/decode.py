"""A peer of `mnemo-bench decoding` and `prompts`: a GPT-2 or a Llama in eager PyTorch, transformers, CTranslate2 or llama.cpp; reads one request per line, answers
with one line.

  decode.py CASE_JSON TENSORS torch|transformers|ctranslate2|llama_cpp     TENSORS: safetensors with Mnemo's parameters
  greedy N                            -> JSON: the N most likely tokens after token 0, one by one, float32
  token PRECISION CONTEXT BATCH N     -> seconds for one token of every sequence, the median of N, starting at CONTEXT tokens; a later call
                                      continues from there
  prompt PRECISION N                  -> seconds from a prompt of N tokens to the next one
  after N                             -> the most likely token after that prompt, float32
  drop                                discards all sequences and, except for float32, their models -> ok

Precisions: float32, bf16 (weights and cache), int8 (PyTorch: quantize_dynamic of every linear layer, cache in float32). PyTorch's and transformers' caches
hold random numbers up to the context, because time does not depend on them; CTranslate2 reads a prompt.
"""
import copy
import gc
import json
import os
import statistics
import sys
import tempfile
import threading
import time
import warnings

import numpy
import torch
import torch.nn as nn
from safetensors.torch import load_file

from text_models import ROTARY_BASE, Decoder, Transformers


def prompt_tokens(count, vocab):
    return [i * 7919 % vocab for i in range(count)]


class Torch:
    def __init__(self, case, path):
        self.case = case
        self.models = {"float32": self.made(load_file(path))}
        self.sequences = {}

    def made(self, theirs):
        return Decoder(self.case, theirs).eval()

    def model(self, precision):
        if precision not in self.models:
            plain = self.models["float32"]
            if precision == "bf16":
                self.models[precision] = copy.deepcopy(plain).bfloat16()
            else:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    self.models[precision] = torch.ao.quantization.quantize_dynamic(plain, {nn.Linear}, dtype=torch.qint8)
        return self.models[precision]

    def caches(self, precision, batch, filled, room):
        shape = batch, self.case["kv_heads"] or self.case["heads"], filled + room, self.case["dim"] // self.case["heads"]
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        return [(torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)) for _ in range(self.case["layers"])]

    @torch.inference_mode()
    def greedy(self, count):
        token, caches, found = torch.zeros(1, 1, dtype=torch.long), self.caches("float32", 1, 0, count), []
        for position in range(count):
            token = self.models["float32"].step(token, caches, position)
            found.append(token.item())
        return found

    @torch.inference_mode()
    def token(self, precision, context, batch, count):
        model, key = self.model(precision), (precision, context, batch)
        if key not in self.sequences:
            self.sequences[key] = [torch.zeros(batch, 1, dtype=torch.long), self.caches(precision, batch, context, 256), context]
        token, caches, position = self.sequences[key]
        seconds = []
        for _ in range(count):
            begin = time.perf_counter()
            token = model.step(token, caches, position)
            token.tolist()
            seconds.append(time.perf_counter() - begin)
            position += 1
        self.sequences[key] = [token, caches, position]
        return statistics.median(seconds)

    def read(self, precision, count, caches):
        """The most likely token after a prompt; caches have room for it."""
        tokens = torch.tensor([prompt_tokens(count, self.case["vocab"])])
        return self.model(precision).step(tokens, caches, 0).item()

    @torch.inference_mode()
    def prompt(self, precision, count):
        self.model(precision)
        caches = self.caches(precision, 1, 0, count)  # random numbers: not a part of reading
        begin = time.perf_counter()
        self.read(precision, count, caches)
        return time.perf_counter() - begin

    @torch.inference_mode()
    def after(self, count):
        return self.read("float32", count, self.caches("float32", 1, 0, count))

    def drop(self):
        self.sequences.clear()
        self.models = {"float32": self.models["float32"]}
        gc.collect()
        return "ok"

    def close(self):
        pass


class InTransformers(Torch):
    def made(self, theirs):
        return Transformers(self.case, theirs)

    def caches(self, precision, batch, filled, room):
        """A cache that grows by itself."""
        return self.models[precision].cache(super().caches(precision, batch, filled, 0))


class Sequence:
    """A generation in its own thread that produces one token per request, since CTranslate2 runs whole texts."""

    def __init__(self, generator, context, batch, room):
        self.go, self.done, self.batch, self.found, self.ended = threading.Semaphore(0), threading.Semaphore(0), batch, [], False
        prompts = [["0"] * context] * batch
        run = lambda: generator.generate_batch(prompts, max_batch_size=batch, max_length=room, min_length=room, sampling_topk=1,
                                               include_prompt_in_result=False, callback=self.made)
        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        self.wait()  # the prompt and the first token

    def made(self, step):
        self.found.append(step.token_id)
        self.done.release()
        if step.batch_id == self.batch - 1 and not self.ended:
            self.go.acquire()
        return self.ended

    def wait(self):
        for _ in range(self.batch):
            self.done.acquire()

    def next(self):
        self.go.release()
        self.wait()

    def end(self):
        self.ended = True
        self.go.release()
        self.thread.join()


class CTranslate2:
    def __init__(self, case, path):
        import ctranslate2
        from ctranslate2.specs import transformer_spec
        self.case, self.generators, self.running = case, {}, (None, None)
        theirs = {name: tensor.numpy() for name, tensor in load_file(path).items()}
        llama = case["kv_heads"] > 0
        shape = dict(activation=ctranslate2.specs.Activation.SWISH, ffn_glu=True, rms_norm=True, rotary_dim=0, rotary_interleave=False,
                     rotary_base=ROTARY_BASE, num_heads_kv=case["kv_heads"]) if llama else dict(activation=ctranslate2.specs.Activation.GELUTanh)
        spec = transformer_spec.TransformerDecoderModelSpec.from_config(case["layers"], case["heads"], pre_norm=True, **shape)

        def linear(target, *names):
            target.weight = numpy.concatenate([theirs[name + ".weight"] for name in names])
            if not llama:
                target.bias = numpy.concatenate([theirs[name + ".bias"] for name in names])

        def norm(target, name):
            target.gamma = theirs[name + ".weight"]
            if not llama:
                target.beta = theirs[name + ".bias"]

        decoder = spec.decoder
        decoder.scale_embeddings = False
        decoder.embeddings.weight = decoder.projection.weight = theirs["embed.weight"]
        if not llama:
            decoder.position_encodings.encodings = theirs["backbone.positions.weight"]
        norm(decoder.layer_norm, "backbone.final_norm")
        for i, layer in enumerate(decoder.layer):
            name = f"backbone.layers.{i}."
            norm(layer.self_attention.layer_norm, name + "norm1")
            linear(layer.self_attention.linear[0], *(name + "attn." + part for part in "qkv"))
            linear(layer.self_attention.linear[1], name + "attn.o")
            norm(layer.ffn.layer_norm, name + "norm2")
            linear(layer.ffn.linear_0, name + ("ffn.gate" if llama else "ffn.0"))
            linear(layer.ffn.linear_1, name + "ffn.1")
            if llama:
                linear(layer.ffn.linear_0_noact, name + "ffn.0")
        spec.config.layer_norm_epsilon = 1e-5
        spec.register_vocabulary([str(i) for i in range(case["vocab"])])
        spec.config.bos_token = spec.config.eos_token = spec.config.unk_token = str(case["vocab"] - 1)
        spec.validate()
        spec.optimize()
        self.folder = tempfile.TemporaryDirectory()
        spec.save(self.folder.name)
        self.make = lambda kind: ctranslate2.Generator(self.folder.name, device="cpu", compute_type=kind, inter_threads=1,
                                                       intra_threads=case["threads"])

    def generator(self, precision):
        if precision not in self.generators:
            self.generators[precision] = self.make(precision)
        return self.generators[precision]

    def greedy(self, count):
        sequence = Sequence(self.generator("float32"), 1, 1, count)
        for _ in range(count - 1):
            sequence.next()
        sequence.end()
        return sequence.found

    def token(self, precision, context, batch, count):
        key = precision, context, batch
        if key != self.running[0]:  # a generator runs one text at a time
            self.end()
            self.running = key, Sequence(self.generator(precision), context, batch, 256)
        seconds = []
        for _ in range(count):
            begin = time.perf_counter()
            self.running[1].next()
            seconds.append(time.perf_counter() - begin)
        return statistics.median(seconds)

    def read(self, precision, count):
        prompt = [str(token) for token in prompt_tokens(count, self.case["vocab"])]
        result, = self.generator(precision).generate_batch([prompt], max_length=1, min_length=1, sampling_topk=1, include_prompt_in_result=False)
        return int(result.sequences_ids[0][0])

    def prompt(self, precision, count):
        self.generator(precision)
        begin = time.perf_counter()
        self.read(precision, count)
        return time.perf_counter() - begin

    def after(self, count):
        return self.read("float32", count)

    def end(self):
        if self.running[1]:
            self.running[1].end()
        self.running = None, None

    def drop(self):
        self.end()
        self.generators.clear()
        gc.collect()
        return "ok"

    def close(self):
        self.folder.cleanup()


def main():
    case = json.loads(sys.argv[1])
    torch.set_num_threads(case["threads"])
    if sys.argv[3] == "llama_cpp":
        from llama import LlamaCpp
        peer = LlamaCpp(case, sys.argv[2], prompt_tokens)
    else:
        peer = {"torch": Torch, "transformers": InTransformers, "ctranslate2": CTranslate2}[sys.argv[3]](case, sys.argv[2])
    print("ready", flush=True)
    for line in sys.stdin:
        name, *words = line.split()
        print(json.dumps(getattr(peer, name)(*(int(word) if word.isdigit() else word for word in words))), flush=True)
    peer.close()
    os._exit(0)  # CTranslate2's threads may wait for the next request


main()
