// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/bank_state.h"

#include <algorithm>
#include <set>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/comm/rank_values.h"
#include "spdkfac/runtime/counters_json.h"

namespace spdkfac::runtime {
namespace {

constexpr const char* kRemedy = "load a state of this model";

std::string side_prefix(FactorSide side) { return side == FactorSide::kA ? "a_" : "g_"; }

bool flag_of(const KfacState& state, const std::string& name) {
  return state.tensors.at(name).item<std::int64_t>() != 0;
}

[[noreturn]] void fail(const std::string& what) {
  throw ConfigError(fmt::format("kfac state: {}; {}", what, kRemedy));
}

void check_options(const KfacState& state, const KfacOptions& options) {
  options_of_digest(options, state.options);
  for (const auto& [name, field] : counter_fields()) {
    if (state.counters.*field < 0) fail(fmt::format("{} is {}", name, state.counters.*field));
  }
}

}  // namespace

BankState::BankState(FactorBank& bank, Residence& residence) : bank_(bank), residence_(residence) {
  for (std::size_t layer = 0; layer < bank_.size(); ++layer) {
    for (Named& one : tensors_of(layer)) {
      items_.push_back(one.item);
      specs_.push_back(std::move(one.spec));
    }
  }
}

std::string BankState::name(std::size_t layer, const std::string& key) const {
  return bank_.name(layer) + "." + key;
}

std::vector<BankState::Named> BankState::tensors_of(std::size_t layer) const {
  using Kind = Item::Kind;
  std::vector<Named> all;
  all.push_back({{Kind::kAveraged, {layer, FactorSide::kA}}, {name(layer, "averaged"), "I64", {}}});
  all.push_back({{Kind::kStale, {layer, FactorSide::kA}}, {name(layer, "stale"), "I64", {}}});
  const LayerState& state = bank_.state(layer);
  if (state.new_diagonal(FactorSide::kA, at::kMeta).defined()) {
    all.push_back(
        {{Kind::kRefresh, {layer, FactorSide::kA}}, {name(layer, "refresh"), "F64", {3}}});
  }
  for (const FactorSide side : {FactorSide::kA, FactorSide::kG}) {
    // Shapes and types without memory.
    const auto add = [&](Kind kind, const std::vector<StatePart>& parts) {
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const std::string full = name(layer, side_prefix(side) + parts[i].key);
        all.push_back({{kind, {layer, side}, i}, packed_spec(full, parts[i])});
      }
    };
    add(Kind::kAverage,
        parts_of(state.new_average(side, at::kMeta), state.new_diagonal(side, at::kMeta)));
    add(Kind::kInverse,
        parts_of(state.new_inverse(side, at::kMeta), state.new_moments(side, at::kMeta),
                 state.new_basis_moments(side, at::kMeta)));
  }
  return all;
}

bool BankState::averaged(std::size_t layer) const {
  const LayerState& state = bank_.state(layer);
  return residence_.planned({layer, FactorSide::kA}) ||
         (state.has_averages() && state.has_inverses());
}

std::optional<int> BankState::keeper(const Item& item) const {
  const FactorResidence residence = residence_.of(item.id);
  if (item.kind == Item::Kind::kAverage) return residence.average;
  return item.kind == Item::Kind::kInverse ? residence.inverse : std::nullopt;
}

bool BankState::kept_elsewhere(const Item& item) const {
  const int rank = residence_.communicator().rank();
  return keeper(item).value_or(rank) != rank;
}

std::vector<StatePart> BankState::parts(const Item& item) const {
  const LayerState& layer = bank_.state(item.id.layer);
  const FactorSide side = item.id.side;
  if (item.kind == Item::Kind::kAverage) {
    if (layer.ready() && layer.factor(side).average) {
      return parts_of(*layer.factor(side).average, layer.factor(side).inverted);
    }
    return parts_of(layer.new_average(side, at::kCPU), layer.new_diagonal(side, at::kCPU));
  }
  if (layer.ready() && layer.factor(side).inverse) {
    const FactorState& own = layer.factor(side);
    return parts_of(*own.inverse, own.moments, own.basis_moments);
  }
  return parts_of(layer.new_inverse(side, at::kCPU), layer.new_moments(side, at::kCPU),
                  layer.new_basis_moments(side, at::kCPU));
}

at::Tensor BankState::read(std::size_t tensor) {
  const Item& item = items_.at(tensor);
  const LayerState& layer = bank_.state(item.id.layer);
  if (item.kind == Item::Kind::kAveraged) return at::full({}, averaged(item.id.layer), at::kLong);
  // Where factors travel each full step brings new ones: then inverses always are to be made.
  if (item.kind == Item::Kind::kStale) {
    return at::full({}, layer.stale || residence_.planned(item.id), at::kLong);
  }
  if (item.kind == Item::Kind::kRefresh) {
    const auto [renewed, change, coming] = layer.refresh;
    return at::tensor({renewed, change, coming}, at::kDouble);
  }
  const int root = keeper(item).value_or(0);
  const int rank = residence_.communicator().rank();
  const bool here = !kept_elsewhere(item);
  const bool travels = root != 0;
  const TensorSpec& spec = specs_[tensor];
  at::Tensor packed;
  if (here) {
    packed = packed_part(parts(item)[item.part]);
  } else if (travels) {
    packed =
        at::empty(spec.shape, layer.factor(item.id.side).sum.options().dtype(dtype_of(spec.dtype)));
  }
  if (travels) {
    const at::Tensor bytes = packed.reshape({-1}).view(at::kByte);
    residence_.communicator().broadcast_async(bytes, root, "state " + spec.name).wait();
  }
  if (!here && rank != 0) return {};
  // Never the tensor that the next step changes.
  return packed.is_cpu() ? packed.clone() : packed.cpu();
}

