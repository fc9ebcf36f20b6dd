// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

// How names and places read in messages about JSON; for the sources of json.h only.
namespace spdkfac::json_text {

// `text` as a JSON string; of a long text the first 40 characters and `...`.
std::string quote(std::string_view text);

// `path.key`, or `path["a key"]` when the key would be misread.
std::string field_path(const std::string& path, const std::string& key);

// `path[index]`.
std::string element_path(const std::string& path, std::size_t index);

}  // namespace spdkfac::json_text
