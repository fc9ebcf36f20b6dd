// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/factor_bank.h"

#include <limits>

#include <gtest/gtest.h>

#include "runtime/lone_rank.h"

namespace spdkfac {
namespace {

using namespace support;  // NOLINT(google-build-using-namespace)

constexpr runtime::FactorId kId{0, FactorSide::kA};

TEST(FactorBank, AnAverageOfPackedSumsEqualsThatOfTheSumItself) {
  // Two ranks that hold the same: the sum of their triangles over two.
  LoneRank direct;
  LoneRank packed;
  torch::manual_seed(1);
  direct.run(0);
  torch::manual_seed(1);
  packed.run(0);
  direct.average(0);
  const c10::NoGradGuard no_grad;
  packed.bank.state(0).keep(FactorSide::kA, true, false);
  const at::Tensor message = at::empty({7}, test_options(at::kDouble));
  const runtime::FactorBank::Packed factor{kId, message.narrow(0, 0, 6), message.narrow(0, 6, 1)};
  packed.bank.pack({factor}, false);
  EXPECT_EQ(factor.count.item<double>(), 4);
  message.mul_(2);
  packed.bank.average_packed({factor});
  EXPECT_TRUE(torch::equal(packed.bank.state(0).factor(FactorSide::kA).average->mean().triu(),
                           direct.bank.state(0).factor(FactorSide::kA).average->mean().triu()));
  EXPECT_EQ(packed.incidents.counters().factor_updates, 1);
  EXPECT_TRUE(packed.bank.state(0).stale);
}

// What a rank sends of the first layer's A.
struct SentFactor {
  SentFactor() : message(at::full({7}, 3, test_options(at::kDouble))) {}
  runtime::FactorBank::Packed packed() const {
    return {kId, message.narrow(0, 0, 6), message.narrow(0, 6, 1)};
  }
  at::Tensor message;
};

TEST(FactorBank, AFactorThatNoRankCapturedIsLeftOutAndCountsAsNoUpdate) {
  LoneRank rank;
  rank.run(0);
  rank.average(0);
  const at::Tensor before = rank.bank.state(0).factor(FactorSide::kA).average->mean().clone();
  rank.bank.clear();
  const SentFactor sent;
  rank.bank.pack({sent.packed()}, false);
  EXPECT_TRUE(sent.message.eq(0).all().item<bool>());
  rank.bank.average_packed({sent.packed()});
  rank.incidents.end_step();
  rank.incidents.finish();
  EXPECT_EQ(rank.incidents.counters().nonfinite_factors, 0);
  EXPECT_EQ(rank.incidents.counters().factor_updates, 2);  // of average()
  EXPECT_TRUE(torch::equal(rank.bank.state(0).factor(FactorSide::kA).average->mean(), before));
}

// A = (Σ of rank 0 + Σ of rank 1) / (n of rank 0 + n of rank 1), whatever each has.
TEST(FactorBank, SumsOfRanksAreWeightedByTheirExamples) {
  LoneRank few;
  LoneRank many;
  LoneRank none;
  few.run(0, 2);
  many.run(0, 6);
  SentFactor total;
  total.message.zero_();
  at::Tensor expected = at::zeros({3, 3}, test_options(at::kDouble));
  for (LoneRank* rank : {&few, &many, &none}) {
    const SentFactor sent;
    rank->bank.pack({sent.packed()}, false);
    total.message.add_(sent.message);
    if (rank != &none) expected += rank->bank.state(0).factor(FactorSide::kA).sum[0] / 8;
  }
  const c10::NoGradGuard no_grad;
  many.bank.state(0).keep(FactorSide::kA, true, false);
  many.bank.average_packed({total.packed()});
  const at::Tensor mean = many.bank.state(0).factor(FactorSide::kA).average->mean()[0];
  EXPECT_TRUE(torch::allclose(mean.triu(), expected.triu(), 1e-12, 1e-14));
}

TEST(FactorBank, AFactorThatIsNotFiniteOnOneRankIsLeftOut) {
  LoneRank rank;
  rank.run(0);
  rank.average(0);
  const at::Tensor before = rank.bank.state(0).factor(FactorSide::kA).average->mean().clone();
  const SentFactor sent;
  rank.bank.pack({sent.packed()}, false);
  sent.message.narrow(0, 0, 6).fill_(std::numeric_limits<double>::quiet_NaN());
  rank.bank.average_packed({sent.packed()});
  rank.incidents.end_step();
  rank.incidents.finish();
  EXPECT_EQ(rank.incidents.counters().nonfinite_factors, 1);
  EXPECT_TRUE(torch::equal(rank.bank.state(0).factor(FactorSide::kA).average->mean(), before));
}

TEST(FactorBank, DeferredCallsYieldTheSameFactors) {
  LoneRank now;
  LoneRank later;
  const at::Tensor input = torch::randn({5, 3}, test_options(at::kDouble));
  const kfac::LayerUse use = kfac::layer_use(input, std::nullopt, false);
  const auto call = [&](LoneRank& rank, bool defer) {
    const at::Tensor output = rank.modules[0](input);
    rank.bank.add(kId, {use, rank.bank.passes().on_call(use, input, output), input}, defer);
  };
  call(now, false);
  call(later, true);
  EXPECT_FALSE(later.bank.state(0).factor(FactorSide::kA).summed);
  later.bank.add_deferred(kId);
  EXPECT_TRUE(torch::equal(later.bank.state(0).factor(FactorSide::kA).sum,
                           now.bank.state(0).factor(FactorSide::kA).sum));
  later.bank.add_deferred(kId);  // nothing is left of it
  EXPECT_TRUE(torch::equal(later.bank.state(0).factor(FactorSide::kA).sum,
                           now.bank.state(0).factor(FactorSide::kA).sum));
}

TEST(FactorBank, PreconditionsWithTheInversesOfBothSides) {
  LoneRank rank;
  rank.run(0);
  rank.average(0);
  const c10::NoGradGuard no_grad;
  rank.bank.invert_all({0}, {true, true});
  EXPECT_FALSE(rank.bank.state(0).stale);
  const at::Tensor before = rank.modules[0]->weight.grad().clone();
  const at::Tensor a = rank.bank.state(0).factor(FactorSide::kA).inverse->value[0];
  const at::Tensor g = rank.bank.state(0).factor(FactorSide::kG).inverse->value[0];
  const at::Tensor inner = rank.bank.precondition_all({0}).at(0);
  const at::Tensor expected = g.mm(before).mm(a);
  EXPECT_TRUE(torch::allclose(rank.modules[0]->weight.grad(), expected));
  EXPECT_NEAR(inner.item<double>(), (before * expected).sum().item<double>(), 1e-12);
}

TEST(FactorBank, ShowsAnObserverWhatItComputes) {
  LoneRank rank;
  rank.recorder.start(test_device());
  rank.run(0);
  rank.average(0);
  {
    const c10::NoGradGuard no_grad;
    rank.bank.invert_all({0}, {true, true});
  }
  const auto step = rank.recorder.finish(test_device());
  std::map<runtime::StepPart, double> shares;
  for (const runtime::StepEvent& event : step->parts) {
    for (const runtime::StepEvent::Share& share : event.shares) shares[event.part] += share.part;
  }
  EXPECT_EQ(shares[runtime::StepPart::kFactor], 2);  // A and G
  EXPECT_NEAR(shares[runtime::StepPart::kInverse], on_cuda() ? 1 : 2, 1e-9);
  EXPECT_EQ(shares[runtime::StepPart::kAverage], 0);  // no layer's time has it
}

}  // namespace
}  // namespace spdkfac
