// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/report/table.h"

#include <cmath>

#include <gtest/gtest.h>

#include "spdkfac/base/check.h"

namespace spdkfac {
namespace {

TEST(Table, AlignsColumnsByCharactersNotBytes) {
  report::Table table({{"name", report::Table::Align::kLeft}, {"µs"}});
  table.add_row({"α", "10"});
  table.add_row({"long name", "5"});
  EXPECT_EQ(table.text(),
            "name       µs\n"
            "─────────  ──\n"
            "α          10\n"
            "long name   5\n");
}

TEST(Table, LeavesNoTrailingBlanks) {
  report::Table table({{"a", report::Table::Align::kLeft}, {"b", report::Table::Align::kLeft}});
  table.add_row({"x", ""});
  table.add_row({"x", "wide"});
  EXPECT_EQ(table.text(), "a  b\n─  ────\nx\nx  wide\n");
}

TEST(Table, GroupsStandOverTheirColumns) {
  using Column = report::Table::Column;
  report::Table table({Column{.title = "a"}, Column{.title = "b", .group = "two"},
                       Column{.title = "c", .group = "two"},
                       Column{.title = "d", .group = "longer"}});
  table.add_row({"1", "2", "3", "4"});
  EXPECT_EQ(table.text(),
            "   two   longer\n"
            "a  b  c       d\n"
            "─  ─  ─  ──────\n"
            "1  2  3       4\n");
  EXPECT_EQ(table.csv(), "a,b,c,d\n1,2,3,4\n");
}

TEST(Table, QuotesCsvCellsThatNeedIt) {
  report::Table table({{"a"}, {"b"}, {"c"}});
  table.add_row({"plain", "with, comma", "say \"hi\"\nthere"});
  EXPECT_EQ(table.csv(), "a,b,c\nplain,\"with, comma\",\"say \"\"hi\"\"\nthere\"\n");
}

TEST(Table, RejectsARowOfTheWrongLength) {
  report::Table table({{"a"}, {"b"}});
  EXPECT_THROW(table.add_row({"only one"}), InternalError);
}

TEST(Bar, IsProportionalAndClamped) {
  EXPECT_EQ(report::bar(0.5, 4), "██");
  EXPECT_EQ(report::bar(0, 4), "");
  EXPECT_EQ(report::bar(7, 3), "███");
  EXPECT_EQ(report::bar(-1, 3), "");
  EXPECT_EQ(report::bar(std::nan(""), 4), "");  // no load of no load
}

TEST(Table, DropsColumnsWithoutAnyCell) {
  report::Table table({{"a"}, {"b"}, {"c"}, {"d"}});
  table.add_row({"", "1", "", ""});
  table.add_row({"", "2", "", "x"});
  table.drop_empty_columns();
  EXPECT_EQ(table.csv(), "b,d\n1,\n2,x\n");
}

TEST(Table, DropsAColumnByItsTitle) {
  report::Table table({{"a"}, {"b"}});
  table.add_row({"1", "2"});
  table.drop_column("a");
  table.drop_column("none");
  EXPECT_EQ(table.csv(), "b\n2\n");
}

TEST(Wrap, BreaksBetweenWords) {
  EXPECT_EQ(report::wrap("one two three", 7), "one two\nthree");
  EXPECT_EQ(report::wrap("one two three", 8, 2), "one two\n  three");
  EXPECT_EQ(report::wrap("unbreakable a", 5), "unbreakable\na");
  EXPECT_EQ(report::wrap("αβγ δ", 5), "αβγ δ");  // characters, not bytes
  EXPECT_EQ(report::wrap("", 5), "");
}

}  // namespace
}  // namespace spdkfac
