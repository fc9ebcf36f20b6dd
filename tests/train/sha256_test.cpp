// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/train/sha256.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

namespace spdkfac::train {
namespace {

std::string sum(const std::string& text) {
  Sha256 hash;
  hash.add(text.data(), text.size());
  return hash.finish();
}

// The examples of FIPS 180-4 and of NIST's test vectors.
TEST(Sha256, MatchesPublishedVectors) {
  EXPECT_EQ(sum(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sum("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sum("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sum(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, DoesNotDependOnThePieces) {
  const std::string text(200, 'x');
  Sha256 hash;
  for (std::size_t at = 0; at < text.size(); at += 7) {
    hash.add(text.data() + at, std::min<std::size_t>(7, text.size() - at));
  }
  EXPECT_EQ(hash.finish(), sum(text));
}

}  // namespace
}  // namespace spdkfac::train
