// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <vector>

namespace spdkfac {

// The known name that a misspelt one most likely stands for, at most two typos away; empty if none
// is that near.
std::string nearest_name(const std::string& misspelt, const std::set<std::string>& known);

// What to do about an unknown name: "did you mean b? choose one of a, b", or without the question.
std::string advice_for_name(const std::string& misspelt, const std::vector<std::string>& known);

}  // namespace spdkfac
