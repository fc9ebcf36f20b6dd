// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "spdkfac/comm/logged_communicator.h"
#include "spdkfac/comm/mirrored_peers.h"
#include "spdkfac/plan/plan.h"
#include "spdkfac/runtime/factor_bank.h"
#include "spdkfac/runtime/layer_gradients.h"
#include "spdkfac/runtime/planned_step.h"
#include "support/device.h"
#include "support/models.h"

// One rank of several whose peers are taken to hold the same, so that one process can test what it
// sends: sums are `size` times its own, and what absent ranks broadcast is zeros.
namespace spdkfac::support {

// Two Linear layers without bias, 3 to 2 and 2 to 2 features, in double precision.
struct LoneRank {
  explicit LoneRank(int rank = 0, int size = 2, const KfacOptions& given = {})
      : communicator(std::make_shared<comm::MirroredPeers>(rank, size)),
        options(given),
        modules(make_modules()),
        layers(make_layers(modules)),
        model(tiny_model({{3, 2}, {2, 2}})),
        order({0, 1}, 2),
        incidents(layers, options, nullptr, ""),
        bank(layers, options, incidents, recorder),
        gradients({{modules[0]->weight}, {modules[1]->weight}}) {}

  static std::vector<torch::nn::Linear> make_modules() {
    torch::manual_seed(5);
    std::vector<torch::nn::Linear> modules;
    for (const int inputs : {3, 2}) {
      modules.emplace_back(torch::nn::LinearOptions(inputs, 2).bias(false));
      modules.back()->to(test_device(), at::kDouble);
    }
    return modules;
  }
  static std::vector<TrackedLayer> make_layers(const std::vector<torch::nn::Linear>& modules) {
    std::vector<TrackedLayer> layers;
    for (std::size_t i = 0; i < modules.size(); ++i) {
      layers.push_back({.name = "l" + std::to_string(i), .weight = modules[i]->weight, .bias = {}});
    }
    return layers;
  }

  // A call of a layer with random examples and the gradient of its output, as the capture shows
  // them; the layer has a gradient afterwards.
  void run(std::size_t layer, std::int64_t examples = 4) {
    const at::Tensor input =
        torch::randn({examples, modules[layer]->weight.size(1)}, test_options(at::kDouble));
    const at::Tensor output = modules[layer](input);
    const kfac::LayerUse use = kfac::layer_use(input, std::nullopt, false);
    const std::int64_t pass = bank.passes().on_call(use, input, output);
    bank.add({layer, FactorSide::kA}, {use, pass, input}, false);
    at::Tensor gradient;
    output.register_hook([&](const at::Tensor& one) { gradient = one; });
    output.square().mean().backward();
    bank.passes().on_gradient(pass);
    bank.add({layer, FactorSide::kG}, {use, pass, gradient}, false);
  }
  // Averages in what run() brought.
  void average(std::size_t layer) {
    const c10::NoGradGuard no_grad;
    for (const FactorSide side : {FactorSide::kA, FactorSide::kG}) {
      bank.state(layer).keep(side, true, true);
    }
    bank.average({{layer, FactorSide::kA}, {layer, FactorSide::kG}});
  }
  std::vector<std::string> sent() const {
    std::vector<std::string> names;
    for (const auto& record : communicator.calls()) names.push_back(record.what);
    return names;
  }

  comm::LoggedCommunicator communicator;
  KfacOptions options;
  std::vector<torch::nn::Linear> modules;
  std::vector<TrackedLayer> layers;
  ModelSpec model;
  runtime::LayerOrder order;
  runtime::Incidents incidents;
  runtime::StepRecorder recorder;
  runtime::FactorBank bank;
  runtime::LayerGradients gradients;
};

// A plan of that model: each message's members, all-reduced.
inline Plan hand_made_plan(const std::vector<std::vector<Member>>& messages,
                           std::vector<FactorPlacement> factors = {}, int world = 2,
                           const std::string& algorithm = "spd-kfac") {
  const ModelSpec model = tiny_model({{3, 2}, {2, 2}});
  Plan plan;
  plan.algorithm = algorithm;
  plan.options = preset(algorithm);
  plan.world = world;
  plan.placements = std::move(factors);
  for (const std::vector<Member>& members : messages) {
    Message message{.members = members, .elements = 0, .route = {}};
    for (const Member& member : members) {
      const LayerSpec& layer = model.layers[static_cast<std::size_t>(member.layer)];
      message.elements += member_size(layer, member.kind).elements;
    }
    plan.messages.push_back(std::move(message));
  }
  return plan;
}

inline FactorPlacement placed(int layer, FactorSide side, std::optional<int> owner,
                              bool sends_gradient = false) {
  const std::int64_t dim = layer == 0 && side == FactorSide::kA ? 3 : 2;
  return {layer, side, dim, owner, sends_gradient};
}

inline at::Tensor upper_triangle(const at::Tensor& matrix) {
  const std::int64_t dim = matrix.size(0);
  const at::Tensor index = at::triu_indices(dim, dim, 0, at::kLong).to(matrix.device());
  return matrix.index({index[0], index[1]});
}

}  // namespace spdkfac::support
