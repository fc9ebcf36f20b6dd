// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/passes.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/config_error.h"
#include "support/device.h"

namespace spdkfac {
namespace {

using namespace support;  // NOLINT(google-build-using-namespace)

// A Linear layer whose calls are shown to the passes of a step.
struct OnePasses {
  explicit OnePasses(const KfacOptions& given = {})
      : options(given), module(torch::nn::LinearOptions(3, 3)), passes(options) {
    module->to(test_device(), at::kDouble);
  }
  at::Tensor input(at::IntArrayRef shape) const {
    return torch::randn(shape, test_options(at::kDouble));
  }
  std::pair<std::int64_t, at::Tensor> call(const at::Tensor& input) {
    const at::Tensor output = module(input);
    return {passes.on_call(kfac::layer_use(input, std::nullopt, true), input, output), output};
  }
  KfacOptions options;
  torch::nn::Linear module;
  runtime::Passes passes;
};

TEST(Passes, CallsBeforeAGradientAreOnePass) {
  OnePasses step;
  const auto [first, one] = step.call(step.input({4, 3}));
  const auto [second, two] = step.call(one);
  EXPECT_EQ(first, second);
  EXPECT_TRUE(step.passes.open());
  EXPECT_TRUE(step.passes.on_gradient(first));
  EXPECT_FALSE(step.passes.on_gradient(second));  // not the first one
  const auto [third, three] = step.call(step.input({2, 3}));
  EXPECT_NE(third, first);
  EXPECT_EQ(step.passes.examples(first), 4);
  EXPECT_EQ(step.passes.examples(third), 2);
  EXPECT_EQ(step.passes.terms(), 4);  // the other pass has no gradient yet
}

TEST(Passes, ACallWhenAllGraphsAreGoneBeginsAPass) {
  OnePasses step;
  const std::int64_t first = step.call(step.input({4, 3})).first;
  const auto [second, kept] = step.call(step.input({4, 3}));
  EXPECT_NE(first, second);
  // A branch that is dropped does not end the pass of the one that is kept.
  EXPECT_EQ(step.call(kept).first, second);
  EXPECT_EQ(step.call(kept).first, second);
}

TEST(Passes, ATableOfTheModelSaysNothingOfExamples) {
  OnePasses step;
  const at::Tensor table = step.input({5, 3}).requires_grad_();
  const auto of_model = [&](const at::Tensor& tensor) { return tensor.is_same(table); };
  using runtime::Passes;
  EXPECT_TRUE(Passes::is_table(table, of_model));
  EXPECT_TRUE(Passes::is_table(table.unsqueeze(0).transpose(0, 1), of_model));
  EXPECT_TRUE(Passes::is_table(torch::layer_norm(table, {3}), of_model));
  EXPECT_FALSE(Passes::is_table(step.input({5, 3}), of_model));
  EXPECT_FALSE(Passes::is_table(table.expand({2, 5, 3}), of_model)) << "once for each example";
  EXPECT_FALSE(Passes::is_table(table.narrow(0, 0, 2), of_model));
  const at::Tensor places = torch::zeros({5}, test_options(at::kLong));
  EXPECT_FALSE(Passes::is_table(torch::embedding(table, places), of_model)) << "looked up";

  const at::Tensor output = step.module(table);
  EXPECT_TRUE(step.passes.asks_for_examples());
  const std::int64_t pass =
      step.passes.on_call(kfac::layer_use(table, std::nullopt, true), table, output, true);
  EXPECT_TRUE(step.passes.asks_for_examples());
  EXPECT_EQ(step.passes.examples(pass), 5) << "for lack of others";
  const auto [same, kept] = step.call(step.input({4, 3}));
  EXPECT_EQ(same, pass);
  EXPECT_FALSE(step.passes.asks_for_examples());
  EXPECT_EQ(step.passes.examples(pass), 4);
  EXPECT_EQ(step.passes.batch(), 4);
}

TEST(Passes, OfEarlierStepsAreKnown) {
  OnePasses step;
  const auto [pass, output] = step.call(step.input({4, 3}));
  EXPECT_TRUE(step.passes.contains(pass));
  step.passes.clear();
  EXPECT_FALSE(step.passes.contains(pass));
}

TEST(Passes, ALossTellsThatTimeIsTheFirstDimension) {
  struct Case {
    std::vector<std::int64_t> losses;
    std::int64_t expected;
  };
  // Of an input [5 steps, 4 examples, 3 features].
  for (const Case& one :
       {Case{{}, 5}, Case{{4}, 4}, Case{{5}, 5}, Case{{4, 5}, 5}, Case{{20}, 5}}) {
    OnePasses step;
    const auto [pass, output] = step.call(step.input({5, 4, 3}));
    for (const std::int64_t loss : one.losses) step.passes.on_loss(loss);
    EXPECT_FALSE(step.passes.decided());
    step.passes.on_gradient(pass);
    EXPECT_TRUE(step.passes.decided());
    EXPECT_EQ(step.passes.examples(pass), one.expected);
    // It stays so.
    step.passes.clear();
    const auto [next, later] = step.call(step.input({7, 6, 3}));
    EXPECT_EQ(step.passes.examples(next), one.expected == 4 ? 6 : 7);
  }
}

TEST(Passes, TwoDimensionsNeedNoLoss) {
  OnePasses step;
  const auto [pass, output] = step.call(step.input({5, 3}));
  EXPECT_TRUE(step.passes.decided());
  EXPECT_EQ(step.passes.examples(pass), 5);
}

TEST(Passes, TheOptionDeterminesTheExamples) {
  OnePasses number({.examples = number_of_examples(10)});
  EXPECT_EQ(number.passes.examples(number.call(number.input({5, 4, 3})).first), 10);
  OnePasses tokens({.examples = tokens_as_examples()});
  EXPECT_EQ(tokens.passes.examples(tokens.call(tokens.input({5, 4, 3})).first), 20);
  OnePasses bad({.examples = [](const at::Tensor&, std::int64_t) { return 0; }});
  expect_config_error([&] { bad.call(bad.input({5, 4, 3})); }, "examples=0");
  expect_config_error([] { number_of_examples(0); }, "examples=0");
}

TEST(Passes, KnowWhatComesFromTheirCalls) {
  OnePasses step;
  const auto [pass, output] = step.call(step.input({4, 3}));
  const at::Tensor table = torch::ones({2, 3}, test_options(at::kDouble)).requires_grad_();
  const auto is_constant = [&](const at::Tensor& input) {
    return step.passes.is_constant(input, [&](const at::Tensor& tensor) {
      return tensor.is_same(table) || tensor.is_same(step.module->weight) ||
             tensor.is_same(step.module->bias);
    });
  };
  EXPECT_FALSE(is_constant(output.tanh().reshape({-1, 3})));
  // A table of the model, and what is made of it.
  EXPECT_TRUE(is_constant(table));
  EXPECT_TRUE(is_constant(table * 2));
  // Data, also where their gradient is wanted.
  EXPECT_FALSE(is_constant(step.input({4, 3})));
  EXPECT_FALSE(is_constant(step.input({2, 3}).requires_grad_() * table));
  const auto [same, from_table] = step.call(table * 2);
  EXPECT_EQ(same, pass);
  step.passes.set_constant();
  EXPECT_TRUE(is_constant(from_table.tanh()));
  EXPECT_FALSE(is_constant(from_table.sum() + output));
}

TEST(Passes, WithoutRowsHaveNoExamplesAndDecideNothing) {
  OnePasses step;
  const auto [pass, output] = step.call(step.input({0, 5, 3}));
  EXPECT_TRUE(step.passes.decided());
  EXPECT_EQ(step.passes.examples(pass), 0);
  EXPECT_EQ(step.passes.batch(), 0);
  step.passes.on_gradient(pass);
  EXPECT_EQ(step.passes.terms(), 0);
  // The next one has rows: time first, as its loss says.
  const auto [next, later] = step.call(step.input({5, 4, 3}));
  step.passes.on_loss(4);
  step.passes.on_gradient(next);
  EXPECT_EQ(step.passes.examples(next), 4);
  EXPECT_EQ(step.passes.batch(), 4);
  EXPECT_EQ(step.passes.terms(), 4);
}

TEST(Passes, TakeTheExamplesOfTheFirstCallWithRows) {
  OnePasses step;
  const auto [pass, none] = step.call(step.input({0, 3}));
  const auto [same, output] = step.call(step.input({4, 3}));
  EXPECT_EQ(pass, same);
  EXPECT_EQ(step.passes.examples(pass), 4);
  // A function of the first input is not asked about one without rows.
  OnePasses tokens({.examples = tokens_as_examples()});
  const auto [empty, nothing] = tokens.call(tokens.input({0, 4, 3}));
  EXPECT_EQ(tokens.passes.examples(empty), 0);
}

}  // namespace
}  // namespace spdkfac
