# SPDX-License-Identifier: Apache-2.0
"""Trains a model of torchvision on a folder of images, with K-FAC or SGD.

    torchrun --nproc-per-node=8 imagenet.py /data/imagenet --kfac --amp --checkpoint resnet50.pt

The folder has train/CLASS/*.JPEG and val/CLASS/*.JPEG. Without torchrun it trains in one process. With
--checkpoint it saves itself after each epoch and goes on from there when started again.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torchvision
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import transforms

import spdkfac

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--size", type=int, default=224, help="side of an image")
    parser.add_argument("--epochs", type=int, default=55)
    parser.add_argument("--batch", type=int, default=32, help="examples of a step and process")
    parser.add_argument("--workers", type=int, default=4, help="processes that load images")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--kfac", action="store_true", help="K-FAC over SGD (default)")
    kind.add_argument("--sgd", action="store_true")
    parser.add_argument("--lr", type=float, default=0.0125,
                        help="for 32 examples; grows with the examples of a step")
    parser.add_argument("--warmup", type=int, default=5, help="epochs in which the rate rises")
    parser.add_argument("--weight-decay", type=float, default=5e-5)
    parser.add_argument("--damping", type=float, default=0.003)
    parser.add_argument("--factor-interval", type=int, default=10)
    parser.add_argument("--inverse-interval", type=int, default=100)
    parser.add_argument("--algorithm", default="spd-kfac")
    parser.add_argument("--amp", action="store_true", help="mixed precision")
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--backend", help="of torch.distributed; default: nccl or gloo")
    return parser.parse_args()


def loader(options: argparse.Namespace, split: str, train: bool) -> DataLoader[Any]:
    steps: list[nn.Module] = (
        [transforms.RandomResizedCrop(options.size), transforms.RandomHorizontalFlip()] if train
        else [transforms.Resize(options.size * 256 // 224), transforms.CenterCrop(options.size)])
    transform = transforms.Compose([*steps, transforms.ToTensor(),
                                    transforms.Normalize(MEAN, DEVIATION)])
    data = torchvision.datasets.ImageFolder(options.data / split, transform)
    sampler: DistributedSampler[Any] | None = None
    if dist.is_initialized():
        sampler = DistributedSampler(data, shuffle=train)
    # Steps of equal size: with several processes all must have as many examples.
    return DataLoader(data, options.batch, shuffle=train and sampler is None, sampler=sampler,
                      num_workers=options.workers, pin_memory=torch.cuda.is_available(),
                      drop_last=train)


class Trainer:
    def __init__(self, options: argparse.Namespace, device: torch.device) -> None:
        self.options, self.device = options, device
        self.processes = dist.get_world_size() if dist.is_initialized() else 1
        self.train_data = loader(options, "train", True)
        self.test_data = loader(options, "val", False)
        classes = len(self.train_data.dataset.classes)  # type: ignore[attr-defined]
        self.module = torchvision.models.get_model(options.model, num_classes=classes).to(device)
        self.model: nn.Module = self.module
        if dist.is_initialized():
            self.model = DistributedDataParallel(self.module)
        # bf16 has the range of fp32, so only fp16 needs a scale.
        self.half = torch.float16 if device.type == "cuda" else torch.bfloat16
        self.scaler = GradScaler(device.type, enabled=options.amp)
        rate = options.lr * options.batch * self.processes / 32
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD(
            self.model.parameters(), lr=rate, momentum=0.9, weight_decay=options.weight_decay)
        if not options.sgd:
            self.optimizer = spdkfac.SPDKFACOptimizer(
                self.optimizer, self.model, preset="paper", algorithm=options.algorithm, damping=options.damping,
                factor_interval=min(options.factor_interval, options.inverse_interval),
                inverse_interval=options.inverse_interval, scaler=self.scaler)
        steps = len(self.train_data)
        warmup = max(1, options.warmup * steps)
        self.schedule = torch.optim.lr_scheduler.SequentialLR(self.optimizer, [
            torch.optim.lr_scheduler.LinearLR(self.optimizer, 0.1, total_iters=warmup),
            torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, max(1, options.epochs * steps)),
        ], milestones=[warmup])

    def train_epoch(self, epoch: int) -> float:
        self.model.train()
        if isinstance(self.train_data.sampler, DistributedSampler):
            self.train_data.sampler.set_epoch(epoch)
        total = torch.zeros((), device=self.device)
        for images, labels in self.moved(self.train_data):
            self.optimizer.zero_grad()
            with self.precision():
                loss = nn.functional.cross_entropy(self.model(images), labels)
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.schedule.step()
            total += loss.detach()
        return float(total) / max(1, len(self.train_data))

    @torch.no_grad()
    def accuracy(self) -> float:
        self.model.eval()
        counts = torch.zeros(2, device=self.device)
        for images, labels in self.moved(self.test_data):
            with self.precision():
                right = (self.module(images).argmax(1) == labels).sum()
            counts += torch.stack([right, torch.tensor(len(labels), device=self.device)])
        if dist.is_initialized():
            dist.all_reduce(counts)
        return float(counts[0] / counts[1])

    def moved(self, data: Iterable[Any]) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
        for images, labels in data:
            yield (images.to(self.device, non_blocking=True),
                   labels.to(self.device, non_blocking=True))

    def precision(self) -> Any:
        if not self.options.amp:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.half)

    def save(self, epoch: int) -> None:
        state = {"epoch": epoch, "model": self.module.state_dict(),
                 "optimizer": self.optimizer.state_dict(),  # all processes: it gathers factors
                 "schedule": self.schedule.state_dict(), "scaler": self.scaler.state_dict()}
        if is_first():
            torch.save(state, self.options.checkpoint.with_suffix(".new"))
            os.replace(self.options.checkpoint.with_suffix(".new"), self.options.checkpoint)

    def resume(self) -> int:
        if not self.options.checkpoint or not self.options.checkpoint.exists():
            return 0
        state = torch.load(self.options.checkpoint, map_location=self.device, weights_only=True)
        self.module.load_state_dict(state["model"])
        self.schedule.load_state_dict(state["schedule"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        return int(state["epoch"])

    def run(self) -> None:
        for epoch in range(self.resume(), self.options.epochs):
            start = time.monotonic()
            loss = self.train_epoch(epoch)
            seconds = time.monotonic() - start
            accuracy = self.accuracy()
            if is_first():
                print(f"epoch {epoch + 1}: loss {loss:.4f}, accuracy {100 * accuracy:.2f} %, "
                      f"{seconds:.1f} s", flush=True)
            if self.options.checkpoint:
                self.save(epoch + 1)


def is_first() -> bool:
    return not dist.is_initialized() or dist.get_rank() == 0


def main() -> None:
    options = parse()
    cuda = torch.cuda.is_available()
    if "RANK" in os.environ:
        dist.init_process_group(options.backend or ("nccl" if cuda else "gloo"))
    device = torch.device("cpu")
    if cuda:  # with gloo, processes may share a GPU
        local = int(os.environ.get("LOCAL_RANK", 0))
        device = torch.device("cuda", local % torch.cuda.device_count())
        torch.cuda.set_device(device)
    torch.manual_seed(1)
    Trainer(options, device).run()
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
