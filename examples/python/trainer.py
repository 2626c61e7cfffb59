"""Memory in Hugging Face's Trainer: an ordered sampler walks each row of the batch through its part of the text, and
the states of the memories go from step to step.

    python trainer.py TEXT [--steps 200]
"""

import argparse
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any, Optional

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, Sampler
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

import mnemo

SEGMENT = 32


class Segments(Dataset[dict[str, Tensor]]):
    """A text in bytes, in segments."""

    def __init__(self, text: bytes) -> None:
        self.tokens = torch.tensor(list(text))

    def __len__(self) -> int:
        return (len(self.tokens) - 1) // SEGMENT

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        part = self.tokens[number * SEGMENT : (number + 1) * SEGMENT + 1]
        return {"input_ids": part[:-1], "labels": part[1:]}


class InOrder(Sampler[int]):
    """Each batch holds the segments that follow those of the batch before; row r reads the r-th part of the text."""

    def __init__(self, num_segments: int, batch: int) -> None:
        self.steps, self.batch = num_segments // batch, batch

    def __len__(self) -> int:
        return self.steps * self.batch

    def __iter__(self) -> Iterator[int]:
        return (row * self.steps + step for step in range(self.steps) for row in range(self.batch))


class MemoryTrainer(Trainer):
    """Gives each batch the state after the one before, without gradients; an epoch and an evaluation begin with none.
    A training that is resumed begins with an empty memory."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.loss_is_scaled_for_ga = False
        self.states: dict[bool, dict[str, mnemo.State]] = {}
        self.add_callback(Forget(self))

    def _get_train_sampler(self, train_dataset: Any = None) -> InOrder:
        dataset: Any = self.train_dataset
        return InOrder(len(dataset), self.args.train_batch_size)

    def _get_eval_sampler(self, eval_dataset: Any) -> InOrder:
        return InOrder(len(eval_dataset), self.args.eval_batch_size)

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Tensor], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        output, state = model(inputs["input_ids"], self.states.get(model.training))
        self.states[model.training] = {layer: memory.detach() for layer, memory in state.items()}
        loss = nn.functional.cross_entropy(output.logits.flatten(0, 1), inputs["labels"].flatten())
        return (loss, output) if return_outputs else loss

    def evaluation_loop(self, *arguments: Any, **keywords: Any) -> Any:
        self.states.pop(False, None)
        return super().evaluation_loop(*arguments, **keywords)


class Forget(TrainerCallback):
    def __init__(self, trainer: MemoryTrainer) -> None:
        self.trainer = trainer

    def on_epoch_begin(self, *arguments: Any, **keywords: Any) -> None:
        self.trainer.states.pop(True, None)


def make_trainer(text: bytes, folder: str, **settings: Any) -> MemoryTrainer:
    """A small GPT-2 with a kNN memory in its second layer; the last tenth of the text is held out."""
    config = GPT2Config(
        vocab_size=256,
        n_positions=SEGMENT,
        n_embd=64,
        n_layer=2,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = mnemo.nn.wrap(GPT2LMHeadModel(config), memory={"type": "knn", "memory_len": 256, "top_k": 16}, layers=[1])
    held_out = len(text) // 10
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=8,
        dataloader_drop_last=True,
        remove_unused_columns=False,
        label_names=["labels"],
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        **{"learning_rate": 2e-3, "logging_steps": 20, "disable_tqdm": True, **settings},
    )
    return MemoryTrainer(
        model, arguments, train_dataset=Segments(text[:-held_out]), eval_dataset=Segments(text[-held_out:])
    )


def main(words: Optional[list[str]] = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(arguments.text.read_bytes()[:200_000], folder, max_steps=arguments.steps)
        trainer.train()
        print(f"held-out loss: {trainer.evaluate()['eval_loss']:.3f} nats per byte")
        model: Any = trainer.model
        print(f"tanh(gate): {model.gates['1'].tanh().item():.3f}")


if __name__ == "__main__":
    main()
