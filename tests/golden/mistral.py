#!/usr/bin/env python3
"""Writes tests/golden/data/text_import/mistral: a small MistralForCausalLM of random numbers with what transformers computes
from it in float64, in the form of the other folders there (mnemo-expect/1). Its window of 4 is shorter than the texts.

  PYTHONPATH=FOLDER_OF_TORCH_AND_TRANSFORMERS tests/golden/mistral.py
"""
import json
import pathlib

import torch
import transformers
from safetensors.torch import save_file

FOLDER = pathlib.Path(__file__).parent / "data/text_import/mistral"
SEED, PAD, START, EOS, WORDS, NEW = 7101, 0, 1, 2, 29, 12


def main():
    torch.manual_seed(SEED)
    config = transformers.MistralConfig(
        vocab_size=WORDS, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=64, rms_norm_eps=1e-5, sliding_window=4, pad_token_id=PAD, bos_token_id=START, eos_token_id=EOS,
        attn_implementation="eager")
    model = transformers.MistralForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.4 + (1.0 if parameter.dim() == 1 else 0.0))
    model.save_pretrained(FOLDER)

    model = model.double()
    # The library computes norms, angles and softmax in float32 whatever the weights' type: here in float64.
    width = config.head_dim
    model.model.rotary_emb.inv_freq = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    # Without padding: a row whose window has padding alone is NaN there.
    tokens = torch.randint(3, WORDS, (3, 12))
    mask = torch.ones_like(tokens, dtype=torch.bool)
    labels = torch.where(torch.arange(12) > 0, tokens, -100)
    states = {}
    hooks = [*((f"model.layers.{k}", layer) for k, layer in enumerate(model.model.layers)), ("model.norm", model.model.norm)]
    for name, module in hooks:
        module.register_forward_hook(lambda _, __, out, name=name: states.update({name: out[0] if isinstance(out, tuple) else out}))
    named = dict(model.named_parameters())
    watched = ["lm_head.weight", "model.embed_tokens.weight", "model.layers.0.input_layernorm.weight",
               "model.layers.0.self_attn.q_proj.weight", "model.layers.1.mlp.gate_proj.weight",
               "model.layers.1.self_attn.k_proj.weight", "model.layers.1.self_attn.v_proj.weight"]
    out = model(input_ids=tokens, attention_mask=mask.long(), labels=labels)
    expect = {"input_ids": tokens, "attention_mask": mask, "labels": labels, "logits": out.logits, "loss": out.loss}
    expect |= {f"hidden.{name}": state for name, state in states.items()}
    cotangent = torch.randn_like(out.logits)
    expect["cotangent.logits"] = cotangent
    for kind, scalar in (("grad", (cotangent * out.logits).sum()), ("grad_loss", out.loss)):
        gradients = torch.autograd.grad(scalar, [named[name] for name in watched], retain_graph=True)
        expect |= {f"{kind}.{name}": gradient for name, gradient in zip(watched, gradients)}
    expect["generate.prompt"], expect["generate.prompt_mask"] = tokens[:, -6:], mask[:, -6:]
    expect["generate.greedy"] = model.generate(input_ids=tokens[:, -6:], attention_mask=mask[:, -6:].long(), max_new_tokens=NEW,
                                               num_beams=1, do_sample=False, pad_token_id=PAD, eos_token_id=EOS)
    assert all(tensor.isfinite().all() for tensor in expect.values())
    save_file({name: tensor.detach().contiguous().clone() for name, tensor in expect.items()}, FOLDER / "expect.safetensors", metadata={
        "format": "mnemo-expect/1", "case": "Mistral: a window of 4, 4 query heads on 2 key heads", "seed": str(SEED),
        "source": f"transformers {transformers.__version__}, torch {torch.__version__}, float64, MistralForCausalLM",
        "training": "false", "tolerance": "1e-11", "weights": "model.safetensors (float32, widened to float64 before the computation)",
        "generation": json.dumps({"max_new_tokens": NEW, "num_beams": 1, "eos": EOS, "pad": PAD})})


if __name__ == "__main__":
    main()
