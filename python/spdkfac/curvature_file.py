# SPDX-License-Identifier: Apache-2.0
"""Curvature as files: our own, and what kronfluence and laplace-torch read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from . import _core
from .errors import ConfigError
from .kronecker import Factor, LayerCurvature, Part

if TYPE_CHECKING:
    from .data_curvature import Curvature

FORMAT = "spdkfac.curvature/1"


def save(curvature: Curvature, path: str | Path) -> None:
    tensors: dict[str, torch.Tensor] = {}
    layers = []
    for name, layer in curvature.items():
        tensors[f"{name}.A"], tensors[f"{name}.G"] = layer.a.values, layer.g.values
        if layer.moments is not None:
            tensors[f"{name}.moments"] = layer.moments
        layers.append({"name": name, "kind": layer.kind, "groups": layer.groups, "size_a": layer.a.size,
                       "size_g": layer.g.size, "examples": layer.examples, "rows": layer.rows,
                       "weight": _part_json(layer.weight), "bias": _part_json(layer.bias)})
    header = {"examples": curvature.examples, "loss": curvature.loss, "layers": layers, "terms": curvature.terms,
              "about": curvature.about,
              "parameters": {name: list(shape) for name, shape in curvature.parameters.items()}}
    _core.write_tensors(str(path), {"format": FORMAT, "curvature": json.dumps(header)}, tensors)


def load(path: str | Path) -> dict[str, Any]:
    """The arguments of Curvature."""
    metadata, tensors = _core.read_tensors(str(path))
    if metadata.get("format") != FORMAT:
        raise ConfigError(f"{path}: format={metadata.get('format')}, not {FORMAT}; pass a file that Curvature.save() "
                          "wrote")
    try:
        header = json.loads(metadata["curvature"])
        layers = [_layer(own, tensors) for own in header["layers"]]
        return {"layers": layers, "parameters": {str(name): [int(size) for size in shape]
                                                 for name, shape in header["parameters"].items()},
                "examples": int(header["examples"]), "loss": float(header["loss"]),
                "terms": float(header["terms"]),
                "about": {str(key): str(value) for key, value in header["about"].items()}}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{path}: its header cannot be read ({type(error).__name__}: {error}); pass a file that "
                          "Curvature.save() wrote") from error


def _part_json(part: Part | None) -> dict[str, Any] | None:
    return None if part is None else {"name": part.name, "shape": list(part.shape), "outputs": part.outputs}


def _part(value: dict[str, Any] | None) -> Part | None:
    if value is None:
        return None
    outputs = value["outputs"]
    return Part(str(value["name"]), tuple(int(size) for size in value["shape"]),
                None if outputs is None else (int(outputs[0]), int(outputs[1])))


def _layer(own: dict[str, Any], tensors: dict[str, torch.Tensor]) -> LayerCurvature:
    name, groups = str(own["name"]), int(own["groups"])

    def factor(side: str) -> Factor:
        values, size = tensors[f"{name}.{side}"], int(own[f"size_{side.lower()}"])
        blocks = values.size(0) // groups
        if values.dim() != 3 or values.size(1) != values.size(2) or not (
                blocks * groups == values.size(0) and (blocks - 1) * values.size(1) < size <= blocks * values.size(1)):
            raise ValueError(f"{name}.{side} is {list(values.shape)} for {groups} groups of {size} rows")
        return Factor(values, size, groups)

    a, g, moments = factor("A"), factor("G"), tensors.get(f"{name}.moments")
    if moments is not None and moments.shape != (groups, g.size, a.size):
        raise ValueError(f"{name}.moments is {list(moments.shape)}, not {[groups, g.size, a.size]}")
    return LayerCurvature(name, str(own["kind"]), _part(own["weight"]), _part(own["bias"]), a, g,
                          float(own["examples"]), float(own["rows"]), moments)


def save_for_kronfluence(curvature: Curvature, folder: str | Path) -> None:
    """The covariances as kronfluence saves them; pass its folder `<output_dir>/<analysis>/factors_<name>`.

    It knows Linear and Conv2d without groups, sums over data and positions, and losses that are sums.
    """
    files: dict[str, dict[str, torch.Tensor]] = {
        name: {} for name in ("activation_covariance", "gradient_covariance", "num_activation_covariance_processed",
                              "num_gradient_covariance_processed")}
    if curvature.about.get("approximation") != "expand":
        raise ConfigError("curvature: kronfluence has expanded factors alone; pass approximation=\"expand\"")
    for name, layer in curvature.items():
        if layer.kind not in ("linear", "conv2d") or layer.groups != 1 or layer.weight is None \
                or layer.weight.outputs is not None:
            raise ConfigError(f"curvature: kronfluence has no layers like {name} ({layer.kind}, {layer.groups} "
                              "groups); leave it out (skip_layers=)")
        # A is Σãã/examples and G is Σgg/rows, times what makes it that of the loss (docs/curvature.md).
        of_loss = curvature.scale * layer.examples / curvature.examples
        rows = torch.tensor([round(layer.rows)], dtype=torch.int64)
        files["activation_covariance"][name] = layer.A * layer.examples
        files["gradient_covariance"][name] = layer.G * (layer.rows / of_loss)
        files["num_activation_covariance_processed"][name] = rows
        files["num_gradient_covariance_processed"][name] = rows
    Path(folder).mkdir(parents=True, exist_ok=True)
    for kind, tensors in files.items():
        _core.write_tensors(str(Path(folder) / f"{kind}.safetensors"), {"format": "pt"}, tensors)


def laplace_factors(curvature: Curvature, *, factor: float = 1.0) -> list[list[torch.Tensor]]:
    """The factors of laplace-torch's Kron, of the loss summed over all data: [G, A] of a weight and [G] of a bias.

    laplace-torch has no covariance between a layer's weight and bias. `factor`: 0.5 for its regression, where the
    loss is half the squared error.
    """
    scale = factor * curvature.examples / curvature.scale
    found: dict[str, list[torch.Tensor]] = {}
    for name, layer in curvature.items():
        if layer.groups != 1 or layer.kind not in ("linear", "conv1d", "conv2d", "conv3d") or any(
                part is not None and part.outputs is not None for part in (layer.weight, layer.bias)):
            raise ConfigError(f"curvature: laplace-torch has no layers like {name} ({layer.kind}, {layer.groups} "
                              "groups); leave it out (skip_layers=)")
        inputs = layer.a.size - (layer.bias is not None)
        a, g = layer.A, layer.G * scale
        if layer.weight is not None:
            found[layer.weight.name] = [g, a[:inputs, :inputs]]
        if layer.bias is not None:
            found[layer.bias.name] = [g * a[-1, -1]]
    return [found[name] for name in curvature.parameters]


def fit_laplace(laplace: Any, curvature: Curvature, outputs: int) -> None:
    """Gives laplace-torch's KronLaplace of all weights this curvature, instead of laplace.fit(loader).

    `outputs`: of the model for one example. All parameters of the model must be covered.
    """
    if getattr(laplace, "_key", None) != ("all", "kron"):
        raise ConfigError(f"curvature: {type(laplace).__name__} is no KronLaplace of all weights; make it by "
                          "laplace.Laplace(…, subset_of_weights=\"all\", hessian_structure=\"kron\")")
    regression = str(getattr(laplace.likelihood, "value", laplace.likelihood)) == "regression"
    factor = 0.5 if regression else 1.0
    factors = laplace_factors(curvature, factor=factor)
    mean = torch.nn.utils.parameters_to_vector(laplace.params).detach()
    if mean.numel() != curvature.numel:
        raise ConfigError(f"curvature: laplace-torch has {mean.numel()} parameters, but the curvature covers "
                          f"{curvature.numel}; it must cover all that are trained")
    laplace.model.eval()
    laplace._init_H()
    laplace.H_facs = laplace.H
    laplace.H_facs.kfacs = factors
    laplace.H = laplace.H_facs.decompose(damping=laplace.damping)
    laplace.mean, laplace.n_data, laplace.n_outputs = mean, curvature.examples, outputs
    laplace.model.output_size = outputs
    mean_loss = curvature.about.get("reduction") != "sum"
    laplace.loss = factor * curvature.loss * (curvature.terms if mean_loss else 1)
