// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "spdkfac/plan/layer_spec.h"

namespace spdkfac {

// Some outputs of a parameter: all, or `count` from the first.
struct OutputRange {
  std::int64_t first = 0;
  std::int64_t count = -1;

  bool all() const { return count < 0; }
};

// A parameter, or a range of it along one axis.
struct ParameterPart {
  ParameterPart(at::Tensor whole, OutputRange outputs = {}, std::int64_t along = 0)
      : parameter(std::move(whole)), range(outputs), axis(along) {}

  at::Tensor parameter;
  OutputRange range;
  std::int64_t axis = 0;

  // The part of the parameter, or of something of its shape, as a view.
  at::Tensor of(const at::Tensor& whole) const;
  at::Tensor gradient() const;              // undefined without one
  std::vector<std::int64_t> sizes() const;  // without a view: the parameter may have no memory now
  std::int64_t numel() const;
};

// What a kind of layer has of a factor, however small it is: all of it, or, where the rest is zero
// or is left out, its diagonal.
enum class FactorForm { kWhole, kDiagonal };

// A layer that K-FAC covers, known by its weight: any operator of its kind that uses this weight is
// the layer. Several layers may be ranges of one weight.
struct TrackedLayer {
  std::string name;
  at::Tensor weight;     // laid out as its kind says (runtime/kinds)
  at::Tensor bias = {};  // undefined without one
  // Of a weight that is whole only within passes and in step(): the part of it that this rank
  // keeps, which has a gradient between passes. Undefined otherwise.
  at::Tensor shard = {};
  std::int64_t groups = 1;  // of a convolution; each has factors of its own
  LayerKind kind = LayerKind::kLinear;
  OutputRange outputs = {};       // of the weight
  OutputRange bias_outputs = {};  // of the bias
  bool frozen_weight = false;     // the bias alone is trained
  FactorForm form_a = FactorForm::kWhole;
  FactorForm form_g = FactorForm::kWhole;
  // Whether forward passes count now: false in evaluation mode.
  std::function<bool()> training = [] { return true; };
  // Sees only some of the examples, as an expert does: its rows are its examples.
  bool partial = false;
  // What the modules around the layer hold beside parameters, as tables of positions.
  std::function<std::vector<at::Tensor>()> buffers = [] { return std::vector<at::Tensor>(); };

  ParameterPart weight_part() const;
  ParameterPart bias_part() const { return {bias, bias_outputs}; }
  // Undefined where there is none.
  at::Tensor weight_gradient() const;
  at::Tensor bias_gradient() const;
  // The parameter whose gradient tells whether the layer has one: the weight if it is trained.
  const at::Tensor& leading() const { return frozen_weight ? bias : weight; }
  bool has_gradient() const;

  // Inputs of one group with all places of the kernel, 0 for a frozen weight; outputs of all.
  std::int64_t inputs_of_group() const;
  std::int64_t all_outputs() const;
  // Rows of the factors of one group; factor_shapes.h says what is kept of them.
  std::int64_t d_a() const { return inputs_of_group() + (bias.defined() && !has_units() ? 1 : 0); }
  std::int64_t d_g() const { return all_outputs() / groups; }
  // Whether weight and bias have an element for each unit, as those of norms.
  bool has_units() const;
};

// The layers of a model that K-FAC covers (runtime/kinds), in the order of its modules; each weight
// once. Names of other modules that hold parameters of their own, as `name (type)`, go to
// `uncovered` if given; norms neither here nor there, unless they are to be covered.
std::vector<TrackedLayer> tracked_layers(torch::nn::Module& model,
                                         std::vector<std::string>* uncovered = nullptr,
                                         bool norms = false);

// What is frozen has no gradient to precondition: such a bias is no part of A, and of such a weight
// nothing is; a layer without both is left out. None left is a ConfigError.
std::vector<TrackedLayer> trained_layers(std::vector<TrackedLayer> layers);

// What the layer trains of its weight and of its bias.
std::vector<ParameterPart> own_parameters(const TrackedLayer& layer);
// Those of `parameters` outside the layers.
std::vector<at::Tensor> other_parameters(const std::vector<at::Tensor>& parameters,
                                         const std::vector<TrackedLayer>& layers);

}  // namespace spdkfac
