#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs some steps of 23 models that nobody here has written, with the defaults.

  tools/zoo.py [--device cpu|cuda] [--steps N] [--batch N] [--size PIXELS] [--only NAME,…] [--seed N]

One fixed batch of random images or tokens, SGD with rate 1e-3 and momentum 0.9. A model passes if

- all its losses are finite, and the last, after all steps, is below the first. A loss in between may
  be above it: batch norms and dropout make single steps rise; the table shows the highest;
- no refresh kept an inverse from before (column "kept"), and no factor and no gradient had NaN or Inf
  (column "not finite").

An exception is a failed line with its text. Needs spdkfac on the path, torchvision, timm and
transformers; models of a package that is missing are skipped, and on a CPU, unless named by --only,
those that are too large for it.

Exit code: 0 all passed; 1 one did not; 2 none failed, but some were skipped.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import spdkfac

TORCHVISION = ("convnext_tiny", "swin_t", "efficientnet_b0", "regnet_y_400mf", "mobilenet_v2",
               "shufflenet_v2_x1_0", "vgg11_bn", "squeezenet1_1", "maxvit_t", "vit_b_16",
               "deeplabv3_resnet50", "r3d_18")
TIMM = ("resnext50_32x4d", "resnetv2_50", "nfnet_l0", "mixer_b16_224", "deit3_small_patch16_224",
        "coatnet_0_rw_224", "swinv2_cr_tiny_224", "hrnet_w18", "dla34")
TRANSFORMERS = ("bert", "llama")
PACKAGE = {**{name: "torchvision" for name in TORCHVISION}, **{name: "timm" for name in TIMM},
           **{name: "transformers" for name in TRANSFORMERS}}
# Their weights are made for one size of image.
FIXED_SIZE = {"maxvit_t": 224, "vit_b_16": 224, "mixer_b16_224": 224, "deit3_small_patch16_224": 224,
              "coatnet_0_rw_224": 224, "swinv2_cr_tiny_224": 224}
# The first Linear layer of vgg11_bn has 25088 inputs whatever the size of images.
TOO_LARGE_FOR_CPU = {"vgg11_bn"}
CLASSES = 1000
SEGMENTS = 21
TOKENS = 32

Loss = Callable[[], torch.Tensor]


def images_loss(model: nn.Module, shape: tuple[int, ...], device: torch.device) -> Loss:
    images = torch.randn(shape, device=device)
    labels = torch.randint(0, CLASSES, shape[:1], device=device)
    return lambda: nn.functional.cross_entropy(model(images), labels)


def segments_loss(model: nn.Module, shape: tuple[int, ...], device: torch.device) -> Loss:
    images = torch.randn(shape, device=device)
    labels = torch.randint(0, SEGMENTS, (shape[0], *shape[2:]), device=device)
    return lambda: nn.functional.cross_entropy(model(images)["out"], labels)


def tokens_loss(model: nn.Module, words: int, batch: int, device: torch.device) -> Loss:
    tokens = torch.randint(0, words, (batch, TOKENS), device=device)
    return lambda: model(input_ids=tokens, labels=tokens).loss


