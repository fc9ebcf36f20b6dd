// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/curvature.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include "spdkfac/base/check.h"
#include "spdkfac/base/error.h"
#include "spdkfac/base/log.h"
#include "spdkfac/kfac/example_gradients.h"
#include "spdkfac/kfac/symmetric.h"
#include "spdkfac/runtime/capture.h"
#include "spdkfac/runtime/factor_bank.h"

namespace spdkfac {
namespace {

// What makes sums over a data set of the factors of batches.
KfacOptions summing(KfacOptions options, const std::int64_t& examples) {
  options.convention = Convention::kKfc;
  options.loss_reduction = LossReduction::kSum;  // a vector belongs to one example
  options.running_average = 0.5;                 // the first factor, of all data, is taken whole
  options.identity_start = false;
  options.interval = Refresh::kFixed;
  options.graft = Graft::kNone;
  options.factor_rows = 0;
  options.examples = [&examples](const at::Tensor&, std::int64_t) { return examples; };
  return options;
}

std::vector<TrackedLayer> in_every_mode(std::vector<TrackedLayer> layers) {
  for (TrackedLayer& layer : layers) layer.training = [] { return true; };
  return layers;
}

}  // namespace

class Curvature::Impl : public runtime::CaptureSink, public std::enable_shared_from_this<Impl> {
 public:
  Impl(std::vector<TrackedLayer> tracked, const std::vector<at::Tensor>& parameters,
       const KfacOptions& given)
      : layers(in_every_mode(trained_layers(std::move(tracked)))),
        gradients(layers.size()),
        parameters_(parameters),
        rows_(layers.size(), 0),
        options_(summing(given, examples_)),
        incidents_(layers, options_, make_logger({.level = "error"}), ""),
        bank_(layers, options_, incidents_, recorder_) {
    validate(options_);
  }

  bool wants(std::size_t) override { return examples_ > 0; }
  bool wants_every_gradient() const override { return true; }

  std::function<void(const at::Tensor&)> on_call(std::size_t layer, const kfac::LayerUse& use,
                                                 const at::Tensor& input,
                                                 const at::Tensor& output) override {
    // As it is now: an activation may change the output in place.
    edges_.push_back(torch::autograd::impl::gradient_edge(output));
    const bool sums = purpose_ == Purpose::kFactors;
    if (sums) rows_[layer] += static_cast<double>(use.rows());
    const std::int64_t pass = bank_.on_call(
        layer, use, input, output,
        [this](const at::Tensor& tensor) { return is_parameter(tensor); }, sums,
        /*defer=*/false);
    return [weak = weak_from_this(), layer, use, pass, batch = batch_,
            held = sums ? at::Tensor() : input.detach()](const at::Tensor& gradient) {
      const std::shared_ptr<Impl> self = weak.lock();
      if (self && self->batch_ == batch) self->on_gradient(layer, use, pass, held, gradient);
    };
  }

  void begin(std::int64_t examples, Purpose purpose) {
    if (examples < 1) {
      throw ConfigError(
          fmt::format("curvature: a batch of {} examples; pass at least 1", examples));
    }
    end();
    examples_ = examples;
    purpose_ = purpose;
  }

  void backward(const at::Tensor& outputs, const at::Tensor& vector, bool again) {
    SPDKFAC_CHECK(examples_ > 0, "backward() outside a batch");
    for (at::Tensor& one : gradients) one = at::Tensor();
    if (edges_.empty() || !outputs.requires_grad()) {
      throw ConfigError(
          "curvature: no call of any layer was seen; run the model's own forward pass with "
          "gradients on, without torch.compile, and return what it gives");
    }
    // Down to the outputs of layers alone, so that no gradient of a parameter is computed.
    torch::autograd::Engine::get_default_engine().execute(
        {torch::autograd::impl::gradient_edge(outputs)}, {vector}, again, /*create_graph=*/false,
        /*accumulate_grad=*/false, edges_);
  }

  void end() {
    const c10::NoGradGuard no_grad;
    ++batch_;
    examples_ = 0;
    edges_.clear();
    for (at::Tensor& one : gradients) one = at::Tensor();
    bank_.next_batch();
  }

