# SPDX-License-Identifier: Apache-2.0
"""Makes a small folder of images in the form of ImageNet: make_miniature.py FOLDER

Noise around a colour for each class: enough to see a loss fall.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torchvision.utils import save_image

CLASSES = 4
EXAMPLES = {"train": 12, "val": 4}
SIDE = 40


def main() -> None:
    generator = torch.Generator().manual_seed(1)
    colours = torch.rand(CLASSES, 3, 1, 1, generator=generator)
    for split, examples in EXAMPLES.items():
        for label in range(CLASSES):
            folder = Path(sys.argv[1]) / split / f"class{label}"
            folder.mkdir(parents=True, exist_ok=True)
            for index in range(examples):
                noise = torch.rand(3, SIDE, SIDE, generator=generator)
                save_image(0.6 * colours[label] + 0.4 * noise, folder / f"{index}.png")


if __name__ == "__main__":
    main()
