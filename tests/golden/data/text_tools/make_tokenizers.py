"""Makes the folders tokenizer_NAME: vocabularies cut down to the tokens that some strings need, and the strings with their
new ids. A tokenizer with fewer tokens gives the same pieces: those that a text does not use change nothing.

  python make_tokenizers.py VOCABULARIES STRINGS

VOCABULARIES: the published files of BERT (vocab.txt), GPT-2 and fairseq (gpt2-vocab.json, gpt2-merges.txt, dict.txt), T5
and ALBERT (spiece.model); STRINGS: texts with the ids of tokenizers 0.23.3 and sentencepiece 0.2.3 as JSON lines. Needs
tokenizers==0.23.3, sentencepiece==0.2.3 and protobuf.
"""

import json
import os
import sys

import sentencepiece.sentencepiece_model_pb2 as sentencepiece_pb
from sentencepiece import SentencePieceProcessor
from tokenizers import pre_tokenizers

VOCABULARIES, STRINGS = sys.argv[1:]


def lines(name):
    """Every second line of a file of strings."""
    with open(f"{STRINGS}/{name}.jsonl") as file:
        return [json.loads(line) for line in file][::2]


def write(folder, name, text):
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/{name}", "w", encoding="utf-8", newline="\n") as file:
        file.write(text)


def write_lines(folder, rows):
    write(folder, "strings.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


def bert(name, model):
    folder, rows = f"tokenizer_{name}", lines(f"tokenizer_{name}")
    with open(f"{VOCABULARIES}/bert/vocabs/{model}/vocab.txt", encoding="utf-8") as file:
        tokens = file.read().split("\n")
    special = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
    used = {i for row in rows for i in row["ids"]} | {i for i, token in enumerate(tokens) if token in special}
    kept = sorted(used)
    new = {old: i for i, old in enumerate(kept)}
    write(folder, "vocab.txt", "".join(tokens[i] + "\n" for i in kept))
    write(folder, "tokenizer_config.json", json.dumps({"do_lower_case": "uncased" in model}) + "\n")
    write_lines(folder, [{**row, "ids": [new[i] for i in row["ids"]]} for row in rows])


def merged(symbols, ranks, used):
    """The tokens of a piece; adds the merges that were made to `used`."""
    while len(symbols) > 1:
        rank, at = min((ranks.get(pair, len(ranks)), i) for i, pair in enumerate(zip(symbols, symbols[1:])))
        if rank == len(ranks):
            break
        used.add(rank)
        symbols = symbols[:at] + [symbols[at] + symbols[at + 1]] + symbols[at + 2 :]
    return symbols


def gpt2():
    folder, rows = "tokenizer_gpt2_roberta", lines("tokenizer_gpt2_roberta")
    source = f"{VOCABULARIES}/gpt2_roberta"
    vocabulary = json.load(open(f"{source}/gpt2-vocab.json"))
    merges = open(f"{source}/gpt2-merges.txt", encoding="utf-8").read().split("\n")[1:]
    merges = [tuple(merge.split(" ")) for merge in merges if merge]
    ranks = {merge: rank for rank, merge in enumerate(merges)}
    splitter, used = pre_tokenizers.ByteLevel(add_prefix_space=False), set()
    for row in rows:
        ids = [vocabulary[token] for piece, _ in splitter.pre_tokenize_str(row["text"]) for token in merged(list(piece), ranks, used)]
        assert ids == row["ids"], row
    kept_merges = [merges[rank] for rank in sorted(used)]
    kept = [token for token in vocabulary if len(token) == 1 or is_merged(token, kept_merges) or token == "<|endoftext|>"]
    kept.sort(key=vocabulary.get)
    new = {vocabulary[token]: i for i, token in enumerate(kept)}
    dictionary = [line.split(" ") for line in open(f"{source}/dict.txt").read().split("\n") if line]
    lines_kept = [(i, line) for i, line in enumerate(dictionary) if not line[0].isdigit() or int(line[0]) in new][:-930]
    new_roberta = {4 + old: 4 + i for i, (old, _) in enumerate(lines_kept)}
    write(folder, "vocab.json", json.dumps({token: i for i, token in enumerate(kept)}, indent=0) + "\n")
    write(folder, "merges.txt", "#version: 0.2\n" + "".join(" ".join(merge) + "\n" for merge in kept_merges))
    write(folder, "dict.txt", "".join(f"{new[int(t)] if t.isdigit() else t} {n}\n" for _, (t, n) in lines_kept))
    for row in rows:
        row["ids"] = [new[i] for i in row["ids"]]
        row["roberta_ids"] = [new_roberta[i] for i in row["roberta_ids"]]
    write_lines(folder, rows)


def is_merged(token, merges):
    return any(a + b == token for a, b in merges)


def sentencepiece(name, keep_rules, max_strings):
    folder, rows = f"tokenizer_{name}", lines(f"tokenizer_{name}")
    source = open(f"{VOCABULARIES}/{name}/spiece.model", "rb").read()
    model = sentencepiece_pb.ModelProto.FromString(source)
    if not keep_rules:  # a quarter of a megabyte: only strings that they do not change
        plain = sentencepiece_pb.ModelProto.FromString(source)
        plain.normalizer_spec.precompiled_charsmap = b""
        whole = SentencePieceProcessor(model_proto=plain.SerializeToString())
        rows = [row for row in rows if row["text"].isascii() and whole.encode(row["text"].lower().replace("``", '"').replace("''", '"')) == row["ids"]]
        model.normalizer_spec.precompiled_charsmap = b""
    rows = rows[:max_strings]
    for row in rows:
        row.pop("tokenizers_ids", None)
    normal = sentencepiece_pb.ModelProto.SentencePiece.NORMAL
    lowest = min((piece.score, i) for i, piece in enumerate(model.pieces) if piece.type == normal)[1]
    used = {i for row in rows for field in ("ids", "comma_ids") for i in row.get(field, [])} | {lowest}
    kept = [i for i, piece in enumerate(model.pieces) if i in used or piece.type != normal]
    new = {old: i for i, old in enumerate(kept)}
    pieces = [model.pieces[i] for i in kept]
    del model.pieces[:]
    model.pieces.extend(pieces)
    model.trainer_spec.Clear()
    model.trainer_spec.unk_id = next(i for i, piece in enumerate(pieces) if piece.type == sentencepiece_pb.ModelProto.SentencePiece.UNKNOWN)
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/spiece.model", "wb") as file:
        file.write(model.SerializeToString())
    write_lines(folder, [{k: [new[i] for i in v] if k.endswith("ids") else v for k, v in row.items()} for row in rows])


bert("bert_uncased", "bert-base-uncased")
bert("bert_cased", "bert-base-cased")
gpt2()
sentencepiece("t5", True, 200)
sentencepiece("albert", False, 200)
