"""Every family that scripts/test-transformers covers: the logits of transformers, and what the program prints."""

import importlib.machinery
import importlib.util
import json
import sys

import pytest
import torch

import mnemo
from conftest import ROOT, command

pytest.importorskip("peft")
sys.path.append(str(ROOT / "scripts"))  # of the modules beside the script
loader = importlib.machinery.SourceFileLoader("test_transformers", str(ROOT / "scripts/test-transformers"))
families = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
loader.exec_module(families)

TEXTS = ["so good, it is.", "abc"]


def saved(case, folder):
    """The family's model of random numbers, in a folder with a tokenizer."""
    _, model_name, config_name, arguments = families.CASES[case]
    if "T5" in model_name or "Marian" in model_name:
        tokenizer = families.unigram_tokenizer
    else:
        causal = "CausalLM" in model_name or "GPT2" in model_name
        tokenizer = families.byte_tokenizer if causal else families.word_piece_tokenizer
    settings = {"vocab_size": tokenizer(folder)}
    if "Marian" in model_name:
        settings |= {"decoder_vocab_size": settings["vocab_size"], "pad_token_id": 0, "decoder_start_token_id": 0,
                     "eos_token_id": 1, "forced_eos_token_id": 1}  # fmt: skip
    if "Classification" in model_name:
        settings["id2label"] = {i: name for i, name in enumerate(["bad", "fair", "good"][: arguments.get("num_labels", 2)])}
    model = families.random_model(model_name, config_name, {**arguments, **settings})
    model.save_pretrained(folder)
    return model


@torch.no_grad()
def error_of(ours, theirs):
    """Of logits, or of rows where there is no head; relative to the largest number."""
    inputs, _ = families.inputs_of(theirs)
    tokens, valid = inputs["input_ids"], inputs["attention_mask"]
    if "decoder_input_ids" in inputs:
        step = ours(inputs["decoder_input_ids"], source=tokens, source_valid=valid)
    else:
        step = ours(tokens, valid=valid, token_types=inputs.get("token_type_ids"))
    found = theirs(**families.call_arguments(theirs, inputs))
    if hasattr(found, "logits"):
        expected, found = found.logits, step.logits
    else:  # an encoder gives the row that a head would read
        expected, found = found.last_hidden_state[:, : step.hidden.shape[1]], step.hidden
    expected = families.rows_that_count(expected, inputs)
    found = families.rows_that_count(found, inputs).reshape(expected.shape)
    return ((found - expected).abs().max() / expected.abs().max()).item()


def check_program(model, folder):
    """The call for models of this kind returns what the command prints."""
    head = model.options["head"]
    lines = "\n".join(TEXTS) + "\n"
    if model.options["backbone"]["type"] == "encoder_decoder":
        printed = command("translate", folder, "--json", "--nbest", 2, "--beam", 3, "--max-len-b", 20, stdin=lines)
        expected = [one for line in printed.splitlines() for one in json.loads(line)["translations"]]
        found = model.translate(TEXTS, nbest=2, beam=3, max_tokens=20)
        assert [(one.text, one.score) for one in found] == [(one["text"], one["score"]) for one in expected]
    elif head["type"] == "language_model":
        printed = command("generate", folder, "--quiet", "--prompt", TEXTS[0], "--tokens", 20)
        assert TEXTS[0] + model.generate(TEXTS[0], max_tokens=20) == printed
    elif head["type"] == "classification" and head["num_classes"] > 0:
        printed = json.loads(command("classify", folder, "--json", "--top", 2, stdin=f"{lines}abc\tso good\n"))
        found = model.classify([*TEXTS, ("abc", "so good")], top=2)
        expected = [(one["label"], one["probability"]) for text in printed for one in text["classes"]]
        assert [(one.label, one.probability) for one in found] == expected and len(found) == 6
        assert {one.label for one in found} <= set(model.labels()) and len(model.labels()) == head["num_classes"]
    else:
        printed = json.loads(command("inspect", folder, "--text", TEXTS[0], "--json"))
        assert json.loads(json.dumps(model.inspect(text=TEXTS[0]).to_dict())) == printed


@pytest.mark.parametrize("case", families.CASES)
def test_published_models_equal_transformers_and_the_program(case, tmp_path):
    theirs = saved(case, tmp_path)
    model = mnemo.load(tmp_path)
    assert error_of(model, theirs) <= families.TOLERANCE
    check_program(model, tmp_path)
