// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "spdkfac/comm/communicator.h"
#include "spdkfac/runtime/kfac_options.h"
#include "spdkfac/runtime/tracked_layer.h"

namespace spdkfac {

// The Kronecker factors of a model's layers over a data set, and gradients of single examples. For
// each batch:
//   curvature.begin(examples);
//   outputs = model->forward(inputs);
//   curvature.backward(outputs, vector);  // once or several times
//   curvature.end();
// A vector has the shape of the outputs: for each example the gradient of its loss, or a column of
// a root of its loss's Hessian. A counts once however many vectors there are; G is a sum over them.
//
// Layers are seen as by a Preconditioner, but in evaluation mode, too; gradients of parameters are
// not made. Not thread-safe.
class Curvature {
 public:
  explicit Curvature(torch::nn::Module& model, const KfacOptions& options = {});
  // Of the options it takes sharing, max_dimension, large_factors, patch_memory and precision.
  // `parameters` are all of the model's.
  Curvature(std::vector<TrackedLayer> layers, const std::vector<at::Tensor>& parameters,
            const KfacOptions& options = {});
  ~Curvature();
  Curvature(const Curvature&) = delete;
  Curvature& operator=(const Curvature&) = delete;

  const std::vector<TrackedLayer>& layers() const;

  // What the calls of the next batch are for.
  enum class Purpose {
    kFactors,           // they become part of A and G
    kExampleGradients,  // example_gradients() has the gradients of the last vector
  };
  void begin(std::int64_t examples, Purpose purpose = Purpose::kFactors);
  // `again`: another vector follows, so the graph of the outputs is kept.
  void backward(const at::Tensor& outputs, const at::Tensor& vector, bool again = false);
  // Of each layer, [examples, groups, out, in·kernel | bias] as kfac::join_gradient() lays out one
  // gradient; undefined where no gradient came.
  const std::vector<at::Tensor>& example_gradients() const;
  void end();

  // A = Σããᵀ/N and G = Σggᵀ/(N·S), with sums over all batches of all ranks, as FactorShape lays
  // them out, both triangles; N counts the examples that the layer saw (of a partial one its rows).
  // A layer that nobody called, and sums that are not finite, are errors. All ranks call it once,
  // after the last batch.
  struct LayerFactors {
    at::Tensor a;
    at::Tensor g;
    double examples = 0;
    double rows = 0;  // of its calls: examples times positions
  };
  std::vector<LayerFactors> factors(Communicator& communicator);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace spdkfac
