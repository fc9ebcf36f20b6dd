# SPDX-License-Identifier: Apache-2.0
"""K-FAC for PyTorch, alone or on many processes: one more line in a training loop.

    optimizer = spdkfac.SPDKFACOptimizer(torch.optim.SGD(model.parameters(), lr=0.003), model)

Plans, forecasts and reports need no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._build import VERSION
from .errors import CommError, ConfigError, Error, NumericalError
from .planning import (
    Cluster,
    Comparison,
    Model,
    Plan,
    Prediction,
    algorithms,
    cluster,
    compare,
    model,
    plan,
    simulate,
)
from .report import Report, report

if TYPE_CHECKING:
    from .curvature_file import fit_laplace, laplace_factors, save_for_kronfluence
    from .data_curvature import Curvature, curvature
    from .describing import describe
    from .layers import CoveredLayers, covered_layers
    from .optimizer import SPDKFACOptimizer
    from .recorded import RecordedSteps
else:
    _ON_TORCH = {
        "CoveredLayers": "layers",
        "Curvature": "data_curvature",
        "RecordedSteps": "recorded",
        "SPDKFACOptimizer": "optimizer",
        "covered_layers": "layers",
        "curvature": "data_curvature",
        "describe": "describing",
        "fit_laplace": "curvature_file",
        "laplace_factors": "curvature_file",
        "save_for_kronfluence": "curvature_file",
    }

    def __getattr__(name: str) -> Any:
        """What needs torch is imported when it is first used."""
        if name not in _ON_TORCH:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        importlib.import_module("._core", __name__)  # first, since its errors say what is missing
        value = getattr(importlib.import_module(f".{_ON_TORCH[name]}", __name__), name)
        globals()[name] = value
        return value


__version__ = VERSION

__all__ = [
    "Cluster",
    "CommError",
    "Comparison",
    "ConfigError",
    "CoveredLayers",
    "Curvature",
    "Error",
    "Model",
    "NumericalError",
    "Plan",
    "Prediction",
    "RecordedSteps",
    "Report",
    "SPDKFACOptimizer",
    "__version__",
    "algorithms",
    "cluster",
    "compare",
    "covered_layers",
    "curvature",
    "describe",
    "fit_laplace",
    "laplace_factors",
    "model",
    "plan",
    "report",
    "save_for_kronfluence",
    "simulate",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
