"""Checks a file written by Mnemo with the safetensors library, then writes the same content with the library.

usage: safetensors_round_trip.py FROM_MNEMO DESCRIPTION TO_MNEMO
DESCRIPTION is JSON: {"metadata": {text: text}, "tensors": [{"name", "dtype", "shape", "hex"}]}.
Raw bytes are compared, so that NaN equals NaN and types that numpy lacks take part; what numpy knows is opened as arrays too.
"""

import ctypes
import json
import sys

import numpy
import safetensors
from safetensors import numpy as safetensors_numpy

LIBRARY_NAMES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
    "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
}


def check(path, description):
    with open(path, "rb") as file:
        found = dict(safetensors.deserialize(file.read()))
    expected = {tensor["name"]: tensor for tensor in description["tensors"]}
    assert set(found) == set(expected), f"names differ: {set(found) ^ set(expected)}"
    for name, tensor in expected.items():
        entry = found[name]
        assert entry["dtype"] == tensor["dtype"], f"{name}: dtype {entry['dtype']}, expected {tensor['dtype']}"
        assert list(entry["shape"]) == tensor["shape"], f"{name}: shape {entry['shape']}, expected {tensor['shape']}"
        assert bytes(entry["data"]) == bytes.fromhex(tensor["hex"]), f"{name}: bytes differ"
    with safetensors.safe_open(path, framework="np") as file:
        assert (file.metadata() or {}) == description["metadata"], f"metadata differ: {file.metadata()}"
        for name, tensor in expected.items():
            if LIBRARY_NAMES[tensor["dtype"]] in numpy.sctypeDict:
                array = file.get_tensor(name)
                assert array.tobytes() == bytes.fromhex(tensor["hex"]), f"{name}: the array's bytes differ"


def write(path, description):
    tensors = {}
    alive = []
    for tensor in description["tensors"]:
        data = bytes.fromhex(tensor["hex"])
        dtype = LIBRARY_NAMES[tensor["dtype"]]
        if hasattr(safetensors, "TensorSpec"):
            buffer = ctypes.create_string_buffer(data, max(len(data), 1))
            alive.append(buffer)
            spec = safetensors.TensorSpec(
                dtype=dtype, shape=tensor["shape"], data_ptr=ctypes.addressof(buffer), data_len=len(data))
        else:
            spec = {"dtype": dtype, "shape": tensor["shape"], "data": data}
        tensors[tensor["name"]] = spec
    content = safetensors.serialize(tensors, metadata=description["metadata"])
    with open(path, "wb") as file:
        file.write(content)


def write_arrays(path):
    """A file as most Python programs make it."""
    safetensors_numpy.save_file(
        {"matrix": numpy.arange(6, dtype=numpy.float32).reshape(2, 3), "scalar": numpy.array(7, dtype=numpy.int64)}, path)


def main():
    from_mnemo, description_path, to_mnemo = sys.argv[1:]
    with open(description_path, encoding="utf-8") as file:
        description = json.load(file)
    check(from_mnemo, description)
    write(to_mnemo, description)
    # The library's own reader must agree with what was written here, or the way back would prove nothing.
    check(to_mnemo, description)
    write_arrays(to_mnemo + ".numpy")
    print(f"safetensors {safetensors.__version__}: {len(description['tensors'])} tensors agree")


if __name__ == "__main__":
    main()
