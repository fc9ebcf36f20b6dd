# SPDX-License-Identifier: Apache-2.0
"""Transformers of the tasks, of plain Linear layers, so that K-FAC sees each of them."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
                             for layer in (self.query, self.key, self.value))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        out: torch.Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out


class TransformerBlock(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        out: torch.Tensor = x + self.inner(self.norm2(x))
        return out


class Vit(nn.Module):
    """A vision transformer on square grey images of 28 pixels; the mean of its tokens is classified."""

    def __init__(self, patch: int, width: int, heads: int, blocks: int, classes: int = 10) -> None:
        super().__init__()
        self.patch = patch
        self.embed = nn.Linear(patch * patch, width)
        self.places = nn.Parameter(0.02 * torch.randn((28 // patch) ** 2, width))
        self.blocks = nn.Sequential(*(TransformerBlock(width, heads, causal=False) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        # As functional.unfold, which launches a kernel for each image.
        patches = images[:, 0].unfold(1, self.patch, self.patch).unfold(2, self.patch, self.patch)
        patches = patches.flatten(3).flatten(1, 2)
        tokens = self.blocks(self.embed(patches) + self.places)
        out: torch.Tensor = self.head(self.norm(tokens).mean(1))
        return out


class Gpt(nn.Module):
    """A language model of bytes."""

    def __init__(self, window: int, width: int, heads: int, blocks: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, width)
        self.places = nn.Parameter(0.02 * torch.randn(window, width))
        self.blocks = nn.Sequential(*(TransformerBlock(width, heads, causal=True) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 256, bias=False)
        nn.init.normal_(self.embed.weight, std=0.02)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        tokens = self.embed(text) + self.places[:text.shape[1]]
        out: torch.Tensor = self.head(self.norm(self.blocks(tokens)))
        return out
