# SPDX-License-Identifier: Apache-2.0
"""K-FAC for PyTorch, alone or on many processes: one more line in a training loop.

    optimizer = spdkfac.SPDKFACOptimizer(torch.optim.SGD(model.parameters(), lr=0.003), model)
"""

from __future__ import annotations

import torch

from ._build import TORCH_VERSION, VERSION

__version__ = VERSION

# Before the compiled part, which could fail in ways that say nothing.
if torch.__version__.split("+")[0] != TORCH_VERSION:
    raise ImportError(
        f"spdkfac {VERSION} was built for torch {TORCH_VERSION}, this is torch {torch.__version__}; "
        f"build it again (pip install --force-reinstall --no-deps .), or install torch {TORCH_VERSION}"
    )
try:
    from ._core import CommError, ConfigError, Error, NumericalError
except ImportError as error:
    raise ImportError(
        f"spdkfac: the compiled part cannot be loaded ({error}); build it again in this environment "
        "(pip install --force-reinstall --no-deps .)"
    ) from error

from .describing import describe
from .layers import CoveredLayers, covered_layers
from .optimizer import SPDKFACOptimizer
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

__all__ = [
    "Cluster",
    "CommError",
    "Comparison",
    "ConfigError",
    "CoveredLayers",
    "Error",
    "Model",
    "NumericalError",
    "Plan",
    "Prediction",
    "Report",
    "SPDKFACOptimizer",
    "__version__",
    "algorithms",
    "cluster",
    "compare",
    "covered_layers",
    "describe",
    "model",
    "plan",
    "report",
    "simulate",
]
