# SPDX-License-Identifier: Apache-2.0
"""Which plans the optimizer follows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch.distributed as dist

from . import _core, _plan
from .errors import ConfigError
from .planning import Cluster, Plan, as_cluster


def plan_options(algorithm: str, variant: Mapping[str, str | int] | None, plan: Plan | None,
                  cluster: object) -> _plan.PlanOptions:
    choice = _plan.PlanOptions(algorithm, json.dumps(dict(variant or {})))
    if plan is not None:
        if cluster is not None or variant:
            raise ConfigError("kfac: a plan determines cluster and variant; pass plan= without them")
        choice = plan.core.options
    choice.require_trainable()
    return choice


def plan_source(group: dist.ProcessGroup | None, choice: _plan.PlanOptions, plan: Plan | None,
                 cluster: Cluster | str | Path | None) -> _core.PlanSource:
    """Where plans come from; without a plan or a cluster the processes measure their own costs."""
    if plan is not None:
        return _core.PlanSource.of_plan(plan.core.to_json())
    if cluster is None or cluster == "measure":
        transport = "" if group is None else f"c10d-{dist.get_backend(group)}"
        return _core.PlanSource.measure(choice.algorithm, choice.to_json(), transport)
    return _core.PlanSource.of_costs(as_cluster(cluster).core.to_json(), choice.algorithm, choice.to_json())
