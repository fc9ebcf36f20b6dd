// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace spdkfac {

// A number with a unit: quantities of different units never mix, scaling by plain numbers is fine.
template <class Unit, class Rep>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(Rep value) : value_(value) {}

  constexpr Rep value() const { return value_; }

  constexpr Quantity& operator+=(Quantity other) {
    value_ += other.value_;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    value_ -= other.value_;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return a += b; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return a -= b; }
  friend constexpr Quantity operator*(Quantity a, Rep b) { return Quantity(a.value_ * b); }
  friend constexpr Quantity operator*(Rep a, Quantity b) { return Quantity(a * b.value_); }
  friend constexpr Quantity operator/(Quantity a, Rep b) { return Quantity(a.value_ / b); }
  friend constexpr double operator/(Quantity a, Quantity b) {
    return static_cast<double>(a.value_) / static_cast<double>(b.value_);
  }
  // Spelt out: for floating point GCC 12 makes a defaulted <=> several comparisons.
  friend constexpr bool operator==(Quantity a, Quantity b) { return a.value_ == b.value_; }
  friend constexpr bool operator<(Quantity a, Quantity b) { return a.value_ < b.value_; }
  friend constexpr bool operator>(Quantity a, Quantity b) { return a.value_ > b.value_; }
  friend constexpr bool operator<=(Quantity a, Quantity b) { return a.value_ <= b.value_; }
  friend constexpr bool operator>=(Quantity a, Quantity b) { return a.value_ >= b.value_; }

 private:
  Rep value_{};
};

using Seconds = Quantity<struct SecondsUnit, double>;
using Bytes = Quantity<struct BytesUnit, std::int64_t>;
using Flops = Quantity<struct FlopsUnit, double>;
using FlopsPerSecond = Quantity<struct FlopsPerSecondUnit, double>;

// Factors, inverses and gradients travel as 32-bit floats.
constexpr std::int64_t kBytesPerElement = 4;
constexpr Bytes kMebibyte{std::int64_t{1024} * 1024};

}  // namespace spdkfac
