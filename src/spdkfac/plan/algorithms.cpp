// SPDX-License-Identifier: Apache-2.0
// The named algorithms: presets of PlanOptions.
#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/base/nearest_name.h"
#include "spdkfac/plan/plan_options.h"

namespace spdkfac {
namespace {

using S = FactorSchedule;
using F = Fusion;
using P = PlacementKind;

PlanOptions make(const std::string& name, FactorSchedule schedule, Fusion fusion,
                 PlacementKind placement) {
  PlanOptions options;
  options.algorithm = name;
  options.factor_schedule = schedule;
  options.fusion = fusion;
  options.placement = placement;
  return options;
}

std::vector<AlgorithmInfo> build_algorithms() {
  std::vector<AlgorithmInfo> list;
  const auto add = [&list](const std::string& name, const std::string& paper_name, S schedule,
                           F fusion, P placement, const std::string& summary) -> PlanOptions& {
    list.push_back({name, paper_name, summary, make(name, schedule, fusion, placement)});
    return list.back().options;
  };
  add("sgd", "S-SGD", S::kNone, F::kThreshold, P::kReplicated,
      "gradients only, sent while the backward pass runs");
  add("kfac", "KFAC", S::kBulk, F::kThreshold, P::kReplicated, "d-kfac on one rank");
  add("d-kfac", "D-KFAC", S::kBulk, F::kThreshold, P::kReplicated,
      "factors after the backward pass, every rank inverts everything");
  add("mpd-kfac", "MPD-KFAC", S::kBulk, F::kThreshold, P::kSequential,
      "like d-kfac; inverses are dealt out in turn and broadcast");
  add("spd-kfac", "SPD-KFAC", S::kPipelined, F::kGreedy, P::kBalanced,
      "the paper: pipelined factors, greedy fusion, balanced inverses");
  add("pipe", "+Pipe-LBP", S::kPipelined, F::kGreedy, P::kReplicated, "ablation: pipelining only");
  add("lbp", "-Pipe+LBP", S::kBulk, F::kThreshold, P::kBalanced,
      "ablation: load-balanced inverses only");
  add("naive", "Naive", S::kNaive, F::kThreshold, P::kBalanced,
      "A leaves after the forward pass, G after the backward pass");
  add("lw-none", "LW w/o TF", S::kPipelined, F::kNone, P::kBalanced,
      "layer by layer; every factor is a message");
  add("lw-threshold", "LW w/ TTF", S::kPipelined, F::kThreshold, P::kBalanced,
      "layer by layer; factors are fused up to a threshold");
  add("sp-otf", "SP w/ OTF", S::kPipelined, F::kGreedy, P::kBalanced,
      "the paper's fusion; the same as spd-kfac");
  add("optimal-fusion", "", S::kPipelined, F::kOptimal, P::kBalanced,
      "exact dynamic program over factors and gradients");
  add("owner-reduce", "", S::kPipelined, F::kGreedy, P::kBalanced,
      "factors reduced to the rank that inverts them")
      .factor_reduce = FactorReduce::kOwner;
  const auto owner_scheme = [](PlanOptions& options) {
    options.factor_reduce = FactorReduce::kOwner;
    options.exchange = Exchange::kGradient;
  };
  PlanOptions& spread = add("owner-precondition", "", S::kPipelined, F::kOptimal, P::kLpt,
                            "the owner preconditions its layers and sends gradients");
  owner_scheme(spread);
  PlanOptions& blocks = add("owner-blocks", "", S::kPipelined, F::kOptimal, P::kBlocks,
                            "like owner-precondition; an owner has consecutive layers");
  owner_scheme(blocks);
  return list;
}

// KAISA (arXiv 2107.01739): pipelined factors in buckets of 25 MiB, as its code sends them.
AlgorithmInfo kaisa(const std::string& name, double workers, const std::string& summary) {
  PlanOptions options = make(name, S::kPipelined, F::kBucket, P::kLpt);
  options.threshold_bytes = kMebibyte * 25;
  options.gradient_workers = workers;
  return {name, "", summary, options};
}

// DP-KFAC (arXiv 2206.15143): layers are dealt out in turn.
AlgorithmInfo dp_kfac() {
  PlanOptions options = make("dp-kfac", S::kBulk, F::kThreshold, P::kSequential);
  options.factor_reduce = FactorReduce::kLocal;
  options.gradient_workers = 0;
  return {"dp-kfac", "", "owners make factors of their own examples; none travel", options};
}

// Owners make updates from averaged gradients, and all ranks gather them, as Distributed Shampoo
// (arXiv 2309.06497) does.
AlgorithmInfo owned(const std::string& name, Method method, const std::string& summary) {
  PlanOptions options = make(name, S::kBulk, F::kThreshold, P::kLpt);
  options.method = method;
  options.factor_reduce = FactorReduce::kLocal;
  options.exchange = Exchange::kGather;
  return {name, "", summary, options};
}

std::vector<AlgorithmInfo> build_other_methods() {
  return {
      kaisa("kaisa-mem", 0, "KAISA: the owner of a layer preconditions it and sends the result"),
      kaisa("kaisa-hybrid", 0.5, "KAISA: half of the ranks precondition a layer"),
      kaisa("kaisa-comm", 1, "KAISA: every rank preconditions every layer"),
      dp_kfac(),
      owned("shampoo", Method::kShampoo, "Shampoo: owners make inverse roots and updates"),
      owned("soap", Method::kSoap, "SOAP: owners run Adam in Shampoo's eigenbasis"),
      owned("muon", Method::kMuon, "Muon: owners orthogonalise momentum")};
}

}  // namespace

const std::vector<AlgorithmInfo>& named_algorithms() {
  static const std::vector<AlgorithmInfo> list = build_algorithms();
  return list;
}

const std::vector<AlgorithmInfo>& other_methods() {
  static const std::vector<AlgorithmInfo> list = build_other_methods();
  return list;
}

PlanOptions preset(const std::string& algorithm) {
  if (algorithm == kAutoAlgorithm) {
    PlanOptions options;
    options.algorithm = kAutoAlgorithm;
    return options;
  }
  std::vector<std::string> names = {kAutoAlgorithm};
  for (const auto* list : {&named_algorithms(), &other_methods()}) {
    for (const AlgorithmInfo& info : *list) {
      if (info.name == algorithm) return info.options;
      names.push_back(info.name);
    }
  }
  throw ConfigError(fmt::format("algorithm: unknown name \"{}\"; {}", algorithm,
                                advice_for_name(algorithm, names)));
}

}  // namespace spdkfac
