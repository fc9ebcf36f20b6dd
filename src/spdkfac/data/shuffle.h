// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <random>
#include <vector>

// Random numbers that are the same with every compiler and standard library.
namespace spdkfac::data {

// A well-mixed function of both; chain it for more arguments.
std::uint64_t mix(std::uint64_t a, std::uint64_t b);

// Uniform from 0 to bound − 1.
std::uint64_t draw_below(std::mt19937_64& engine, std::uint64_t bound);

// 0 to size − 1 in an order that depends on seed and epoch only.
std::vector<std::int64_t> permutation(std::int64_t size, std::uint64_t seed, std::int64_t epoch);

}  // namespace spdkfac::data
