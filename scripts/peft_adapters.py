"""Adapters of LoRA, read and written, compared with PEFT. Part of scripts/test-transformers, which names the cases."""

import peft
import torch

RANK, ALPHA = 3, 5
T5_LINEAR = ["q", "k", "v", "o", "wi", "wo"]

# name of the case: (published model of scripts/test-transformers, settings of LoraConfig)
READ = {
    "peft_gpt2": ("gpt2", dict(target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True)),
    "peft_llama": ("llama", dict(target_modules="all-linear", use_rslora=True, rank_pattern={"q_proj": 2})),
    "peft_llama_head": ("llama", dict(target_modules=["gate_proj"], modules_to_save=["lm_head", "embed_tokens"])),
    "peft_bert": ("bert_classes", dict(target_modules=["query", "value", "dense"], modules_to_save=["classifier"], bias="all")),
    "peft_t5": ("t5_v10", dict(target_modules=T5_LINEAR)),
}


@torch.no_grad()
def random_adapter(model, settings, folder):
    """PEFT's model, not merged, whose adapter of random numbers is in the folder."""
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=RANK, lora_alpha=ALPHA, **settings)).eval()
    draw = torch.Generator().manual_seed(3)
    for name, parameter in adapted.named_parameters():
        if "lora_" in name or "modules_to_save" in name:
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=draw))
        elif parameter.requires_grad:  # a bias
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=draw))
    adapted.save_pretrained(folder)
    return adapted.get_base_model()


def with_adapter(model, folder):
    """The model with the adapter of a folder, of which PEFT may miss and leave nothing."""
    adapted = peft.PeftModel.from_pretrained(model, folder).eval()
    notes = adapted.load_adapter(folder, adapter_name="default")
    wanted = {"lora_A", "lora_B", "modules_to_save"}
    missing = [name for name in notes.missing_keys if wanted & set(name.split("."))]
    if missing or notes.unexpected_keys:
        raise ValueError(f"PEFT misses {missing} and does not know {notes.unexpected_keys}")
    return adapted.get_base_model()