void BankState::check(const KfacState& state, const KfacOptions& options) const {
  check_options(state, options);
  std::set<std::string> expected;
  for (std::size_t layer = 0; layer < bank_.size(); ++layer) {
    for (const auto& [item, spec] : tensors_of(layer)) {
      expected.insert(spec.name);
      const auto found = state.tensors.find(spec.name);
      if (found == state.tensors.end()) {
        if (is_common(item)) fail(fmt::format("has no {}", spec.name));
        continue;
      }
      const at::Tensor& tensor = found->second;
      if (!tensor.defined() || tensor.layout() != at::kStrided || tensor.is_meta()) {
        fail(fmt::format("{} is no plain tensor", spec.name));
      }
      if (const TensorSpec own = spec_of(spec.name, tensor); own != spec) {
        fail(fmt::format("{} is {}, but {} here", spec.name, spec_text(own), spec_text(spec)));
      }
      const bool flag = item.kind == Item::Kind::kAveraged || item.kind == Item::Kind::kStale;
      if (flag && (tensor.item<std::int64_t>() & ~std::int64_t{1}) != 0) {
        fail(fmt::format("{} is {}, neither 0 nor 1", spec.name, tensor.item<std::int64_t>()));
      }
      if (!flag && !tensor.isfinite().all().item<bool>()) {
        fail(fmt::format("{} holds a NaN or an infinity", spec.name));
      }
    }
  }
  for (const auto& [name, tensor] : state.tensors) {
    if (!expected.contains(name)) fail(fmt::format("has {}, which the model has not", name));
  }
}

KfacState BankState::completed(KfacState state) const {
  Communicator& communicator = residence_.communicator();
  const at::Device device = bank_.state(0).layer().weight.device();
  std::vector<TensorSpec> specs;
  std::vector<double> there;    // whether this rank's state has the tensor
  std::vector<double> lacking;  // whether it must have it, and has not
  for (std::size_t layer = 0; layer < bank_.size(); ++layer) {
    for (const auto& [item, spec] : tensors_of(layer)) {
      const bool has = state.tensors.contains(spec.name);
      specs.push_back(spec);
      there.push_back(has ? 1 : 0);
      lacking.push_back(!has && !kept_elsewhere(item) ? 1 : 0);
    }
  }
  const std::vector<double> wanted = comm::largest_of_ranks(communicator, device, lacking);
  const auto ranks = comm::numbers_of_ranks(communicator, device, there);
  const auto owner_of = [&](std::size_t i) {
    const auto has = [&](const std::vector<double>& of_rank) { return of_rank[i] != 0; };
    return std::find_if(ranks.begin(), ranks.end(), has);
  };
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (wanted[i] != 0 && owner_of(i) == ranks.end()) fail(fmt::format("has no {}", specs[i].name));
  }
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (wanted[i] == 0) continue;
    const TensorSpec& spec = specs[i];
    const at::Tensor tensor =
        there[i] != 0 ? state.tensors.at(spec.name).to(device).contiguous()
                      : at::empty(spec.shape, at::device(device).dtype(dtype_of(spec.dtype)));
    const auto owner = static_cast<int>(owner_of(i) - ranks.begin());
    const at::Tensor bytes = tensor.reshape({-1}).view(at::kByte);
    communicator.broadcast_async(bytes, owner, "state " + spec.name).wait();
    if (lacking[i] != 0) state.tensors.emplace(spec.name, tensor.cpu());
  }
  return state;
}

void BankState::load(const KfacState& state) {
  for (std::size_t layer = 0; layer < bank_.size(); ++layer) {
    LayerState& own = bank_.state(layer);
    if (!flag_of(state, name(layer, "averaged"))) {
      own.forget();
      continue;
    }
    own.make_ready();
    own.stale = flag_of(state, name(layer, "stale"));
    if (const auto found = state.tensors.find(name(layer, "refresh"));
        found != state.tensors.end()) {
      const at::Tensor values = found->second.to(at::kCPU).contiguous();
      const double* value = values.const_data_ptr<double>();
      own.refresh = {value[0], value[1], value[2]};
    }
    for (const auto& [item, spec] : tensors_of(layer)) {
      if (is_common(item)) continue;
      if (kept_elsewhere(item)) continue;
      const FactorState& factor = own.factor(item.id.side);
      const bool average = item.kind == Item::Kind::kAverage;
      own.keep(item.id.side, average || factor.average, !average || factor.inverse);
      unpack_part(state.tensors.at(spec.name), parts(item)[item.part]);
    }
  }
  residence_.drop_what_others_keep();
}

}  // namespace spdkfac::runtime
