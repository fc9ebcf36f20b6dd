# SPDX-License-Identifier: Apache-2.0
"""The models: who makes them, on what batches they train, and with which loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from mistake import Mistake

Batch = tuple[torch.Tensor, torch.Tensor]
CLASSES = 1000


@dataclass(frozen=True)
class Model:
    """Packages are imported only when a model is built."""

    name: str
    package: str | None  # None: of this folder
    build: Callable[[], nn.Module]
    inputs: Callable[[int, torch.device], Batch]  # random ones
    loss: Callable[[Callable[..., Any], Batch], torch.Tensor]
    batch: int
    first_order: str  # the optimizer that such models are trained with, and that K-FAC wraps
    images: bool


def images(side: int, batch: int, device: torch.device) -> Batch:
    return (torch.randn(batch, 3, side, side, device=device), torch.randint(CLASSES, (batch,), device=device))


def tokens(vocabulary: int, length: int, batch: int, device: torch.device) -> Batch:
    """The second one is what follows each token of the first."""
    text = torch.randint(vocabulary, (batch, length + 1), device=device)
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def cross_entropy(model: Callable[..., Any], batch: Batch) -> torch.Tensor:
    inputs, labels = batch
    return functional.cross_entropy(model(inputs).flatten(0, -2), labels.flatten())


def language_loss(model: Callable[..., Any], batch: Batch) -> torch.Tensor:
    """Of transformers, which shift the labels themselves."""
    inputs, _ = batch
    loss: torch.Tensor = model(input_ids=inputs, labels=inputs).loss
    return loss


def of_torchvision(name: str) -> nn.Module:
    import torchvision
    model: nn.Module = torchvision.models.get_model(name)
    return model


def of_timm(name: str) -> nn.Module:
    import timm
    model: nn.Module = timm.create_model(name)
    return model


def of_transformers(model: str, config: str, **options: Any) -> nn.Module:
    import transformers
    made: nn.Module = getattr(transformers, model)(getattr(transformers, config)(use_cache=False, **options))
    return made


def small_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, CLASSES))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.joint, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                             for part in self.joint(self.norm1(x)).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        out: torch.Tensor = x + self.inner(self.norm2(x))
        return out


def small_transformer() -> nn.Module:
    return nn.Sequential(nn.Embedding(256, 64), Block(64, 4), Block(64, 4), nn.LayerNorm(64),
                         nn.Linear(64, 256, bias=False))


def cnn(name: str, package: str | None, build: Callable[[], nn.Module], side: int, batch: int,
        first_order: str = "sgd") -> Model:
    return Model(name, package, build, partial(images, side), cross_entropy, batch, first_order, images=True)


def language(name: str, vocabulary: int, length: int, batch: int, build: Callable[[], nn.Module]) -> Model:
    return Model(name, "transformers", build, partial(tokens, vocabulary, length), language_loss, batch,
                 "adamw", images=False)


GPT2 = partial(of_transformers, "GPT2LMHeadModel", "GPT2Config")  # 12 blocks of 768
LLAMA = partial(of_transformers, "LlamaForCausalLM", "LlamaConfig", vocab_size=32000, hidden_size=4096,
                intermediate_size=11008, num_hidden_layers=2, num_attention_heads=32)

# A model is one line here.
MODELS: dict[str, Model] = {model.name: model for model in (
    cnn("resnet50", "torchvision", partial(of_torchvision, "resnet50"), 224, 32),
    cnn("resnet152", "torchvision", partial(of_torchvision, "resnet152"), 224, 8),
    cnn("densenet201", "torchvision", partial(of_torchvision, "densenet201"), 224, 16),
    cnn("inception-v4", "timm", partial(of_timm, "inception_v4"), 299, 16),
    cnn("vit-b", "torchvision", partial(of_torchvision, "vit_b_16"), 224, 32, "adamw"),
    language("gpt2", 50257, 512, 8, GPT2),
    language("llama", 32000, 512, 2, LLAMA),
    cnn("small-cnn", None, small_cnn, 32, 8),
    Model("small-transformer", None, small_transformer, partial(tokens, 256, 32), cross_entropy, 4, "adamw",
          images=False),
)}


def model_named(name: str) -> Model:
    if name not in MODELS:
        raise Mistake(f"--models: unknown model ({name}); give one of {', '.join(MODELS)}")
    return MODELS[name]
