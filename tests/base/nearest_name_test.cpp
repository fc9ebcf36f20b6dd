// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/base/nearest_name.h"

#include <gtest/gtest.h>

namespace spdkfac {
namespace {

TEST(NearestName, IsAtMostTwoTyposAway) {
  EXPECT_EQ(nearest_name("--modell", {"--model", "--world"}), "--model");  // one letter too many
  EXPECT_EQ(nearest_name("wrold", {"model", "world"}), "world");  // two in each other's place
  EXPECT_EQ(nearest_name("simulate", {"simulate", "simulates"}), "simulate");
  EXPECT_EQ(nearest_name("simu", {"simulate"}), "");  // four are missing
}

TEST(NearestName, OfWordsWithoutACommonLetterThereIsNone) {
  EXPECT_EQ(nearest_name("a", {"b"}), "");
  EXPECT_EQ(nearest_name("ab", {"cd"}), "");
  EXPECT_EQ(nearest_name("ab", {}), "");
}

TEST(NearestName, AdviceListsAllNames) {
  EXPECT_EQ(advice_for_name("ResNet50", {"resnet50", "cnn28"}),
            "did you mean resnet50? choose one of resnet50, cnn28");
  EXPECT_EQ(advice_for_name("vgg", {"resnet50", "cnn28"}), "choose one of resnet50, cnn28");
}

}  // namespace
}  // namespace spdkfac
