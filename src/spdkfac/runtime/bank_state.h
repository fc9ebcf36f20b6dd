// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "spdkfac/runtime/factor_bank.h"
#include "spdkfac/runtime/kfac_state.h"
#include "spdkfac/runtime/residence.h"

namespace spdkfac::runtime {

// The bank as the tensors of a KfacState. Every layer has all of its tensors, also before its first
// call; `averaged` says whether they mean anything.
class BankState {
 public:
  BankState(FactorBank& bank, Residence& residence);

  // The same on all ranks.
  const std::vector<TensorSpec>& specs() const { return specs_; }
  // Collective where a single rank keeps the tensor; see KfacStateStream.
  at::Tensor read(std::size_t tensor);

  // A ConfigError says why the state is not one for this bank, which was made with these options.
  // Tensors may be missing.
  void check(const KfacState& state, const KfacOptions& options) const;
  // The state that check() has accepted, with what this rank must keep and its state lacks from a
  // rank whose state has it. What no rank has is a ConfigError on all of them. Collective.
  KfacState completed(KfacState state) const;
  // What completed() returned.
  void load(const KfacState& state);

 private:
  // Where a tensor belongs.
  struct Item {
    enum class Kind { kAveraged, kStale, kRefresh, kAverage, kInverse };
    Kind kind;
    FactorId id;
    std::size_t part = 0;  // of the average or the inverse
  };
  struct Named {
    Item item;
    TensorSpec spec;
  };
  std::vector<Named> tensors_of(std::size_t layer) const;
  std::string name(std::size_t layer, const std::string& key) const;
  bool averaged(std::size_t layer) const;
  // What every rank has, and every state must have.
  static bool is_common(const Item& item) {
    return item.kind != Item::Kind::kAverage && item.kind != Item::Kind::kInverse;
  }
  bool kept_elsewhere(const Item& item) const;
  std::optional<int> keeper(const Item& item) const;
  // Of the average or inverse on this rank; made on the CPU if there is none.
  std::vector<StatePart> parts(const Item& item) const;

  FactorBank& bank_;
  Residence& residence_;
  std::vector<Item> items_;
  std::vector<TensorSpec> specs_;
};

}  // namespace spdkfac::runtime
