# SPDX-License-Identifier: Apache-2.0
"""The Trainer of transformers: pass the optimizer with `optimizers=`.

  torchrun --nproc-per-node=2 trainer_train.py [--steps N] [--folder CHECKPOINTS]     # or python, for one process
"""

from __future__ import annotations

import argparse
import gc
from pathlib import Path
from typing import Any

import torch
import transformers

import spdkfac


class KfacTrainer(transformers.Trainer):  # type: ignore[misc]
    """Only for checkpoints of several processes: the state of K-FAC is spread over them, so all collect it."""

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        assert self.optimizer is not None and self.lr_scheduler is not None
        state = self.optimizer.state_dict()
        if self.args.should_save:
            torch.save(state, Path(output_dir) / "optimizer.pt")
            torch.save(self.lr_scheduler.state_dict(), Path(output_dir) / "scheduler.pt")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--folder", default="checkpoints")
    options = parser.parse_args()
    torch.manual_seed(1)
    # Each text repeats four words, so that the next word can be learned.
    texts = [torch.randint(3, 64, (4,)).repeat(4) for _ in range(256)]
    data: list[dict[str, Any]] = [{"input_ids": words, "labels": words} for words in texts]
    config = transformers.LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                                      num_attention_heads=4, max_position_embeddings=32)
    arguments = transformers.TrainingArguments(
        options.folder, max_steps=options.steps, per_device_train_batch_size=8, max_grad_norm=1.0, report_to=[],
        save_steps=options.steps // 2, logging_steps=5, disable_tqdm=True, use_cpu=not torch.cuda.is_available())
    model: Any = transformers.LlamaForCausalLM(config)
    model.to(arguments.device)  # before the optimizer is made
    optimizer = spdkfac.SPDKFACOptimizer(torch.optim.AdamW(model.parameters(), lr=1e-2), model)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, 4, options.steps)
    trainer = KfacTrainer(model, arguments, train_dataset=data, optimizers=(optimizer, schedule))
    trainer.train(resume_from_checkpoint=bool(list(Path(options.folder).glob("checkpoint-*"))))
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    if trainer.is_world_process_zero():
        print(f"loss {float(losses[0]):.3f} -> {float(losses[-1]):.3f}")


if __name__ == "__main__":
    main()
    gc.collect()  # the model goes first: gloo may hang or abort as the process ends (pytorch #190489)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