  std::vector<LayerFactors> factors(Communicator& communicator) {
    const c10::NoGradGuard no_grad;
    end();
    std::vector<runtime::FactorId> ids;
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      for (const FactorSide side : {FactorSide::kA, FactorSide::kG}) {
        bank_.state(layer).keep(side, /*average=*/true, /*inverse=*/false);
        ids.push_back({layer, side});
      }
      // Several vectors of an example are one example.
      runtime::LayerState& state = bank_.state(layer);
      state.factor(FactorSide::kG).examples = state.factor(FactorSide::kA).examples;
    }
    const at::Tensor counts = counted(communicator);
    average(communicator, ids);
    std::vector<LayerFactors> result;
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      result.push_back({finished({layer, FactorSide::kA}, counts[layer].item<double>()),
                        finished({layer, FactorSide::kG}, counts[layer].item<double>()),
                        counts[layer].item<double>(),
                        counts[layers.size() + layer].item<double>()});
    }
    return result;
  }

  const std::vector<TrackedLayer> layers;
  std::vector<at::Tensor> gradients;  // of single examples
  std::optional<runtime::Capture> capture;

 private:
  bool is_parameter(const at::Tensor& tensor) const {
    return std::any_of(parameters_.begin(), parameters_.end(),
                       [&](const at::Tensor& one) { return one.is_same(tensor); });
  }

  void on_gradient(std::size_t layer, const kfac::LayerUse& use, std::int64_t pass,
                   const at::Tensor& input, const at::Tensor& gradient) {
    bank_.passes().on_gradient(pass);
    if (purpose_ == Purpose::kFactors) {
      return bank_.add({layer, FactorSide::kG}, {use, pass, gradient}, /*defer=*/false);
    }
    if (layers[layer].partial || use.by_example || use.rows() % examples_ != 0) {
      throw ConfigError(
          fmt::format("curvature: layer {} has {} rows for {} examples, so the gradients of single "
                      "examples are "
                      "not known; leave it out (skip_layers=)",
                      layers[layer].name, use.rows(), examples_));
    }
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const at::Tensor own = kfac::example_gradients(input, gradient, use.of_examples(examples_),
                                                   layers[layer].weight.size(0));
    at::Tensor& sum = gradients[layer];
    sum = sum.defined() ? sum + own : own;
  }

  // The examples of all ranks for each layer, then the rows.
  at::Tensor counted(Communicator& communicator) {
    std::vector<double> counts;
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      counts.push_back(static_cast<double>(bank_.state(layer).factor(FactorSide::kA).examples));
    }
    counts.insert(counts.end(), rows_.begin(), rows_.end());
    const at::Device device = layers.front().weight.device();
    const at::Tensor total = at::tensor(counts, at::kDouble).to(device);
    communicator.all_reduce_async(total, "examples of layers").wait();
    return total.cpu();
  }

  // One message for each factor; alone nothing needs to be packed.
  void average(Communicator& communicator, const std::vector<runtime::FactorId>& ids) {
    if (communicator.size() == 1) {
      std::vector<runtime::FactorId> captured;
      for (const runtime::FactorId id : ids) {
        if (bank_.state(id.layer).captured()) captured.push_back(id);
      }
      return bank_.average(captured);
    }
    std::vector<runtime::FactorBank::Packed> packed;
    std::vector<Work> works;
    for (const runtime::FactorId id : ids) {
      const runtime::FactorState& state = bank_.state(id.layer).factor(id.side);
      const std::int64_t elements = state.shape.packed();
      const at::Tensor buffer = at::zeros({elements + 1}, state.sum.options());
      packed.push_back({id, buffer.narrow(0, 0, elements), buffer.narrow(0, elements, 1)});
      bank_.pack({packed.back()}, /*timed=*/false);
      works.push_back(communicator.all_reduce_async(
          buffer, fmt::format("factor {} of {}", id.side == FactorSide::kA ? "A" : "G",
                              layers[id.layer].name)));
    }
    for (const Work& work : works) work.wait();
    bank_.average_packed(packed);
  }

  at::Tensor finished(runtime::FactorId id, double examples) {
    const std::string& name = layers[id.layer].name;
    if (examples == 0) {
      throw ConfigError(fmt::format(
          "curvature: layer {} was not called; leave it out (skip_layers=), or give data that "
          "reach it",
          name));
    }
    const kfac::RunningAverage& average = *bank_.state(id.layer).factor(id.side).average;
    if (average.weight().item<double>() == 1) {  // nothing was taken
      throw NumericalError(fmt::format(
          "curvature: factor {} of layer {} is not finite, or no gradient came to the layer; look "
          "at the data and the model's outputs",
          id.side == FactorSide::kA ? "A" : "G", name));
    }
    at::Tensor whole = average.mean();
    kfac::mirror_upper(whole);
    return whole;
  }

  const std::vector<at::Tensor> parameters_;
  std::int64_t examples_ = 0;  // of the batch; 0 between batches
  Purpose purpose_ = Purpose::kFactors;
  std::int64_t batch_ = 0;
  torch::autograd::edge_list edges_;  // of the outputs of the batch's calls
  std::vector<double> rows_;          // of the calls of each layer

  const KfacOptions options_;
  runtime::Incidents incidents_;
  runtime::StepRecorder recorder_;
  runtime::FactorBank bank_;
};

Curvature::Curvature(std::vector<TrackedLayer> layers, const std::vector<at::Tensor>& parameters,
                     const KfacOptions& options)
    : impl_(std::make_shared<Impl>(std::move(layers), parameters, options)) {
  impl_->capture.emplace(impl_->layers, impl_);
}

Curvature::Curvature(torch::nn::Module& model, const KfacOptions& options)
    : Curvature(tracked_layers(model), model.parameters(), options) {}

Curvature::~Curvature() = default;

const std::vector<TrackedLayer>& Curvature::layers() const { return impl_->layers; }

void Curvature::begin(std::int64_t examples, Purpose purpose) { impl_->begin(examples, purpose); }

void Curvature::backward(const at::Tensor& outputs, const at::Tensor& vector, bool again) {
  impl_->backward(outputs, vector, again);
}

const std::vector<at::Tensor>& Curvature::example_gradients() const { return impl_->gradients; }

void Curvature::end() { impl_->end(); }

std::vector<Curvature::LayerFactors> Curvature::factors(Communicator& communicator) {
  return impl_->factors(communicator);
}

}  // namespace spdkfac
