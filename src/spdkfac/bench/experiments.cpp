// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/bench/experiments.h"

#include <initializer_list>

namespace spdkfac::bench {
namespace {

std::vector<Variant> presets(std::initializer_list<const char*> algorithms) {
  std::vector<Variant> variants;
  for (const char* algorithm : algorithms) variants.push_back(variant_of(algorithm));
  return variants;
}

// SPD-KFAC with inverses placed otherwise.
Variant placed(const char* label, PlacementKind placement) {
  Variant variant{label, preset("spd-kfac")};
  variant.options.placement = placement;
  return variant;
}

Variant named(const char* label, const char* algorithm) { return {label, preset(algorithm)}; }

}  // namespace

Variant variant_of(const std::string& algorithm) {
  Variant variant{algorithm, preset(algorithm)};
  for (const AlgorithmInfo& info : named_algorithms()) {
    if (info.name == algorithm && !info.paper_name.empty()) variant.label = info.paper_name;
  }
  return variant;
}

const std::vector<Experiment>& experiments() {
  static const std::vector<Experiment> list = {
      {"iteration", "Iteration times and speed-ups",
       presets({"sgd", "d-kfac", "mpd-kfac", "spd-kfac", "optimal-fusion", "auto"})},
      {"breakdown",
       "Where an iteration's time goes",
       {Variant{"SGD", preset("sgd"), 1}, Variant{"KFAC", preset("kfac"), 1}, variant_of("sgd"),
        variant_of("d-kfac"), variant_of("mpd-kfac"), variant_of("spd-kfac"), variant_of("auto")},
       report::RunTable::kBreakdown},
      {"pipelining", "Ways to send factors while others are computed",
       presets({"naive", "lw-none", "lw-threshold", "sp-otf", "optimal-fusion"}),
       report::RunTable::kPipelining},
      {"placement",
       "Who inverts which factor",
       {placed("Non-Dist", PlacementKind::kReplicated),
        placed("Seq-Dist", PlacementKind::kSequential), placed("LBP", PlacementKind::kBalanced),
        placed("lpt", PlacementKind::kLpt)},
       report::RunTable::kPlacement},
      {"ablation",
       "Pipelining and load balancing, alone and together",
       {named("-Pipe-LBP", "d-kfac"), named("+Pipe-LBP", "pipe"), named("-Pipe+LBP", "lbp"),
        named("+Pipe+LBP", "spd-kfac")},
       report::RunTable::kAblation},
      {"scaling", "Iteration times by number of ranks",
       presets({"sgd", "d-kfac", "mpd-kfac", "spd-kfac", "auto"}), report::RunTable::kScaling},
      {"memory", "Memory that each rank holds between steps (under mpirun)",
       presets({"d-kfac", "mpd-kfac", "spd-kfac", "owner-reduce", "owner-blocks", "auto"}),
       report::RunTable::kIteration, /*memory=*/true},
  };
  return list;
}

}  // namespace spdkfac::bench
