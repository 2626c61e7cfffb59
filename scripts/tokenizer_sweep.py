"""Folders of tokenizers with every setting that changes ids, for scripts/test-transformers: transformers' ids of a few texts, and
how `mnemo-verify` reads the same folder. Each setting is followed, or refused by name."""

import io
import json
import pathlib
import shutil

import google.protobuf  # pylint: disable=unused-import  # without it transformers reads no tokenizer.model
import sentencepiece
import tokenizers
import transformers as tf

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests/golden/data/text_tools"
TEXTS = ["", " ", "hello", "Hello World", " hello  world ", "hell NEWTOK<user> hell## x", "helloNEWTOKworld NEWTOK, newtok",
         "a<user>b <user> c", "<x><y> <pad>[SEP]</s>", "h\u00e9llo \u4e2d\u6587 e\u0301!", "NEWTOK", " <user>", "\u00d1NEWTOK\u0301\tNEWTOK\n<user>"]
KEYS = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"]
FLAGS = ["lstrip", "rstrip", "normalized", "single_word", "special"]


def alphabet():
    return sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())


def write(folder, name, value):
    (folder / name).write_text(value if isinstance(value, str) else json.dumps(value))


def byte_files(folder, special):
    words = [*special, *alphabet(), "he", "ll", "hell", "\u0120h", "##"]
    words += [] if "<s>" in special else ["<|endoftext|>"]
    write(folder, "vocab.json", {word: i for i, word in enumerate(words)})
    write(folder, "merges.txt", "#version: 0.2\nh e\nl l\nhe ll\n\u0120 h\n# #\n")


def gpt2(folder):
    byte_files(folder, [])


def roberta(folder):
    byte_files(folder, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])


def bert(folder):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "Hello", "world", "World", "hell", "new", "##tok", "##o", "x", "a", "b",
             "c", ",", "!", "#", "<", ">", "user", "<s>", "</s>", "\u4e2d", "\u6587", "hello\u4e2d\u6587", "h\u00e9llo"]
    write(folder, "vocab.txt", "\n".join(words) + "\n")


def copied(name, file):
    return lambda folder: shutil.copy(GOLDEN / name / file, folder / file)


def piece_model(**options):
    """A SentencePiece model of a few words."""
    lines = ["the quick brown fox jumps over the lazy dog, hello world hell"] * 50 + ["number one two three: Hello World a b c x!"] * 30
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, hard_vocab_limit=False, num_threads=1,
                                             minloglevel=2, **options)
    return model.getvalue()


def llama(folder):
    (folder / "tokenizer.model").write_bytes(piece_model(
        model_type="bpe", vocab_size=340, byte_fallback=True, pad_id=-1, normalization_rule_name="identity", remove_extra_whitespaces=False))


def marian(folder):
    model = piece_model(model_type="unigram", vocab_size=80, bos_id=-1, eos_id=0, unk_id=1)
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(model)
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
    words = ["</s>", "<unk>", ">>fra<<"] + [pieces.id_to_piece(i) for i in range(2, pieces.get_piece_size())] + ["<pad>"]
    write(folder, "vocab.json", {word: i for i, word in enumerate(words)})


def deberta(folder):
    (folder / "spm.model").write_bytes(piece_model(
        model_type="unigram", vocab_size=80, pad_id=0, bos_id=1, eos_id=2, unk_id=3, pad_piece="[PAD]", bos_piece="[CLS]",
        eos_piece="[SEP]", unk_piece="[UNK]"))


def as_json(make, name):
    """The same tokenizer as transformers saves it."""
    def files(folder):
        make(folder)
        write(folder, "tokenizer_config.json", {"tokenizer_class": name})
        made = tf.AutoTokenizer.from_pretrained(folder)
        for file in list(folder.iterdir()):
            file.unlink()
        made.save_pretrained(folder)
    return files


# class: (files, special tokens that it has, a token of its vocabulary that is none of them)
KINDS = {
    "GPT2Tokenizer": (gpt2, "hell"), "RobertaTokenizer": (roberta, "hell"), "BertTokenizer": (bert, "world"),
    "T5Tokenizer": (copied("tokenizer_t5", "spiece.model"), "\u2581the"),
    "AlbertTokenizer": (copied("tokenizer_albert", "spiece.model"), "\u2581the"),
}
KINDS.update({"LlamaTokenizer": (llama, "\u2581the"), "MarianTokenizer": (marian, "\u2581the"), "DebertaV2Tokenizer": (deberta, "\u2581the")})
for known in ("GPT2Tokenizer", "RobertaTokenizer", "BertTokenizer", "LlamaTokenizer", "T5Tokenizer"):
    KINDS[known + ", tokenizer.json"] = (as_json(KINDS[known][0], known), KINDS[known][1])
