// SPDX-License-Identifier: Apache-2.0
#include <exception>
#include <memory>

#include <c10/core/GradMode.h>

#include "spdkfac/base/error.h"
#include "spdkfac/runtime/bank_state.h"
#include "spdkfac/runtime/preconditioner_impl.h"
#include "spdkfac/runtime/rank_agreement.h"

namespace spdkfac {

KfacStateStream Preconditioner::Impl::state() {
  incidents_.finish();
  refreshes_.settle();
  const auto state = std::make_shared<runtime::BankState>(bank_, executor_.residence());
  return {digest_with_changes(first_options_, options), incidents_.counters(), state->specs(),
          [state](std::size_t tensor) { return state->read(tensor); }};
}

void Preconditioner::Impl::load(const KfacState& state) {
  const c10::NoGradGuard no_grad;
  runtime::BankState loaded(bank_, executor_.residence());
  std::exception_ptr failure;
  KfacOptions changed = options;
  try {
    loaded.check(state, first_options_);
    changed = validated(options_of_digest(first_options_, state.options), ranks());
  } catch (...) {
    failure = std::current_exception();
  }
  // All ranks or none: before anything is changed.
  runtime::require_same_steps(*distribution_.communicator, state.counters.steps, failure);
  const KfacState whole = loaded.completed(state);
  if (called_) discard();  // a batch under way belongs to what was before
  incidents_.finish();
  refreshes_.forget();
  trial_.reset();
  adopt(changed);
  loaded.load(whole);
  incidents_.counters() = state.counters;
  steps_ = state.counters.steps;
  executor_.begin(work(), timing_);
}

void Preconditioner::Impl::load_failed() {
  const auto failure = std::make_exception_ptr(ConfigError("kfac state: not loaded"));
  try {
    runtime::require_same_steps(*distribution_.communicator, 0, failure);
  } catch (const Error&) {  // the caller knows why
  }
}

}  // namespace spdkfac
