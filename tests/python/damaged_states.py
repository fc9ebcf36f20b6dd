# SPDX-License-Identifier: Apache-2.0
"""States of SPDKFACOptimizer with a mistake, and what loading one may do; for state_test.py and
tests/stress/state_fuzz.py."""

from __future__ import annotations

import copy
import math
import random
import warnings
from typing import Any

import torch
from nets import small_net, steps, train
from torch import nn

import spdkfac


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {name: leaf for key, one in value.items()
                for name, leaf in leaves(one, f"{path}/{key}").items()}
    if isinstance(value, (list, tuple)):
        return {name: leaf for i, one in enumerate(value)
                for name, leaf in leaves(one, f"{path}/{i}").items()}
    return {path: value}


def same_states(left: Any, right: Any) -> bool:
    a, b = leaves(left), leaves(right)
    return a.keys() == b.keys() and all(
        torch.equal(a[key], b[key]) if isinstance(a[key], torch.Tensor) else a[key] == b[key]
        for key in a)


def nodes_of(root: Any) -> list[tuple[Any, Any]]:
    """Every place in a tree: a container and a key."""
    nodes = []
    for key in (list(root) if isinstance(root, dict) else range(len(root))):
        nodes.append((root, key))
        if isinstance(root[key], (dict, list)):
            nodes += nodes_of(root[key])
    return nodes


def damaged_tensor(value: torch.Tensor, dice: random.Random) -> torch.Tensor:
    flat = value.reshape(-1)
    changes = [lambda: flat[:-1], lambda: value.to(torch.float16), lambda: value.to_sparse(),
               lambda: value.unsqueeze(0), lambda: value.to("meta"),
               lambda: value.double() * math.inf, lambda: torch.full_like(value, 2),
               lambda: flat.repeat(2)]
    return dice.choice(changes)()


def damaged(state: Any, foreign: Any, dice: random.Random) -> Any:
    """The state with one mistake: something missing, changed, swapped, foreign, or of another kind."""
    bad = copy.deepcopy(state)
    nodes = nodes_of(bad)
    container, key = dice.choice(nodes)
    value = container[key]
    kind = dice.randrange(8)
    if kind == 0:
        del container[key]
    elif kind == 1:
        container[key] = dice.choice([None, "text", -1, math.nan, [], {}, object(), 1e300, b"x",
                                      torch.zeros(3), torch.tensor(math.nan), {"a": {"b": 1}}])
    elif kind == 2 and isinstance(container, dict):
        container[dice.choice([key, "kfac_more", "more", 99, "kfac"])] = dice.choice(nodes)[0]
    elif kind == 3 and isinstance(value, torch.Tensor):
        container[key] = damaged_tensor(value, dice)
    elif kind == 4:  # swap two values
        other, there = dice.choice(nodes)
        try:
            container[key], other[there] = other[there], container[key]
        except (KeyError, IndexError, TypeError):
            pass
    elif kind == 5:  # a part of another model's state
        bad[dice.choice(["state", "param_groups"])] = copy.deepcopy(
            foreign[dice.choice(["state", "param_groups"])])
    elif kind == 6:
        return dice.choice([None, [], {}, 7, "state", {"state": {}}, {"param_groups": []},
                            {"state": {}, "param_groups": []}, copy.deepcopy(foreign)])
    elif isinstance(value, list):
        container[key] = value[:-1] or [value]
    return bad


def wrapped(name: str, model: nn.Module) -> spdkfac.SPDKFACOptimizer:
    base = {"momentum": lambda: torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
            "plain": lambda: torch.optim.SGD(model.parameters(), lr=0.05),
            "adam": lambda: torch.optim.Adam(model.parameters(), lr=0.01)}[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return spdkfac.SPDKFACOptimizer(base, model, inverse_interval=2)


class DamagedStates:
    """A trained optimizer that is given damaged states, one after the other."""

    def __init__(self, name: str) -> None:
        self.model = small_net()
        self.optimizer = wrapped(name, self.model)
        train(self.model, self.optimizer, steps(2))
        self.good = copy.deepcopy(self.optimizer.state_dict())
        self.weights = copy.deepcopy(self.model.state_dict())
        other = nn.Linear(3, 4).to(torch.get_default_device(), torch.float64)
        stranger = wrapped(name, other)
        other(torch.ones(5, 3, dtype=torch.float64)).square().mean().backward()
        stranger.step()
        self.foreign = stranger.state_dict()

    def refuses(self, dice: random.Random) -> bool:
        """One case: an error of one line that changes nothing; or what is accepted can be used."""
        bad = damaged(self.good, self.foreign, dice)
        train(self.model, self.optimizer, steps(1, first=5))  # so that half of a load would show
        before = copy.deepcopy(self.optimizer.state_dict())
        try:
            self.optimizer.load_state_dict(bad)
        except spdkfac.ConfigError as error:
            assert "\n" not in str(error) and ": " in str(error), f"message: {error}"
            assert same_states(self.optimizer.state_dict(), before), f"half loaded: {error}"
            return True
        # What is accepted is whole: it comes back, and training goes on.
        assert self.optimizer.state_dict()["state"].keys() == self.good["state"].keys()
        assert self.optimizer.counters["steps"] == 2
        train(self.model, self.optimizer, steps(1, first=9))
        self.model.load_state_dict(self.weights)
        self.optimizer.load_state_dict(copy.deepcopy(self.good))
        return False