KINDS["PreTrainedTokenizerFast, tokenizer.json of Unigram"] = KINDS["T5Tokenizer, tokenizer.json"]
KINDS["PreTrainedTokenizerFast, tokenizer.json of Llama"] = KINDS["LlamaTokenizer, tokenizer.json"]


def token(content, **flags):
    return dict({flag: False for flag in FLAGS}, content=content, **flags)


def settings(size, own):
    """(name, tokenizer_config.json, further files); size: of the vocabulary; own: one of its tokens."""
    yield "nothing", {}, {}
    for key in KEYS:
        yield f"{key} = own", {key: own}, {}
        yield f"{key} = new", {key: "NEWTOK"}, {}
        yield f"{key} of the map", {}, {"special_tokens_map.json": {key: token("NEWTOK", lstrip=True)}}
        yield f"{key} as an object", {key: dict(token("<user>", rstrip=True), __type="AddedToken")}, {}
    for key, values in {
            "add_bos_token": [True, False], "add_eos_token": [True, False], "add_prefix_space": [True, False], "do_lower_case": [True, False],
            "strip_accents": [True, False], "tokenize_chinese_chars": [True, False], "keep_accents": [True, False], "legacy": [True, False],
            "extra_ids": [0, 3, 100], "do_basic_tokenize": [False], "split_by_punct": [True], "clean_up_tokenization_spaces": [True, False],
            "padding_side": ["left"], "truncation_side": ["left"], "model_max_length": [5], "errors": ["strict"], "trim_offsets": [False],
            "never_split": [["hello"]], "remove_space": [False], "do_remove_accents": [True], "wordpieces_prefix": ["@@"],
            "use_default_system_prompt": [True], "sp_model_kwargs": [{}], "model_input_names": [["input_ids"]]}.items():
        for value in values:
            yield f"{key} = {value}", {key: value}, {}
    yield "bos and eos", dict(add_bos_token=True, add_eos_token=True), {}
    for lists in ("additional_special_tokens", "extra_special_tokens"):
        yield lists, {lists: ["NEWTOK", "<user>"]}, {}
        yield lists + " of the map", {}, {"special_tokens_map.json": {lists: ["NEWTOK", token("<user>")]}}
    yield "names of tokens", {"extra_special_tokens": {"user_token": "<user>"}, "image_token": "NEWTOK"}, {}
    yield "added_tokens.json", {}, {"added_tokens.json": {"NEWTOK": size, "<user>": size + 1}}
    yield "added_tokens.json, own", {}, {"added_tokens.json": {own: 7, "<user>": size}}
    yield "added_tokens.json, special", {"mask_token": "<user>"}, {"added_tokens.json": {"NEWTOK": size, "<user>": size + 1}}
    yield "added_tokens.json, a list", {"additional_special_tokens": ["NEWTOK"]}, {"added_tokens.json": {"NEWTOK": size}}
    yield "added_tokens.json, of the map", {}, {"added_tokens.json": {"NEWTOK": size},
                                                 "special_tokens_map.json": {"additional_special_tokens": ["NEWTOK"]}}
    yield "added_tokens.json with a gap", {}, {"added_tokens.json": {"NEWTOK": size + 3}}
    yield "added_tokens.json, other order", {}, {"added_tokens.json": {"NEWTOK": size + 1, "<user>": size}}
    for bits in range(32):
        flags = {flag: bool(bits >> i & 1) for i, flag in enumerate(FLAGS)}
        yield f"added_tokens_decoder {flags}", {"added_tokens_decoder": {str(size): dict(flags, content="NEWTOK"),
                                                                        str(size + 1): dict(flags, content="<user>")}}, {}
    yield "decoder and map", {"added_tokens_decoder": {str(size): token("<user>")}, "bos_token": "<user>"}, {
        "special_tokens_map.json": {"eos_token": "NEWTOK"}, "added_tokens.json": {"NEWTOK": size + 1}}
    yield "decoder, own token", {"added_tokens_decoder": {str(size): token("<user>"), "9": token(own)}}, {}
    yield "a long and a short token", {"added_tokens_decoder": {str(size): token("NEW"), str(size + 1): token("NEWTOK", special=True),
                                                                str(size + 2): token("TOK")}}, {}


