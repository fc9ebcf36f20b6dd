// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/distribution.h"

namespace spdkfac {
namespace {

struct SecondOrder {
  bool operator()(const MeasureHere& source) const { return source.options.second_order(); }
  bool operator()(const PlanForCosts& source) const { return source.options.second_order(); }
  bool operator()(const FollowPlan& source) const { return source.plan.options.second_order(); }
  bool operator()(const CustomPlanner& source) const { return source.second_order; }
};

}  // namespace

bool second_order(const PlanSource& source) { return std::visit(SecondOrder{}, source); }

}  // namespace spdkfac
