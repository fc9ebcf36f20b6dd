// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/base/json_text.h"

#include <algorithm>

#include <fmt/format.h>

#include "spdkfac/base/json.h"

namespace spdkfac::json_text {
namespace {

constexpr std::size_t kMaxShownCharacters = 40;

bool is_plain(char c) {
  constexpr std::string_view kMisread = ".[]\":;()";
  return c > ' ' && c <= '~' && kMisread.find(c) == std::string_view::npos;
}

}  // namespace

std::string quote(std::string_view text) {
  std::size_t characters = 0;
  std::size_t size = 0;
  for (; size < text.size(); ++size) {
    const bool continues_character = (static_cast<unsigned char>(text[size]) & 0xC0U) == 0x80U;
    if (!continues_character && ++characters > kMaxShownCharacters) break;
  }
  std::string shown(text.substr(0, size));
  if (size < text.size()) shown += "...";
  return Json(shown).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string field_path(const std::string& path, const std::string& key) {
  const bool plain = !key.empty() && key.size() <= kMaxShownCharacters &&
                     std::all_of(key.begin(), key.end(), is_plain);
  if (!plain) return fmt::format("{}[{}]", path, quote(key));
  return path.empty() ? key : fmt::format("{}.{}", path, key);
}

std::string element_path(const std::string& path, std::size_t index) {
  return fmt::format("{}[{}]", path, index);
}

}  // namespace spdkfac::json_text
