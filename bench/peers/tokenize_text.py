"""The peer of `mnemo-bench tokenizers`: the package tokenizers with the same files; reads one request per line, answers with one line.

  tokenize_text.py FOLDER TEXT   FOLDER: a tokenizer's files; TEXT: a file, encoded line by line; then the line "ready"
  ids FILE -> "written": the ids of all lines as 32-bit numbers, -1 behind each line
  encode   -> seconds to encode all lines, one thread, without special tokens and without offsets
"""
import json
import os
import struct
import sys
import time
from array import array
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import ByteLevelBPETokenizer, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers  # noqa: E402
from tokenizers import BertWordPieceTokenizer  # noqa: E402


def fields(message):
    """The fields of a protocol buffer: (number, value), bytes or an integer or four bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
        else:
            size = {1: 8, 5: 4}.get(kind) or varint()
            yield key >> 3, message[at:at + size]
            at += size


def sentencepiece(path):
    """A unigram model of SentencePiece as the package's own converter builds it."""
    pieces, rules, unknown = [], b"", 0
    for number, value in fields(path.read_bytes()):
        if number == 1:
            piece = dict(fields(value))
            if piece.get(3) == 2:
                unknown = len(pieces)
            pieces.append((piece[1].decode(), struct.unpack("<f", piece.get(2, b"\0\0\0\0"))[0]))
        elif number == 3:
            rules = dict(fields(value)).get(2, b"")
    tokenizer = Tokenizer(models.Unigram(pieces, unknown))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Precompiled(rules), normalizers.Strip(left=False, right=True),
                                                 normalizers.Replace(Regex(" {2,}"), "▁")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement="▁")
    return tokenizer


def tokenizer_of(folder):
    if (folder / "tokenizer.json").exists():
        return Tokenizer.from_file(str(folder / "tokenizer.json"))
    if (folder / "vocab.txt").exists():
        config = json.loads((folder / "tokenizer_config.json").read_text())
        return BertWordPieceTokenizer(str(folder / "vocab.txt"), lowercase=config.get("do_lower_case", True))
    if (folder / "merges.txt").exists():
        return ByteLevelBPETokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
    return sentencepiece(folder / "spiece.model")


def main():
    tokenizer = tokenizer_of(Path(sys.argv[1]))
    lines = Path(sys.argv[2]).read_text(encoding="utf-8").split("\n")
    tokenizer = getattr(tokenizer, "_tokenizer", tokenizer)  # without the wrapper in Python
    print("ready", flush=True)
    for request in sys.stdin:
        if request.startswith("ids"):
            found = tokenizer.encode_batch(lines, add_special_tokens=False)
            array("i", [i for one in found for i in [*one.ids, -1]]).tofile(open(request.split()[1], "wb"))
            print("written", flush=True)
        else:
            begin = time.perf_counter()
            tokenizer.encode_batch_fast(lines, add_special_tokens=False)
            print(time.perf_counter() - begin, flush=True)


main()
