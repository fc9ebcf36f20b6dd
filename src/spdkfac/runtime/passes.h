// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "spdkfac/kfac/factor.h"
#include "spdkfac/runtime/kfac_options.h"
#include "spdkfac/runtime/node_reference.h"

namespace spdkfac::runtime {

// The passes of a step, and the number of examples of each, which is the same for all layers.
//
// Calls before the first gradient belong to one pass; the next call begins another one, as does one
// when the graphs of all earlier calls are gone. Calls that a backward pass makes, as reentrant
// checkpointing does, belong to the pass that it goes through.
//
// The examples are those of the pass's first call with rows: as the options say, else its dimension
// 0; a pass without such a call has none. Calls on a table of the model, and tables that are asked
// for rows in one dimension, tell only if nothing else does. For a Linear layer on three or more
// dimensions, or a table on two, it is
// dimension 1 where a loss of the first such pass has as many examples as that and as no other; so
// these are known when the first gradient comes.
class Passes {
 public:
  explicit Passes(const KfacOptions& options) : options_(options) {}

  // A call of a layer, or of another operator with a parameter of the model; `use` is what the
  // shape of its input suggests; `table`: is_table(). Returns the pass.
  std::int64_t on_call(const kfac::LayerUse& use, const at::Tensor& input, const at::Tensor& output,
                       bool table = false);
  // Whether the next call with rows says how many examples there are.
  bool asks_for_examples() const;
  // Whether this input comes from the model alone, as a table of positions does: from no earlier
  // call of the current pass, and so from none of its examples, and from no tensor without a past
  // that `of_model` does not know as one of the model's.
  bool is_constant(const at::Tensor& input,
                   const std::function<bool(const at::Tensor&)>& of_model) const;
  // Whether this input is a tensor of the model, at most reshaped or normalised, as learned queries
  // are. What was looked up in one is not: the places are examples.
  static bool is_table(const at::Tensor& input,
                       const std::function<bool(const at::Tensor&)>& of_model);
  // Whether this input has a single place for the examples and no past: one grid of positions for
  // all of them.
  static bool is_for_all(const kfac::LayerUse& use, const at::Tensor& input) {
    return use.examples == 1 && !input.requires_grad();
  }
  // What comes from the latest call alone does not come from the examples either.
  void set_constant() { graphs_.back().constant = true; }
  // A loss of this many examples was computed.
  void on_loss(std::int64_t batch);
  // A gradient has come through the pass; whether it is the first one.
  bool on_gradient(std::int64_t pass);

  // Whether the next call begins a pass.
  bool ended() const;
  // Whether the pass is one of this step.
  bool contains(std::int64_t pass) const { return pass >= first_; }
  // Whether the current pass has calls, but no gradient yet.
  bool open() const { return !passes_.empty() && !passes_.back().gradient; }
  // Whether the examples are known; decide() settles them.
  bool decided() const { return decided_ || !waiting_; }
  void decide();

  // 0 while the pass has no rows.
  std::int64_t examples(std::int64_t pass) const;
  // The examples of the step's first pass that has any; 0 before it.
  std::int64_t batch() const;
  // The losses that make up the gradients so far: the examples of passes that had one.
  std::int64_t terms() const;
  std::int64_t with_gradients() const;
  // Whether inputs have the examples as their second dimension.
  bool time_first() const { return time_first_; }

  // The next step begins.
  void clear();

 private:
  struct Pass {
    std::vector<std::int64_t> shape;       // of the first input with rows, where it decides
    std::optional<std::int64_t> examples;  // none: not known yet, or no rows so far
    std::optional<std::int64_t> rows;      // of a table's first call, if nothing else tells
    bool gradient = false;

    std::int64_t count() const { return examples.value_or(rows.value_or(0)); }
  };
  struct Graph {
    NodeReference node;
    bool constant = false;
  };
  bool graphs_gone() const;
  void count_examples(Pass& pass, const kfac::LayerUse& use, const at::Tensor& input);

  const KfacOptions& options_;
  std::int64_t first_ = 0;  // number of the first pass of this step
  std::vector<Pass> passes_;
  mutable std::deque<Graph> graphs_;  // of the calls of the current pass
  std::vector<std::int64_t> losses_;  // of this step, until decided
  bool decided_ = false;
  bool waiting_ = false;  // a pass waits for the decision
  bool time_first_ = false;
};

}  // namespace spdkfac::runtime
