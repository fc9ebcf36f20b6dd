# SPDX-License-Identifier: Apache-2.0
"""Passes over a data set: what a curvature is made from."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn

from . import _core
from .errors import ConfigError, Error
from .kronecker import Factor, LayerCurvature, Part
from .layers import CoveredLayer, CoveredLayers, covered_layers, patterns_of
from .likelihoods import LossFunction, Reduction, loss_of
from .processes import communicator_of, own_group
from .wrapping import plain_name, reject_sharded, sharded_modules, unwrapped

Fisher = Literal["empirical", "mc", "exact"]
FISHERS = ("empirical", "mc", "exact")
Approximation = Literal["expand", "reduce"]
Precision = Literal["tf32", "fp32", "bf16"]
LargeFactors = Literal["diagonal", "blocks"]
Forward = Callable[[nn.Module, Any], tuple[Any, Any]]  # model and batch to outputs and targets
Progress = bool | Callable[[int, int | None], None]  # called with a batch's number and how many there are


@dataclass
class Found:
    """What passes over all data of all ranks gave."""

    layers: list[LayerCurvature]
    examples: int
    terms: float
    loss: float


class Passes:
    """A model, a loss, and how to go through data with them. Options are those of spdkfac.curvature()."""

    def __init__(self, model: nn.Module, loss: LossFunction, *, fisher: Fisher = "empirical", samples: int = 1,
                 seed: int = 0, approximation: Approximation = "expand", loss_reduction: Reduction = "mean",
                 forward: Forward | None = None, examples: Callable[[Any], int] | None = None,
                 only: Iterable[str] | None = None, layers: Iterable[str] | None = None,
                 skip_layers: Iterable[str] = (), partial_layers: Iterable[str] = (),
                 split: Mapping[str, int] | None = None, max_dimension: int = 8192,
                 large_factors: LargeFactors = "diagonal", precision: Precision = "fp32",
                 patch_memory: int = 256 << 20, progress: Progress = False,
                 process_group: dist.ProcessGroup | None = None, timeout: float = 60.0) -> None:
        if fisher not in FISHERS:
            raise ConfigError(f"curvature: fisher={fisher}; pass one of {', '.join(FISHERS)}")
        if samples < 1 or (samples != 1 and fisher != "mc"):
            raise ConfigError(f"curvature: samples={samples} with fisher={fisher}; pass at least 1, and more than 1 "
                              "only with fisher=\"mc\"")
        reject_sharded(model)
        if sharded_modules(model):
            raise ConfigError("curvature: the model is sharded by fully_shard, and no process has a whole weight; pass "
                              "the model before it is sharded, or a copy with its state")
        self.model = unwrapped(model)
        self.loss = loss_of(loss, loss_reduction)
        if fisher != "empirical":
            self.loss.require_likelihood(fisher)
        self.fisher, self.samples, self.seed = fisher, samples, seed
        self.forward, self.count, self._progress = forward or default_forward, examples or first_size, progress
        partial, parts = list(partial_layers), dict(split or {})
        covered = covered_layers(model, skip_layers=skip_layers, partial_layers=partial, split=parts)
        self.layers = chosen(covered, self.model, layers, only)
        self.about = {"fisher": fisher, "samples": str(samples), "seed": str(seed), "approximation": approximation,
                      "loss": type(loss).__name__ if isinstance(loss, nn.Module) else loss_name(loss),
                      "reduction": self.loss.reduction,
                      "layers": json.dumps({"partial_layers": partial, "split": parts})}
        if approximation == "reduce":
            reject_without_examples(self.layers, "approximation=reduce")
        options = _core.KfacOptions()
        options.sharing, options.precision, options.patch_memory = approximation, precision, patch_memory
        options.max_dimension, options.large_factors = max_dimension, large_factors
        options.validate()
        self._options = options
        self._device = self.layers[0].weight.device
        group = own_group(process_group, timeout)
        self._communicator = None if group is None else communicator_of(group, self._device, timeout)

    # --- what is known of the model ---

    def parameter_shapes(self) -> dict[str, torch.Size]:
        """Of the parameters that layers cover, in the model's order."""
        names = {part.name for layer in self._metadata() for part in (layer.weight, layer.bias) if part is not None}
        return {name: p.shape for name, p in self._named_parameters() if name in names}

    def _named_parameters(self) -> list[tuple[str, nn.Parameter]]:
        return [(plain_name(name), p) for name, p in self.model.named_parameters()]

    def _metadata(self) -> list[LayerCurvature]:
        """The layers without factors."""
        names = {id(p): name for name, p in self._named_parameters()}
        empty = Factor(torch.empty(0, 1, 1), 0, 1)

        def part(parameter: torch.Tensor | None, outputs: tuple[int, int] | None) -> Part | None:
            if parameter is None or not parameter.requires_grad:
                return None
            return Part(names[id(parameter)], tuple(parameter.shape), outputs)

        return [LayerCurvature(layer.name, layer.kind, part(layer.weight, layer.outputs),
                               part(layer.bias, layer.bias_outputs), replace(empty, groups=layer.groups),
                               replace(empty, groups=layer.groups), 0, 0) for layer in self.layers]

    # --- the passes ---

    def factors(self, data: Iterable[Any]) -> Found:
        """A and G of all layers, scaled so that their products are the Fisher matrix of the loss."""
        core = self._new_core()
        examples: float = 0
        terms: float | torch.Tensor = 0.0
        total: float | torch.Tensor = 0.0
        with evaluating(self.model):
            for batch in self._batches(data):
                core.begin(batch.examples, sums=True)
                batch.run()
                for outputs, vector, again in self._vectors(batch):
                    core.backward(outputs, vector, again=again)
                core.end()
                examples += batch.examples
                terms += batch.terms
                total += batch.total
        examples, m, whole = self._over_ranks([examples, terms, total], "examples of the curvature")
        if examples == 0:
            raise ConfigError("curvature: the data have no batch; pass an iterable that can be gone through, with at "
                              "least one batch")
        if m == 0:
            raise ConfigError("curvature: the loss has no term; give targets that are not all ignored")
        scale = scale_of(self.fisher, self.loss.reduction, examples, m)
        layers: list[LayerCurvature] = []
        for layer, (a, g, seen, rows) in zip(self._metadata(), core.factors(self._communicator), strict=True):
            covered = self.layers[len(layers)]
            inputs = size_of_a(covered)
            g = g * (scale * seen / examples)
            layers.append(replace(layer, a=Factor(a, inputs, covered.groups),
                                  g=Factor(g, covered.count // covered.groups, covered.groups),
                                  examples=seen, rows=rows))
        mean = self.loss.reduction == "mean"
        return Found(layers, int(examples), m, whole / m if mean else whole)

    def with_moments(self, layers: list[LayerCurvature], data: Iterable[Any]) -> list[LayerCurvature]:
        """EK-FAC: the layers with the second moments of examples' gradients in their eigenbases."""
        reject_without_examples(self.layers, "ekfac")
        sums = [torch.zeros_like(layer.eigenvalues) for layer in layers]
        examples: float = 0
        terms: float | torch.Tensor = 0.0
        core = self._new_core()
        with evaluating(self.model):
            for batch in self._batches(data):
                core.begin(batch.examples, sums=False)
                batch.run()
                for outputs, vector, again in self._vectors(batch):
                    core.backward(outputs, vector, again=again)
                    for layer, total, own in zip(layers, sums, core.example_gradients(), strict=True):
                        if own is not None:
                            total += layer.enter(own.to(total.dtype)).square().sum(0)
                core.end()
                examples += batch.examples
                terms += batch.terms
        examples, m = self._over_ranks([examples, terms], "examples of the moments")
        if examples == 0:
            raise ConfigError("curvature: the data of the second pass, for ekfac, have no batch; pass something that "
                              "can be gone through twice, such as a DataLoader or a list")
        if self._communicator is not None:
            for layer, total in zip(layers, sums, strict=True):
                self._communicator.all_reduce(total, f"moments of {layer.name}")
        scale = scale_of(self.fisher, self.loss.reduction, examples, m) / examples
        return [replace(layer, moments=total * scale) for layer, total in zip(layers, sums, strict=True)]

    def example_gradients(self, data: Iterable[Any]) -> Iterator[dict[str, torch.Tensor]]:
        """Of each batch by layer: each example's gradient of its own loss, [examples, groups, out, in]."""
        reject_without_examples(self.layers, "example_gradients")
        core = self._new_core()
        with evaluating(self.model):
            for batch in self._batches(data):
                core.begin(batch.examples, sums=False)
                batch.run()
                # The mean over all data is that of these losses; terms are shared out evenly.
                share = batch.examples / batch.terms if self.loss.reduction == "mean" else 1.0
                for outputs, vector, again in self._vectors(batch):
                    core.backward(outputs, vector, again=again)
                found = core.example_gradients()
                missing = [layer.name for layer, own in zip(self.layers, found, strict=True) if own is None]
                if missing:
                    raise ConfigError(f"curvature: no gradient came to {', '.join(missing)}; leave out layers that "
                                      "the data do not reach (skip_layers=)")
                yield {layer.name: own * share for layer, own in zip(self.layers, found, strict=True)
                       if own is not None}
                core.end()

    def _new_core(self) -> _core.Curvature:
        return _core.Curvature(self.layers, list(self.model.parameters()), self._options)

    def _batches(self, data: Iterable[Any]) -> Iterator[Batch]:
        count = len(data) if isinstance(data, Sized) else None
        # Each rank draws labels of its own, the same in each pass.
        rank = self._communicator.rank if self._communicator is not None else 0
        # The generator of the CPU uses the lower 32 bits alone.
        self._generator = torch.Generator(self._device).manual_seed(self.seed + rank * 2_654_435_761)
        for index, raw in enumerate(data):
            yield Batch(self, moved(raw, self._device))
            if callable(self._progress):
                self._progress(index + 1, count)
            elif self._progress:
                of = "" if count is None else f" of {count}"
                print(f"\rcurvature: batch {index + 1}{of}", end="", file=sys.stderr, flush=True)
        if self._progress is True:
            print(file=sys.stderr)

    def _vectors(self, batch: Batch) -> Iterator[tuple[torch.Tensor, torch.Tensor, bool]]:
        """What is backpropagated, and whether more follows."""
        if self.fisher == "empirical":
            total = batch.loss
            yield total, torch.ones_like(total), False
            return
        outputs: torch.Tensor = batch.outputs
        wide = outputs.detach().to(torch.promote_types(outputs.dtype, torch.float32))
        drawn: Iterator[torch.Tensor]
        if self.fisher == "mc":
            drawn = (self.loss.drawn(wide, batch.targets, self._generator) / self.samples ** 0.5
                     for _ in range(self.samples))
        else:
            drawn = self.loss.columns(wide, batch.targets, batch.examples)
        vector = next(drawn)
        for following in drawn:
            yield outputs, vector.to(outputs.dtype), True
            vector = following
        yield outputs, vector.to(outputs.dtype), False

    def _over_ranks(self, values: list[float | torch.Tensor], what: str) -> list[float]:
        total = torch.stack([torch.as_tensor(one, dtype=torch.float64, device=self._device) for one in values])
        if self._communicator is not None:
            self._communicator.all_reduce(total, what)
        result: list[float] = total.tolist()
        return result


class Batch:
    """A batch, and its forward pass."""

    def __init__(self, passes: Passes, raw: Any) -> None:
        self._passes, self._raw = passes, raw
        self.examples = passes.count(raw)

    def run(self) -> None:
        passes = self._passes
        try:
            with torch.enable_grad():
                self._go_through(passes)
        except RuntimeError as error:  # what torch makes of errors inside operators
            if not str(error).startswith(("kfac: ", "curvature: ")) or isinstance(error, Error):
                raise
            raise ConfigError(str(error)) from None

    def _go_through(self, passes: Passes) -> None:
        self.outputs, self.targets = passes.forward(passes.model, self._raw)
        if isinstance(self.outputs, torch.Tensor) and (self.outputs.dim() == 0
                                                       or self.outputs.size(0) % self.examples != 0):
            raise ConfigError(f"curvature: outputs of shape {list(self.outputs.shape)} for {self.examples} examples, "
                              "which must divide the first dimension; pass examples=, a function of the batch")
        if passes.fisher != "empirical" and not isinstance(self.outputs, torch.Tensor):
            raise ConfigError(f"curvature: fisher={passes.fisher} needs a tensor as the model's outputs, not "
                              f"{type(self.outputs).__name__}; pass forward=, which returns outputs and targets")
        self.loss = passes.loss.total(self.outputs, self.targets, self.examples)
        self.total = self.loss.detach().double()
        self.terms = passes.loss.terms(self.outputs, self.targets, self.examples)


def scale_of(fisher: str, reduction: str, examples: float, terms: float) -> float:
    """What makes of sums over terms, divided by the examples, the matrix of the loss.

    The loss of an example is the sum of its terms, times examples/terms for a mean: Hessians have this factor once,
    products of gradients twice.
    """
    if reduction == "sum":
        return examples
    share = examples / terms
    return share * share if fisher == "empirical" else share


def default_forward(model: nn.Module, batch: Any) -> tuple[Any, Any]:
    if isinstance(batch, Mapping) or not isinstance(batch, (tuple, list)) or len(batch) != 2:
        raise ConfigError(f"curvature: a batch is {type(batch).__name__}, not a pair of inputs and targets; pass "
                          "forward=, a function of the model and a batch that returns outputs and targets")
    inputs, targets = batch
    if isinstance(inputs, Mapping):
        return model(**inputs), targets
    return (model(*inputs) if isinstance(inputs, (tuple, list)) else model(inputs)), targets


def moved(value: Any, device: torch.device) -> Any:
    """A batch on the device."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, Mapping):
        return {key: moved(own, device) for key, own in value.items()}
    if isinstance(value, (tuple, list)):
        return [moved(own, device) for own in value]
    return value


def first_size(value: Any) -> int:
    """Dimension 0 of the first tensor in a batch."""
    values = [value]
    while values:
        one = values.pop(0)
        if isinstance(one, torch.Tensor) and one.dim() > 0:
            return one.size(0)
        if isinstance(one, Mapping):
            values[:0] = list(one.values())
        elif isinstance(one, (tuple, list)):
            values[:0] = list(one)
    raise ConfigError("curvature: a batch has no tensor that tells its number of examples; pass examples=, a "
                      "function of the batch")


def loss_name(loss: LossFunction) -> str:
    return getattr(loss, "__name__", type(loss).__name__)


def size_of_a(layer: CoveredLayer) -> int:
    """Rows of A: inputs of a group with all places of the kernel, and 1 for the bias."""
    trained = layer.weight.requires_grad
    outputs = layer.weight.size(1) if layer.kind in ("linear_in_out", "embedding") else layer.weight.size(0)
    if layer.kind.startswith("conv_transpose"):
        outputs = layer.weight.size(1) * layer.groups
    return (layer.weight.numel() // outputs if trained else 0) + (layer.bias is not None)


def reject_without_examples(layers: list[CoveredLayer], what: str) -> None:
    """Layers whose rows of one example are not told apart: inside attention time comes first, and is flattened."""
    inside = [layer.name for layer in layers if any(isinstance(each, nn.MultiheadAttention) for each in layer.around)]
    if inside:
        raise ConfigError(f"curvature: {what} needs the rows of each example, which are not known of {', '.join(inside)} "
                          "inside nn.MultiheadAttention; leave these layers out (skip_layers=)")


def chosen(covered: CoveredLayers, model: nn.Module, patterns: Iterable[str] | None,
           names: Iterable[str] | None) -> list[CoveredLayer]:
    """The layers that a pattern matches, or that have these names."""
    layers = covered.tracked
    if patterns is not None:
        searched = patterns_of("layers", patterns, model)
        layers = [layer for layer in layers if any(one.search(layer.name) for one in searched)]
    if names is not None:
        by_name = {layer.name: layer for layer in layers}
        if missing := [name for name in names if name not in by_name]:
            raise ConfigError(f"curvature: the model has no trained layer {', '.join(missing)}; pass the model that "
                              "the curvature was made of")
        layers = [by_name[name] for name in names]
    if not layers:
        raise ConfigError("curvature: no layer is left that has factors; the model's covered layers are "
                          f"{', '.join(covered.names) or 'none'}")
    return layers


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode; modules go back into their own afterwards."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