def make(name: str, options: argparse.Namespace) -> tuple[nn.Module, Loss]:
    """A model with random weights, and its loss on a fixed batch."""
    device = torch.device(options.device)
    side = FIXED_SIZE.get(name, options.size)
    shape: tuple[int, ...] = (options.batch, 3, side, side)
    if name in TRANSFORMERS:
        import transformers
        if name == "bert":
            config: Any = transformers.BertConfig(hidden_size=256, num_hidden_layers=4,
                                                  num_attention_heads=4, intermediate_size=1024)
            model = transformers.BertForMaskedLM(config)
        else:
            config = transformers.LlamaConfig(vocab_size=8000, hidden_size=256,
                                              intermediate_size=704, num_hidden_layers=4,
                                              num_attention_heads=4)
            model = transformers.LlamaForCausalLM(config)
        model.to(device).train()
        return model, tokens_loss(model, config.vocab_size, options.batch, device)
    if name in TIMM:
        import timm
        model = timm.create_model(name).to(device).train()
        return model, images_loss(model, shape, device)
    import torchvision
    if name == "deeplabv3_resnet50":
        model = torchvision.models.segmentation.deeplabv3_resnet50(
            weights=None, weights_backbone=None, num_classes=SEGMENTS).to(device).train()
        return model, segments_loss(model, shape, device)
    if name == "r3d_18":
        model = torchvision.models.video.r3d_18(num_classes=CLASSES).to(device).train()
        return model, images_loss(model, (options.batch, 3, 8, side // 2, side // 2), device)
    model = getattr(torchvision.models, name)().to(device).train()
    return model, images_loss(model, shape, device)


def losses_of(optimizer: spdkfac.SPDKFACOptimizer, loss_of: Loss, steps: int) -> list[float]:
    """Before every step, and after the last; ends early with one that is not finite."""
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of()
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            return losses
        loss.backward()
        optimizer.step()
    return [*losses, loss_of().item()]


def run(name: str, options: argparse.Namespace) -> tuple[list[str], bool]:
    """A row of the table, and whether the model passed."""
    torch.manual_seed(options.seed)
    start = time.monotonic()
    model, loss_of = make(name, options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizer = spdkfac.SPDKFACOptimizer(
            torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9), model)
        losses = losses_of(optimizer, loss_of, options.steps)
    counters = optimizer.counters
    kept = counters["inverses_kept"]
    nonfinite = counters["nonfinite_factors"] + counters["nonfinite_gradients"]
    passed = (all(map(math.isfinite, losses)) and losses[-1] < losses[0] and kept == 0
              and nonfinite == 0)
    return [name, f"{100 * optimizer.layers.coverage:.0f} %", f"{losses[0]:.3f}", f"{max(losses):.3f}",
            f"{losses[-1]:.3f}", str(counters["inverse_retries"]), str(kept), str(nonfinite),
            str(counters["layers_scaled"]), f"{time.monotonic() - start:.0f}",
            "passed" if passed else "FAILED"], passed


HEAD = ["model", "covered", "first", "highest", "last", "damped more", "kept", "not finite",
        "scaled", "seconds", "verdict"]
WIDTHS = [max(map(len, PACKAGE)), 7, 9, 9, 9, 11, 4, 10, 6, 7, 7]


def line(cells: list[str]) -> str:
    first, *rest = (cell.ljust(width) if index in (0, len(HEAD) - 1) else cell.rjust(width)
                    for index, (cell, width) in enumerate(zip(cells, WIDTHS)))
    return "  ".join([first, *rest]).rstrip()


def why_skipped(name: str, options: argparse.Namespace) -> str:
    if importlib.util.find_spec(PACKAGE[name]) is None:
        return f"no package {PACKAGE[name]}"
    if options.device == "cpu" and not options.only and name in TOO_LARGE_FOR_CPU:
        return "too large for a CPU"
    return ""


def device_name(device: torch.device) -> str:
    if device.type != "cuda":
        return f"the CPU with {torch.get_num_threads()} threads"
    return str(torch.cuda.get_device_name(device))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, default=224, help="side of images, where it is free")
    parser.add_argument("--only", help="names of models, with commas between")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(PACKAGE)
    unknown = [name for name in names if name not in PACKAGE]
    if unknown:
        parser.error(f"unknown models {', '.join(unknown)}; choose from {', '.join(PACKAGE)}")
    print(line(HEAD), flush=True)
    failed = skipped = 0
    for name in names:
        if reason := why_skipped(name, options):
            print(f"{name.ljust(WIDTHS[0])}  skipped: {reason}", flush=True)
            skipped += 1
            continue
        try:
            row, passed = run(name, options)
            text = line(row)
        except Exception as error:  # the other models still count
            message = " ".join(str(error).split())[:300]
            passed, text = False, (f"{name.ljust(WIDTHS[0])}  FAILED: {type(error).__name__}: "
                                   f"{message}")
        failed += not passed
        print(text, flush=True)
    print(f"{len(names) - failed - skipped} passed, {failed} failed, {skipped} skipped; "
          f"{options.steps} steps, batch {options.batch}, on "
          f"{device_name(torch.device(options.device))}, torch {torch.__version__}")
    return 1 if failed else 2 if skipped else 0


if __name__ == "__main__":
    sys.exit(main())
