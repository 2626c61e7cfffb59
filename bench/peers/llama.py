"""llama.cpp as a peer of decode.py: a GPT-2 as GGUF, run by llama-cpp-python. Both packages are optional:

  CMAKE_ARGS=-DGGML_NATIVE=ON .deps/python/bin/pip install llama-cpp-python==0.3.36 gguf     (builds for minutes)
"""
import ctypes
import os
import statistics
import tempfile
import time

import gguf
import llama_cpp as llama
import numpy
from safetensors.torch import load_file

Type = gguf.GGMLQuantizationType
TYPES = {"float32": Type.F32, "bf16": Type.BF16, "int8": Type.Q8_0, "int4": Type.Q4_0}
ROOM = 256  # tokens of each sequence after its prompt
quiet = llama.llama_log_callback(lambda level, text, data: None)


def write_gpt2(path, case, theirs, precision):
    """Linear layers and the embedding as `precision` says; positions, norms and biases are float32."""
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_context_length(case["segment"])
    writer.add_embedding_length(case["dim"])
    writer.add_block_count(case["layers"])
    writer.add_feed_forward_length(case["ffn"])
    writer.add_head_count(case["heads"])
    writer.add_layer_norm_eps(1e-5)
    writer.add_vocab_size(case["vocab"])
    writer.add_tokenizer_model("none")

    def add(name, *names):
        tensor = numpy.concatenate([theirs[part] for part in names])
        kind = TYPES[precision] if tensor.ndim == 2 and name != "position_embd.weight" else Type.F32
        writer.add_tensor(name, gguf.quants.quantize(tensor, kind), raw_dtype=kind)

    add("token_embd.weight", "embed.weight")
    add("position_embd.weight", "backbone.positions.weight")
    for part in "weight", "bias":
        add("output_norm." + part, "backbone.final_norm." + part)
        for i in range(case["layers"]):
            mine, layer = f"blk.{i}.", f"backbone.layers.{i}."
            add(f"{mine}attn_qkv.{part}", *(f"{layer}attn.{map}.{part}" for map in "qkv"))
            for name, other in ("attn_norm", "norm1"), ("attn_output", "attn.o"), ("ffn_norm", "norm2"), ("ffn_up", "ffn.0"), ("ffn_down", "ffn.1"):
                add(f"{mine}{name}.{part}", f"{layer}{other}.{part}")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Sequences:
    """Sequences that advance together; the cache is float32 for float32, else float16, llama.cpp's default."""

    def __init__(self, model, case, precision, batch, context, room):
        self.vocab, self.batch, self.position = case["vocab"], batch, 0
        params = llama.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_seq_max = batch * (context + room), max(batch, context), batch
        params.n_threads = params.n_threads_batch = case["threads"]
        params.type_k = params.type_v = Type.F32 if precision == "float32" else Type.F16
        self.context = llama.llama_init_from_model(model, params)
        self.input = llama.llama_batch_init(max(batch, context), 0, 1)

    def run(self, tokens, sequences, positions, wanted):
        """The most likely token after each of the rows `wanted`."""
        self.input.n_tokens = len(tokens)
        for row, (token, sequence, position) in enumerate(zip(tokens, sequences, positions)):
            self.input.token[row], self.input.pos[row] = token, position
            self.input.n_seq_id[row], self.input.seq_id[row][0] = 1, sequence
            self.input.logits[row] = row in wanted
        if llama.llama_decode(self.context, self.input) != 0:
            raise RuntimeError("llama_decode failed")
        logits = (llama.llama_get_logits_ith(self.context, row) for row in wanted)
        return [int(numpy.ctypeslib.as_array(row, (self.vocab,)).argmax()) for row in logits]

    def read(self, prompt):
        """Every sequence reads the prompt."""
        count = len(prompt)
        for sequence in range(self.batch):
            found = self.run(prompt, [sequence] * count, range(count), {count - 1})
        self.position, self.tokens = count, found * self.batch
        return found[0]

    def next(self):
        every = range(self.batch)
        self.tokens = self.run(self.tokens, every, [self.position] * self.batch, every)
        self.position += 1
        return self.tokens[0]

    def end(self):
        llama.llama_batch_free(self.input)
        llama.llama_free(self.context)


class LlamaCpp:
    def __init__(self, case, path, prompt_tokens):
        llama.llama_log_set(quiet, ctypes.c_void_p(0))
        llama.llama_backend_init()
        self.case, self.models, self.running, self.prompt_tokens = case, {}, {}, prompt_tokens
        self.theirs = {name: tensor.numpy() for name, tensor in load_file(path).items()}

    def model(self, precision):
        if precision not in self.models:
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "model.gguf")
                write_gpt2(path, self.case, self.theirs, precision)
                params = llama.llama_model_default_params()
                params.use_mmap = False
                self.models[precision] = llama.llama_model_load_from_file(path.encode(), params)
        return self.models[precision]

    def sequences(self, precision, batch, context, room):
        return Sequences(self.model(precision), self.case, precision, batch, context, room)

    def greedy(self, count):
        sequences = self.sequences("float32", 1, 1, count)
        found = [sequences.read([0])] + [sequences.next() for _ in range(count - 1)]
        sequences.end()
        return found

    def token(self, precision, context, batch, count):
        key = precision, context, batch
        if key not in self.running:
            self.running[key] = self.sequences(precision, batch, context, ROOM)
            self.running[key].read(self.prompt_tokens(context, self.case["vocab"]))
        seconds = []
        for _ in range(count):
            begin = time.perf_counter()
            self.running[key].next()
            seconds.append(time.perf_counter() - begin)
        return statistics.median(seconds)

    def timed(self, precision, count):
        sequences, prompt = self.sequences(precision, 1, count, 0), self.prompt_tokens(count, self.case["vocab"])
        begin = time.perf_counter()
        found = sequences.read(prompt)
        seconds = time.perf_counter() - begin
        sequences.end()
        return found, seconds

    def prompt(self, precision, count):
        return self.timed(precision, count)[1]

    def after(self, count):
        return self.timed("float32", count)[0]

    def drop(self):
        for sequences in self.running.values():
            sequences.end()
        for model in self.models.values():
            llama.llama_model_free(model)
        self.running, self.models = {}, {}
        return "ok"

    def close(self):
        pass
