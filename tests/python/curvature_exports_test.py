# SPDX-License-Identifier: Apache-2.0
"""kronfluence and laplace-torch read our factors, and compute the same from data themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from devices import DEVICE
from referee_cases import relative
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector
from torch.utils.data import DataLoader, TensorDataset

import spdkfac

pytestmark = [pytest.mark.skipif(DEVICE == "cuda", reason="compared on the CPU"),
              pytest.mark.usefixtures("double_precision")]
TOLERANCE = 1e-9


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(2, 3, 3, padding=1, stride=2), nn.Tanh(), nn.Conv2d(3, 4, 2, bias=False), nn.Tanh(),
                         nn.Flatten(), nn.Linear(16, 5), nn.Tanh(), nn.Linear(5, 3))


def loader(regression: bool = False) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(9, 2, 6, 6, generator=generator)
    targets = torch.randn(9, 3, generator=generator) if regression else torch.randint(3, (9,), generator=generator)
    return DataLoader(TensorDataset(inputs, targets), batch_size=4)


# ---- kronfluence ----

def kronfluence_factors(model: nn.Module, folder: Path) -> Any:
    """Its own covariances of the empirical Fisher."""
    task_module = pytest.importorskip("kronfluence.task", reason="kronfluence is not installed")
    from kronfluence.analyzer import Analyzer, prepare_model
    from kronfluence.arguments import FactorArguments

    class Classes(task_module.Task):
        def compute_train_loss(self, batch: Any, model: nn.Module, sample: bool = False) -> torch.Tensor:
            return F.cross_entropy(model(batch[0]), batch[1], reduction="sum")

        def compute_measurement(self, batch: Any, model: nn.Module) -> torch.Tensor:
            return self.compute_train_loss(batch, model)

    task = Classes()
    analyzer = Analyzer("test", prepare_model(model, task), task, cpu=True, output_dir=str(folder),
                        disable_model_save=True, disable_tqdm=True)
    arguments = FactorArguments(strategy="kfac", use_empirical_fisher=True, activation_covariance_dtype=torch.float64,
                                gradient_covariance_dtype=torch.float64)
    analyzer.fit_covariance_matrices("own", loader().dataset, per_device_batch_size=4, factor_args=arguments)
    return analyzer, arguments


def test_kronfluence_computes_the_same_covariances(tmp_path: Path) -> None:
    analyzer, _ = kronfluence_factors(network(), tmp_path)
    ours = spdkfac.curvature(network(), loader(), nn.CrossEntropyLoss())
    folder = tmp_path / "test" / "factors_spdkfac"
    spdkfac.save_for_kronfluence(ours, folder)
    theirs, read = analyzer.load_covariance_matrices("own"), analyzer.load_covariance_matrices("spdkfac")
    for kind, matrices in theirs.items():
        assert matrices.keys() == read[kind].keys() == ours.keys()
        for name, matrix in matrices.items():
            assert relative(read[kind][name].double(), matrix.double()) < TOLERANCE, f"{kind} {name}"


def test_kronfluence_goes_on_from_our_covariances(tmp_path: Path) -> None:
    """Its eigenvalues are those of A/rows and G/rows, which it makes of the sums and the counts."""
    analyzer, arguments = kronfluence_factors(network(), tmp_path)
    ours = spdkfac.curvature(network(), loader(), nn.CrossEntropyLoss(reduction="sum"))
    spdkfac.save_for_kronfluence(ours, tmp_path / "test" / "factors_spdkfac")
    analyzer.perform_eigendecomposition("spdkfac", factor_args=arguments, overwrite_output_dir=True)
    found = analyzer.load_eigendecomposition("spdkfac")
    for name, layer in ours.items():
        positions = layer.rows / layer.examples
        a = torch.linalg.eigvalsh(layer.A / positions)
        assert relative(found["activation_eigenvalues"][name].double().sort().values, a) < 1e-6


# ---- laplace-torch ----

@pytest.mark.parametrize("regression", [False, True])
def test_laplace_torch_fits_the_same(regression: bool) -> None:
    laplace = pytest.importorskip("laplace", reason="laplace-torch is not installed")
    from laplace.curvature import CurvlinopsGGN

    likelihood = "regression" if regression else "classification"
    loss = nn.MSELoss() if regression else nn.CrossEntropyLoss()

    def made() -> Any:
        return laplace.Laplace(network(), likelihood, subset_of_weights="all", hessian_structure="kron",
                               prior_precision=0.7, backend=CurvlinopsGGN)

    theirs, ours = made(), made()
    theirs.fit(loader(regression))
    found = spdkfac.curvature(network(), loader(regression), loss, fisher="exact")
    spdkfac.fit_laplace(ours, found, outputs=3)
    assert relative(ours.H_facs.to_matrix(), theirs.H_facs.to_matrix()) < TOLERANCE
    for what in ("log_marginal_likelihood", "log_prob"):
        arguments = (parameters_to_vector(theirs.model.parameters()).detach() + 0.01,) if what == "log_prob" else ()
        mine, other = (getattr(one, what)(*arguments) for one in (ours, theirs))
        assert relative(torch.as_tensor(mine).detach(), torch.as_tensor(other).detach()) < TOLERANCE, what
    inputs = next(iter(loader(regression)))[0]
    for mine, other in zip(ours(inputs) if regression else [ours(inputs)],
                           theirs(inputs) if regression else [theirs(inputs)], strict=True):
        assert relative(mine.detach(), other.detach()) < 1e-6
    # And the state that laplace-torch saves is read again.
    again = made()
    again.load_state_dict(ours.state_dict())
    assert relative(again.posterior_precision.logdet().detach(), ours.posterior_precision.logdet().detach()) < TOLERANCE


def test_our_own_log_determinant_is_that_of_laplace_torch_for_layers_without_bias() -> None:
    laplace = pytest.importorskip("laplace", reason="laplace-torch is not installed")
    torch.manual_seed(1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(72, 4, bias=False), nn.Tanh(), nn.Linear(4, 3, bias=False))
    found = spdkfac.curvature(model, loader(), nn.CrossEntropyLoss(), fisher="exact")
    theirs = laplace.Laplace(model, "classification", subset_of_weights="all", hessian_structure="kron",
                             prior_precision=0.7)
    spdkfac.fit_laplace(theirs, found, outputs=3)
    assert relative(found.logdet(0.7, scale=found.examples), theirs.posterior_precision.logdet().detach()) < 1e-6


# ---- what they do not know ----

def test_layers_that_others_do_not_know_are_refused(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.Flatten(), nn.Linear(64, 3))
    found = spdkfac.curvature(model, loader(), nn.CrossEntropyLoss())
    with pytest.raises(spdkfac.ConfigError, match="kronfluence has no layers like 0"):
        spdkfac.save_for_kronfluence(found, tmp_path)
    with pytest.raises(spdkfac.ConfigError, match="laplace-torch has no layers like 0"):
        spdkfac.laplace_factors(found)
    reduced = spdkfac.curvature(model, loader(), nn.CrossEntropyLoss(), approximation="reduce")
    with pytest.raises(spdkfac.ConfigError, match="expanded factors alone"):
        spdkfac.save_for_kronfluence(reduced, tmp_path)
