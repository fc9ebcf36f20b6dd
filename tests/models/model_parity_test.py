#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Our models with weights from torchvision and timm: the same modules, outputs, gradients and
running statistics.

Usage: model_parity_test.py PROGRAM [options of unittest], where PROGRAM is model_parity.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Callable

try:
    import timm
    import torch
    import torchvision
    from torchvision.models.resnet import BasicBlock
except ImportError as error:
    sys.exit(f"model_parity_test: {error}; run tools/setup.sh, which installs requirements-test.txt")

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from cnn28 import Cnn28  # noqa: E402

PROGRAM = sys.argv[1]
CLASSES = 10  # few, so that files stay small
# Both sides compute in double precision from the same values, so they differ by rounding at most.
# Changing the images by 1e-16 changes a gradient by 4e-11 where it changes most (inception-v4); the
# epsilon of one normalisation, the padding of one pool or one momentum change a tensor by 1e-2.
TOLERANCE = 1e-9
# In units of the model's largest gradient: what is smaller may be all rounding, or zero behind ReLUs
# that let nothing through. Today no tensor is: the smallest has 1e-6.
FLOOR = 1e-12
# timm wraps what has no weights in modules of its own; ours calls functions there.
TIMM_ONLY = (".drop", ".act", "global_pool", "global_pool.pool", "global_pool.flatten", "head_drop")

Tensors = dict[str, torch.Tensor]


def randomise(model: torch.nn.Module) -> None:
    """Fresh models have batch normalisations of ones, zeros and no history: mistakes would hide."""
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.normal_(module.bias, std=0.1)
            torch.nn.init.normal_(module.running_mean, std=0.1)
            torch.nn.init.uniform_(module.running_var, 0.5, 1.5)


def reference(model: torch.nn.Module, images: torch.Tensor, target: torch.Tensor) -> Tensors:
    """What model_parity writes, computed by Python."""
    model.eval()
    with torch.no_grad():
        results = {"eval_output": model(images)}
    model.train()
    logits = model(images)
    torch.nn.functional.cross_entropy(logits, target).backward()
    results["train_output"] = logits.detach()
    results |= {f"grad.{name}": p.grad for name, p in model.named_parameters()}
    results |= {f"buffer.{name}": b for name, b in model.named_buffers()}
    return results


def cnn28() -> torch.nn.Module:
    return Cnn28(CLASSES)


def resnet20() -> torch.nn.Module:
    """torchvision's ResNet with another stem and three stages of 16, 32 and 64 channels."""
    nn = torch.nn

    def stage(before: int, channels: int) -> nn.Sequential:
        change = nn.Sequential(nn.Conv2d(before, channels, 1, 2, bias=False),
                               nn.BatchNorm2d(channels)) if before != channels else None
        first = BasicBlock(before, channels, 1 if change is None else 2, change)
        return nn.Sequential(first, BasicBlock(channels, channels), BasicBlock(channels, channels))

    class ResNet20(nn.Sequential):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
            self.bn1 = nn.BatchNorm2d(16)
            self.relu = nn.ReLU(inplace=True)
            self.layer1 = stage(16, 16)
            self.layer2 = stage(16, 32)
            self.layer3 = stage(32, 64)
            self.avgpool = nn.AdaptiveAvgPool2d(1)
            self.fc = nn.Linear(64, CLASSES)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for name, module in self.named_children():
                x = module(x.flatten(1) if name == "fc" else x)
            return x

    return ResNet20()


def input_file(model: torch.nn.Module, images: torch.Tensor, target: torch.Tensor) -> Tensors:
    # Weights are single precision here, which double holds exactly: half the size of the file.
    state = {f"state.{name}": value.detach().clone() for name, value in model.state_dict().items()}
    return state | {"input": images, "target": target, "classes": torch.tensor(CLASSES)}


class ModelParityTest(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        torch.manual_seed(1)

    def run_program(self, name: str, given: Tensors) -> subprocess.CompletedProcess[str]:
        torch.save(given, self.folder / "input")
        return subprocess.run([PROGRAM, name, self.folder / "input", self.folder / "output"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=300, check=False)

    def check(self, name: str, make: Callable[[], torch.nn.Module], *shape: int) -> None:
        model = make()
        randomise(model)
        images = torch.randn(shape, dtype=torch.float64)
        target = torch.arange(shape[0]) % CLASSES
        done = self.run_program(name, input_file(model, images, target))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        ours = torch.load(self.folder / "output", weights_only=False)

        modules = [n for n, _ in model.named_modules() if not n.endswith(TIMM_ONLY)]
        self.assertEqual(ours.pop("modules"), modules)
        self.compare(name, ours, reference(model.double(), images, target))

    def compare(self, name: str, ours: Tensors, theirs: Tensors) -> None:
        self.assertEqual(list(ours), list(theirs))
        gradients = [value.norm() for key, value in theirs.items() if key.startswith("grad.")]
        floor = FLOOR * float(max(gradients))
        errors = {key: float((ours[key] - value).norm() / value.double().norm().clamp(min=floor))
                  for key, value in theirs.items()}
        wrong = {key: error for key, error in errors.items() if not error <= TOLERANCE}  # or NaN
        print(f"{name}: {len(errors)} tensors, largest relative error {max(errors.values()):.1e}")
        self.assertEqual(wrong, {}, name)

    def test_resnet18(self) -> None:
        self.check("resnet18", lambda: torchvision.models.resnet18(num_classes=CLASSES),
                   2, 3, 64, 64)

    def test_resnet50(self) -> None:
        self.check("resnet50", lambda: torchvision.models.resnet50(num_classes=CLASSES),
                   2, 3, 64, 64)

    def test_resnet152(self) -> None:
        self.check("resnet152", lambda: torchvision.models.resnet152(num_classes=CLASSES),
                   2, 3, 64, 64)

    def test_densenet201(self) -> None:
        self.check("densenet201", lambda: torchvision.models.densenet201(num_classes=CLASSES),
                   2, 3, 64, 64)

    def test_inception_v4(self) -> None:
        # At 96×96 the last blocks normalise two values per channel, and rounding grows to 1e-8.
        self.check("inception-v4", lambda: timm.create_model("inception_v4", num_classes=CLASSES),
                   2, 3, 128, 128)

    def test_cnn28(self) -> None:
        self.check("cnn28", cnn28, 4, 1, 28, 28)

    def test_resnet20(self) -> None:
        self.check("resnet20", resnet20, 4, 3, 32, 32)

    def test_program_names_what_does_not_match(self) -> None:
        given = input_file(cnn28(), torch.zeros(1, 1, 28, 28), torch.zeros(1, dtype=torch.int64))
        given["state.fc3.bias"] = given.pop("state.fc2.bias")
        given["state.conv1.weight"] = torch.zeros(32, 1, 5, 5)
        done = self.run_program("cnn28", given)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "model_parity: state: conv1.weight is [32, 1, 3, 3], not "
                                      "[32, 1, 5, 5]; missing fc2.bias; extra fc3.bias\n")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
