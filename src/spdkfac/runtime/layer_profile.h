// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "spdkfac/base/factor_side.h"
#include "spdkfac/comm/communicator.h"
#include "spdkfac/plan/layer_spec.h"
#include "spdkfac/runtime/time_mark.h"

namespace spdkfac {

// What a rank has measured in some steps of a run.
struct RankProfile {
  // The three parts of a step behind which ranks wait for each other.
  enum Part { kPasses, kInverses, kPreconditioning };
  static constexpr std::size_t kParts = 3;

  std::vector<LayerTimes> layers;                  // means over the steps
  std::vector<std::array<Seconds, kParts>> steps;  // what each took in all
};

// Measures what layers take in the steps of a run. What lies between two visits of the capture is
// the forward pass up to a layer, or the backward pass behind it; the factors are timed apart.
class LayerProfile {
 public:
  explicit LayerProfile(std::size_t layers) : layers_(layers), preconditioned_(layers) {}

  // The capture visits a layer: after its operator has run, and when its output has a gradient.
  void visit_begins(std::size_t layer, FactorSide side, c10::Device device);
  void visit_ends(c10::Device device);
  void factor_computed(std::size_t layer, FactorSide side, TimeMark begin, TimeMark end);
  void preconditioned(std::size_t layer, TimeMark begin, TimeMark end);
  // Factors that were inverted together, and each one's part of the time.
  struct Inverted {
    std::size_t layer;
    FactorSide side;
    double part = 1;
  };
  void inverted(std::vector<Inverted> factors, TimeMark begin, TimeMark end);
  void clipped(TimeMark begin, TimeMark end);
  // The backward pass is over.
  void step_ends(c10::Device device);

  std::size_t steps() const { return steps_.size(); }
  // On a GPU this waits. The first forward pass has no visit before it: its time is set from that
  // of the others, by their arithmetic, and no part of a step has it. Clipping is spread by the
  // size of gradients; what was not preconditioned or inverted here has no time for it.
  RankProfile result(const std::vector<LayerSpec>& specs,
                     const std::vector<std::size_t>& order) const;

 private:
  struct Visit {
    std::size_t layer;
    FactorSide side;
    TimeMark begin;
    TimeMark end;
  };
  struct Step {
    std::vector<Visit> visits;
    std::vector<Visit> factors;
    TimeMark end;
  };

  struct Span {
    std::size_t step;
    TimeMark begin;
    TimeMark end;
    Seconds time() const { return TimeMark::between(begin, end); }
  };
  struct Inversion {
    std::vector<Inverted> factors;
    Span span;
  };
  // Of the step whose backward pass is over.
  Span span(TimeMark begin, TimeMark end) const;
  // None of no span.
  static std::optional<Seconds> mean(const std::vector<Span>& spans);
  std::vector<LayerTimes> times(const std::vector<LayerSpec>& specs,
                                const std::vector<std::size_t>& order) const;
  void add_inverses(std::vector<LayerTimes>& by_layer) const;
  // Calls visit(layer, side, time) for each pass through a layer in the step.
  template <class Visitor>
  static void for_each_pass(const Step& step, const Visitor& visit);

  std::size_t layers_;
  std::vector<std::vector<Span>> preconditioned_;  // by layer
  std::vector<Inversion> inversions_;
  std::vector<Span> clipped_;
  Step current_;
  std::vector<Step> steps_;
};

std::vector<RankProfile> profiles_of_ranks(const RankProfile& mine, Communicator& communicator,
                                           c10::Device device);

// The means of what ranks have measured; of preconditioning and inverses, those of the ranks that
// did it.
std::vector<LayerTimes> mean_times(const std::vector<RankProfile>& ranks);

// How long each part of each step took each rank, against the means; by step, then by rank.
std::vector<std::vector<Slowness>> slowness_of_steps(const std::vector<RankProfile>& ranks);

// The means, and each part of a step set to what the slowest rank took in it, the median of the
// steps: all others wait for it.
std::vector<LayerTimes> joined_times(const std::vector<RankProfile>& ranks);

}  // namespace spdkfac
