# SPDX-License-Identifier: Apache-2.0
"""Types of the arguments that nothing else looks at before it uses them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import NoneType
from typing import Any, get_args

import torch.distributed as dist

from .errors import ConfigError
from .planning import Cluster, Plan
from .wrapping import Gradients

GROUP = dist.ProcessGroup if dist.is_available() else NoneType
# What an argument may be, and how to say it.
ARGUMENTS: dict[str, tuple[tuple[Any, ...], str]] = {
    "preset": ((str, NoneType), "the name of a preset"),
    "algorithm": ((str,), "a name of spdkfac.algorithms()"),
    "solver": ((str,), "inverse, eigen, ekfac or adam"),
    "graft": ((str, NoneType), "none, sgd or adam"),
    "interval": ((str, NoneType), "auto, fixed or adaptive"),
    "spread_refreshes": ((bool,), "True or False"),
    "couple_momentum": ((bool,), "True or False"),
    "rescale_weights": ((bool, Iterable), "True, or patterns of layer names"),
    "split": ((Mapping, NoneType), "names of layers and into how many parts, such as {'qkv': 3}"),
    "norms": ((bool,), "True or False"),
    "gradients": ((str,), "auto, own or averaged"),
    "process_group": ((GROUP, NoneType), "a group of torch.distributed"),
    "variant": ((Mapping, NoneType), "fields of the algorithm and their values, such as {'fusion': 'none'}"),
    "profile_steps": ((int,), "a number of steps"),
    "timeout": ((int, float), "seconds"),
    "model_name": ((str, NoneType), "a name"),
    "log_level": ((str,), "a level, such as warning"),
    "plan": ((Plan, str, Path, NoneType), "a Plan or the file of one"),
    "cluster": ((Cluster, str, Path, NoneType), "a Cluster, a bundled name or a file"),
}


def check_arguments(given: Mapping[str, Any]) -> None:
    """Those of ARGUMENTS; a wrong type is a ConfigError that says what to pass."""
    for name, (types, wanted) in ARGUMENTS.items():
        value = given[name]
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise ConfigError(f"kfac: {name}={value!r} is of type {type(value).__name__}; pass {wanted}")
    if given["gradients"] not in get_args(Gradients):
        raise ConfigError(f"kfac: gradients={given['gradients']}; pass {ARGUMENTS['gradients'][1]}")
    if not given["timeout"] > 0:
        raise ConfigError(f"kfac: timeout={given['timeout']}; pass more than 0 seconds")
