// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "spdkfac/base/units.h"

namespace spdkfac {

// What an iteration's time is spent on; the parts of every breakdown, in the paper's order.
enum class Category : std::uint8_t {
  kForwardBackward,
  kGradientComm,
  kFactorComp,
  kFactorComm,
  kInverseComp,
  kInverseComm,
  kPrecondition,
};
constexpr std::size_t kCategoryCount = 7;
constexpr std::array<Category, kCategoryCount> kCategories = {
    Category::kForwardBackward, Category::kGradientComm, Category::kFactorComp,
    Category::kFactorComm,      Category::kInverseComp,  Category::kInverseComm,
    Category::kPrecondition};

// The name used in files: ff_bp, grad_comm, factor_comp, …
std::string_view category_name(Category category);

// Seconds per category, indexed by Category.
class CategoryTimes {
 public:
  Seconds& operator[](Category category) { return times_[static_cast<std::size_t>(category)]; }
  Seconds operator[](Category category) const { return times_[static_cast<std::size_t>(category)]; }
  Seconds total() const;
  bool operator==(const CategoryTimes&) const = default;

 private:
  std::array<Seconds, kCategoryCount> times_{};
};

}  // namespace spdkfac
