// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/comm/agreement.h"

#include <exception>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/config_error.h"
#include "support/world.h"

namespace spdkfac {
namespace {

using support::config_error;
using support::world;
using testing::HasSubstr;

TEST(Agreement, EqualValuesPass) {
  comm::require_same(*world(), "the plan", "spd-kfac");
  comm::require_same(*world(), "the plan", "");
  comm::require_same(*world(), "the plan", std::string(1'000'000, 'x'));
}

TEST(Agreement, EveryRankThrowsWhenOneDiffers) {
  if (world()->size() == 1) GTEST_SKIP() << "one rank agrees with itself";
  const int rank = world()->rank();
  const int last = world()->size() - 1;
  const std::string value = rank == last ? "batch 64" : "batch 32";
  const std::string message =
      config_error([&] { comm::require_same(*world(), "the options", value); });
  EXPECT_THAT(message, HasSubstr("the options: the ranks disagree"));
  EXPECT_THAT(message, HasSubstr(fmt::format("(rank {} of {} differs from rank 0; rank {} has {})",
                                             last, last + 1, rank, value)));
  // The communicator still works.
  comm::require_same(*world(), "the options", "batch 32");
}

TEST(Agreement, WhatOneRankCannotDoIsAnErrorOnAll) {
  comm::require_all(*world(), "loading", nullptr);
  const int rank = world()->rank();
  const int last = world()->size() - 1;
  std::exception_ptr failure;
  if (rank == last) failure = std::make_exception_ptr(ConfigError("no such file"));
  const std::string message =
      config_error([&] { comm::require_all(*world(), "loading", failure); });
  if (rank == last) {
    EXPECT_EQ(message, "no such file");
  } else {
    EXPECT_THAT(message, HasSubstr(fmt::format("loading: rank {} of {} failed", last, last + 1)));
  }
  comm::require_all(*world(), "loading", nullptr);  // the communicator still works
}

TEST(Agreement, AllRanksThatDifferFromTheFirstAreNamed) {
  if (world()->size() < 3) GTEST_SKIP() << "needs three ranks";
  const std::string value = fmt::format("rank {}", world()->rank());
  const std::string message = config_error([&] { comm::require_same(*world(), "data", value); });
  EXPECT_THAT(message, HasSubstr(world()->size() == 3 ? "ranks 1, 2 of 3 differ from rank 0"
                                                      : "ranks 1, 2, 3 of 4 differ from rank 0"));
}

TEST(Agreement, OnlyTheValuesThatDifferAreNamed) {
  if (world()->size() == 1) GTEST_SKIP() << "one rank agrees with itself";
  const int last = world()->size() - 1;
  const bool odd = world()->rank() == last;
  const std::vector<comm::Fact> facts = {
      {"damping", odd ? "0.2" : "0.1"}, {"kl_clip", "0.001"}, {"interval", odd ? "3" : "2"}};
  EXPECT_THAT(config_error([&] { comm::require_same(*world(), "the options", facts); }),
              HasSubstr(odd ? "has damping=0.2, interval=3)" : "has damping=0.1, interval=2)"));
  comm::require_same(*world(), "the options", std::span(facts).subspan(1, 1));
}

TEST(Agreement, LongValuesAreShortenedInMessages) {
  if (world()->size() == 1) GTEST_SKIP() << "one rank agrees with itself";
  const std::string value(1000, static_cast<char>('a' + world()->rank()));
  const std::string message =
      config_error([&] { comm::require_same(*world(), "the plan", value); });
  EXPECT_THAT(message, HasSubstr("… (1000 bytes)"));
  EXPECT_LT(message.size(), 500u);
}

}  // namespace
}  // namespace spdkfac