def json_settings(size):
    """(name, change of a tokenizer.json)."""
    def added(made, **flags):
        made["added_tokens"].append(dict(token("NEWTOK", **flags), id=size))
    for bits in range(32):
        flags = {flag: bool(bits >> i & 1) for i, flag in enumerate(FLAGS)}
        yield f"added_tokens {flags}", lambda made, flags=flags: added(made, **flags)
    yield "truncation", lambda made: made.update(truncation=dict(direction="Right", max_length=3, strategy="LongestFirst", stride=0))
    yield "padding", lambda made: made.update(padding=dict(strategy={"Fixed": 20}, direction="Right", pad_to_multiple_of=None, pad_id=0,
                                                           pad_type_id=0, pad_token="[PAD]"))


def expected(folder):
    tokenizer = tf.AutoTokenizer.from_pretrained(folder)
    if not hasattr(tokenizer, "backend_tokenizer"):  # Marian's
        special = {*tokenizer.all_special_tokens, *(one.content for one in tokenizer.added_tokens_decoder.values() if one.special)}
        texts = [text for text in TEXTS if not any(one in text for one in special)]
        return [dict(text=text, ids=tokenizer.encode(text, add_special_tokens=False), input_ids=tokenizer.encode(text)) for text in texts]
    backend = tokenizer.backend_tokenizer
    backend.encode_special_tokens = True  # text that looks like a special token is text
    backend.no_truncation()
    backend.no_padding()
    texts = TEXTS
    if type(backend.model).__name__ == "Unigram":  # makes pieces of its own control tokens, which SentencePiece never does
        own = set(backend.get_vocab(with_added_tokens=False)) & {one.content for one in backend.get_added_tokens_decoder().values() if one.special}
        texts = [text for text in TEXTS if not any(one in text for one in own)]
    return [dict(text=text, ids=backend.encode(text, add_special_tokens=False).ids, input_ids=backend.encode(text).ids) for text in texts]


def folders(scratch):
    """Makes one folder after another; yields its name."""
    for kind, (make, own) in KINDS.items():
        base = scratch / "base"
        base.mkdir()
        make(base)
        name = kind.split(",")[0]
        config = json.loads((base / "tokenizer_config.json").read_text()) if (base / "tokenizer_config.json").exists() else {}
        config["tokenizer_class"] = name
        write(base, "tokenizer_config.json", config)
        size = len(tf.AutoTokenizer.from_pretrained(base))
        made = [(title, more, files, None) for title, more, files in settings(size, own)]
        if (base / "tokenizer.json").exists():
            made += [(title, {}, {}, change) for title, change in json_settings(size)]
        for title, more, files, change in made:
            folder = scratch / "folder"
            shutil.copytree(base, folder)
            write(folder, "tokenizer_config.json", dict(config, **more))
            for file, content in files.items():
                write(folder, file, content)
            if change:
                changed = json.loads((folder / "tokenizer.json").read_text())
                change(changed)
                write(folder, "tokenizer.json", changed)
            yield f"{kind}: {title}", folder
            shutil.rmtree(folder)
        shutil.rmtree(base)


def sweep(scratch, verify):
    """Compares all folders; verify(folder, file) returns status and output of mnemo-verify. Returns counts and the differences."""
    counts, different = {"equal": 0, "refused": 0, "not read by transformers": 0}, []
    for name, folder in folders(scratch):
        try:
            lines = expected(folder)
        except Exception:  # pylint: disable=broad-except
            counts["not read by transformers"] += 1
            continue
        file = scratch / "texts.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        status, output = verify(folder, file)
        if status == 0:
            counts["equal"] += 1
        elif status == 2 and str(folder) in output:
            counts["refused"] += 1
            print(f"  {name}: refused: {output.strip().splitlines()[-1].replace(str(folder), 'FOLDER')}"[:220])
        else:
            different.append(name)
            print(f"  {name}: DIFFERENT: {output.strip()}"[:700])
    return counts, different
