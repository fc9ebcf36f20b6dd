// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/passes.h"

#include <algorithm>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>

#include "spdkfac/base/check.h"
#include "spdkfac/base/error.h"

namespace spdkfac::runtime {
namespace {

bool in_backward_pass() { return torch::autograd::get_current_graph_task_id() != -1; }

// Only there can time be the first dimension: where the first two are those of rows.
bool may_be_time_first(const kfac::LayerUse& use, const at::Tensor& input) {
  return !use.conv && input.dim() >= (use.lookup ? 2 : 3) &&
         use.rows() % (input.size(0) * input.size(1)) == 0;
}

}  // namespace

void Passes::count_examples(Pass& pass, const kfac::LayerUse& use, const at::Tensor& input) {
  if (options_.examples) {
    const std::int64_t examples = options_.examples(input.detach(), use.rows());
    if (examples < 1) {
      throw ConfigError(
          fmt::format("kfac: examples={} for a first input of {} rows; pass the number of examples "
                      "of a pass, at least 1",
                      examples, use.rows()));
    }
    pass.examples = examples;
  } else if (!may_be_time_first(use, input)) {
    pass.examples = use.examples;
  } else if (decided_) {
    pass.examples = input.size(time_first_ ? 1 : 0);
  } else {
    pass.shape = input.sizes().vec();
    waiting_ = true;
  }
}

bool Passes::asks_for_examples() const {
  return ended() || (!passes_.back().examples && passes_.back().shape.empty());
}

std::int64_t Passes::on_call(const kfac::LayerUse& use, const at::Tensor& input,
                             const at::Tensor& output, bool table) {
  if (ended()) {
    passes_.emplace_back();
    graphs_.clear();
  }
  Pass& pass = passes_.back();
  if (table) {
    if (!pass.rows) pass.rows = use.examples;
  } else if (use.lookup && use.lookup->own_rows) {
    if (use.rows() > 0 && !pass.rows) pass.rows = use.rows();
  } else if (use.rows() > 0 && !pass.examples && pass.shape.empty()) {
    count_examples(pass, use, input);
    // What has no loss before its first gradient is computed in the backward pass itself.
    if (in_backward_pass() && waiting_) decide();
  }
  graphs_.push_back({NodeReference(output.grad_fn()), table});
  return first_ + static_cast<std::int64_t>(passes_.size()) - 1;
}

bool Passes::is_constant(const at::Tensor& input,
                         const std::function<bool(const at::Tensor&)>& of_model) const {
  if (!input.grad_fn()) return of_model(input);
  std::unordered_set<const torch::autograd::Node*> calls;
  for (const Graph& graph : graphs_) {
    const auto node = graph.node.lock();
    if (node && !graph.constant) calls.insert(node.get());
  }
  std::unordered_set<const torch::autograd::Node*> seen;
  std::vector<const torch::autograd::Node*> next = {input.grad_fn().get()};
  while (!next.empty()) {
    const torch::autograd::Node* node = next.back();
    next.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    if (calls.contains(node)) return false;
    const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(node);
    if (leaf != nullptr && !of_model(leaf->variable)) return false;
    for (const torch::autograd::Edge& edge : node->next_edges())
      next.push_back(edge.function.get());
  }
  return true;
}

bool Passes::is_table(const at::Tensor& input,
                      const std::function<bool(const at::Tensor&)>& of_model) {
  static const std::set<std::string, std::less<>> kept = {"AliasBackward0",
                                                          "CloneBackward0",
                                                          "NativeLayerNormBackward0",
                                                          "PermuteBackward0",
                                                          "ReshapeAliasBackward0",
                                                          "SqueezeBackward0",
                                                          "SqueezeBackward1",
                                                          "TBackward0",
                                                          "ToCopyBackward0",
                                                          "TransposeBackward0",
                                                          "UnsafeViewBackward0",
                                                          "UnsqueezeBackward0",
                                                          "ViewBackward0"};
  const torch::autograd::Node* node = input.grad_fn().get();
  if (node == nullptr) return of_model(input);
  for (; node != nullptr; node = node->next_edge(0).function.get()) {
    if (const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(node)) {
      return leaf->variable.numel() == input.numel() && of_model(leaf->variable);
    }
    if (!kept.contains(node->name())) return false;
  }
  return false;
}

void Passes::on_loss(std::int64_t batch) {
  if (!decided_) losses_.push_back(batch);
}

bool Passes::on_gradient(std::int64_t pass) {
  SPDKFAC_CHECK(contains(pass), "a gradient of a pass of an earlier step");
  if (waiting_) decide();
  return !std::exchange(passes_[static_cast<std::size_t>(pass - first_)].gradient, true);
}

bool Passes::ended() const {
  if (passes_.empty()) return true;
  if (in_backward_pass()) return false;
  return passes_.back().gradient || graphs_gone();
}

bool Passes::graphs_gone() const {
  while (!graphs_.empty() && graphs_.front().node.expired()) graphs_.pop_front();
  return graphs_.empty();
}

void Passes::decide() {
  if (!waiting_) return;
  const auto waits = [](const Pass& pass) { return !pass.examples && !pass.shape.empty(); };
  const auto first = std::find_if(passes_.begin(), passes_.end(), waits);
  const auto known = [&](std::int64_t size) {
    return std::find(losses_.begin(), losses_.end(), size) != losses_.end();
  };
  time_first_ = known(first->shape[1]) && !known(first->shape[0]);
  for (Pass& pass : passes_) {
    if (waits(pass)) pass.examples = pass.shape[time_first_ ? 1 : 0];
  }
  decided_ = true;
  waiting_ = false;
  losses_.clear();
}

std::int64_t Passes::examples(std::int64_t pass) const {
  SPDKFAC_CHECK(contains(pass) && decided(), "the examples of a pass are not known");
  return passes_[static_cast<std::size_t>(pass - first_)].count();
}

std::int64_t Passes::batch() const {
  const auto first = std::find_if(passes_.begin(), passes_.end(),
                                  [](const Pass& pass) { return pass.count() > 0; });
  return first == passes_.end() ? 0 : first->count();
}

std::int64_t Passes::terms() const {
  std::int64_t terms = 0;
  for (const Pass& pass : passes_) terms += pass.gradient ? pass.count() : 0;
  return terms;
}

std::int64_t Passes::with_gradients() const {
  return std::count_if(passes_.begin(), passes_.end(),
                       [](const Pass& pass) { return pass.gradient; });
}

void Passes::clear() {
  first_ += static_cast<std::int64_t>(passes_.size());
  passes_.clear();
  graphs_.clear();
  losses_.clear();
  waiting_ = false;
}

}  // namespace spdkfac::runtime
