// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/report/table.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include <fmt/format.h>

#include "spdkfac/base/check.h"

namespace spdkfac::report {
namespace {

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace

void Table::add_row(std::vector<std::string> cells) {
  SPDKFAC_CHECK(cells.size() == columns_.size(),
                fmt::format("{} cells for {} columns", cells.size(), columns_.size()));
  rows_.push_back(std::move(cells));
}

void Table::drop_empty_columns() {
  for (std::size_t column = columns_.size(); column-- > 0;) {
    const auto empty = [&](const auto& row) { return row[column].empty(); };
    if (std::all_of(rows_.begin(), rows_.end(), empty)) erase_column(column);
  }
}

void Table::drop_column(const std::string& title) {
  for (std::size_t column = columns_.size(); column-- > 0;) {
    if (columns_[column].title == title) erase_column(column);
  }
}

void Table::drop_column(const std::string& title, const std::string& group) {
  for (std::size_t column = columns_.size(); column-- > 0;) {
    if (columns_[column].title == title && columns_[column].group == group) erase_column(column);
  }
}

std::string Table::group_line(std::vector<std::size_t>& widths) const {
  constexpr std::size_t kGap = 2;
  std::string line;
  bool any = false;
  for (std::size_t first = 0; first < columns_.size();) {
    const std::string& group = columns_[first].group;
    std::size_t end = first + 1;
    std::size_t width = widths[first];
    while (end < columns_.size() && !group.empty() && columns_[end].group == group) {
      width += kGap + widths[end++];
    }
    const std::size_t title = display_width(group);
    if (title > width) widths[end - 1] += title - width;
    width = std::max(width, title);
    line += std::string(first > 0 ? kGap : 0, ' ') + group;
    const bool rule = !group.empty() && width > title + 1;
    if (rule) line += ' ';
    for (std::size_t i = title + (rule ? 1 : 0); i < width; ++i) line += rule ? "─" : " ";
    any = any || !group.empty();
    first = end;
  }
  if (!any) return "";
  line.erase(line.find_last_not_of(' ') + 1);
  return line + '\n';
}

void Table::erase_column(std::size_t column) {
  const auto place = static_cast<std::ptrdiff_t>(column);
  columns_.erase(columns_.begin() + place);
  for (auto& row : rows_) row.erase(row.begin() + place);
}

std::string Table::text() const {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t width = display_width(columns_[c].title);
    for (const auto& row : rows_) width = std::max(width, display_width(row[c]));
    widths.push_back(width);
  }
  std::string result = group_line(widths);
  const auto line = [&](const auto& cell_of) {
    std::string text;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const std::string cell = cell_of(c);
      const std::string padding(widths[c] - display_width(cell), ' ');
      if (c > 0) text += "  ";
      text += columns_[c].align == Align::kLeft ? cell + padding : padding + cell;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    result += text + '\n';
  };
  line([&](std::size_t c) { return columns_[c].title; });
  line([&](std::size_t c) {
    std::string rule;
    for (std::size_t i = 0; i < widths[c]; ++i) rule += "─";
    return rule;
  });
  for (const auto& row : rows_) {
    line([&](std::size_t c) { return row[c]; });
  }
  return result;
}

std::string Table::csv() const {
  std::string result;
  const auto line = [&](const auto& cell_of) {
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (c > 0) result += ',';
      result += csv_cell(cell_of(c));
    }
    result += '\n';
  };
  line([&](std::size_t c) { return columns_[c].title; });
  for (const auto& row : rows_) {
    line([&](std::size_t c) { return row[c]; });
  }
  return result;
}

std::size_t display_width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string wrap(const std::string& text, std::size_t width, std::size_t indent) {
  std::string result;
  std::size_t used = 0;  // of the line
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::size_t length = display_width(word);
    if (result.empty()) {
      used = length;
    } else if (used + 1 + length <= width) {
      result += ' ';
      used += 1 + length;
    } else {
      result += '\n' + std::string(indent, ' ');
      used = indent + length;
    }
    result += word;
  }
  return result;
}

std::string bar(double share, std::size_t width) {
  const double clamped = share > 0 ? std::min(share, 1.0) : 0;  // also where 0 is a share of 0
  const auto blocks = static_cast<std::size_t>(std::lround(clamped * static_cast<double>(width)));
  std::string result;
  for (std::size_t i = 0; i < blocks; ++i) result += "█";
  return result;
}

}  // namespace spdkfac::report
