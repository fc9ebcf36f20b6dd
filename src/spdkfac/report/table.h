// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace spdkfac::report {

// Rows of text in aligned columns, for people, or as CSV, for spreadsheets.
class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kRight;
    std::string group = {};  // a title over neighbouring columns that share it
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // One cell for each column.
  void add_row(std::vector<std::string> cells);
  std::size_t rows() const { return rows_.size(); }
  // Leaves out the columns in which no row has anything.
  void drop_empty_columns();
  void drop_column(const std::string& title);
  void drop_column(const std::string& title, const std::string& group);

  // Title line, a rule, one line a row; columns two spaces apart; no trailing blanks.
  std::string text() const;
  // RFC 4180: cells with comma, quote or line break are quoted.
  std::string csv() const;

 private:
  void erase_column(std::size_t column);
  // The line of groups; a group wider than its columns widens the last of them.
  std::string group_line(std::vector<std::size_t>& widths) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Width on a terminal: characters, not bytes, of UTF-8 text.
std::size_t display_width(const std::string& text);

// Words in lines of at most `width`, where they fit; further lines start with `indent` blanks. No
// line break at the end.
std::string wrap(const std::string& text, std::size_t width, std::size_t indent = 0);

// How wide tables and texts for people are, unless more is asked for.
constexpr std::size_t kPageWidth = 100;

// A bar of `share` (0 to 1) of `width` block characters.
std::string bar(double share, std::size_t width);

}  // namespace spdkfac::report
