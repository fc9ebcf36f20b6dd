// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/base/category.h"

namespace spdkfac {
namespace {

constexpr std::array<std::string_view, kCategoryCount> kCategoryNames = {
    "ff_bp",        "grad_comm",    "factor_comp", "factor_comm",
    "inverse_comp", "inverse_comm", "precondition"};

}  // namespace

std::string_view category_name(Category category) {
  return kCategoryNames[static_cast<std::size_t>(category)];
}

Seconds CategoryTimes::total() const {
  Seconds sum;
  for (const Seconds time : times_) sum += time;
  return sum;
}

}  // namespace spdkfac
