// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <torch/torch.h>

#include "support/random.h"

// Small random networks in double precision, without batch statistics.
namespace spdkfac::stress {

enum class BlockKind { kConv, kTokens, kLinear };

// One layer and what follows it. A layer that is used twice keeps the shape of its input.
struct Block {
  BlockKind kind = BlockKind::kLinear;
  std::int64_t width = 1;  // channels or features of the output
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t dilation = 1;
  bool bias = true;
  int uses = 1;
  bool scale = false;  // a parameter that K-FAC does not cover
};

// Convolutions, then Linear layers on every position, then Linear layers on examples; the last
// layer makes the classes.
struct NetSpec {
  std::int64_t channels = 2;
  std::int64_t side = 5;  // of the image
  std::int64_t classes = 3;
  std::vector<Block> blocks;
};

inline std::int64_t conv_side(std::int64_t side, const Block& block) {
  return (side + 2 * block.padding - block.dilation * (block.kernel - 1) - 1) / block.stride + 1;
}

inline Block random_block(support::Random& random, BlockKind kind, std::int64_t side) {
  Block block;
  block.kind = kind;
  block.width = random.integer(1, 6);
  block.bias = random.coin();
  block.uses = random.integer(0, 4) == 0 ? 2 : 1;
  block.scale = random.integer(0, 3) == 0;
  if (kind != BlockKind::kConv) return block;
  if (block.uses > 1) {
    block.kernel = random.coin() ? 3 : 1;
    block.padding = block.kernel / 2;
    return block;
  }
  block.kernel = random.integer(1, std::min<std::int64_t>(3, side));
  block.stride = random.integer(1, 2);
  block.padding = random.integer(0, 1);
  block.dilation = side >= 5 ? random.integer(1, 2) : 1;
  return block;
}

inline NetSpec random_net(support::Random& random) {
  NetSpec net;
  net.channels = random.integer(1, 3);
  net.side = random.integer(2, 6);
  net.classes = random.integer(2, 4);
  std::int64_t side = net.side;
  const auto add = [&](BlockKind kind, std::int64_t most) {
    for (std::int64_t i = random.integer(0, most); i > 0; --i) {
      net.blocks.push_back(random_block(random, kind, side));
      if (kind == BlockKind::kConv) side = conv_side(side, net.blocks.back());
    }
  };
  add(BlockKind::kConv, 3);
  add(BlockKind::kTokens, 2);
  add(BlockKind::kLinear, 2);
  return net;
}

inline std::string text_of(const NetSpec& net) {
  std::string text = fmt::format("{}x{}x{}", net.channels, net.side, net.side);
  for (const Block& block : net.blocks) {
    if (block.kind == BlockKind::kConv) {
      text += fmt::format(" conv{}k{}s{}p{}d{}", block.width, block.kernel, block.stride,
                          block.padding, block.dilation);
    } else {
      text +=
          fmt::format(" {}{}", block.kind == BlockKind::kTokens ? "tokens" : "linear", block.width);
    }
    text += fmt::format("{}{}{}", block.bias ? "" : "-bias", block.uses > 1 ? "*2" : "",
                        block.scale ? "+scale" : "");
  }
  return text + fmt::format(" linear{}", net.classes);
}

class StressNetImpl : public torch::nn::Module {
 public:
  StressNetImpl(const NetSpec& net, std::uint64_t seed) : net_(net) {
    std::int64_t width = net.channels;
    std::int64_t side = net.side;
    bool flat = false;
    const auto flatten = [&] {
      if (!flat) width *= side * side;
      flat = true;
    };
    for (const Block& block : net.blocks) {
      if (block.kind == BlockKind::kLinear) flatten();
      const std::int64_t out = block.uses > 1 ? width : block.width;
      const std::string name = fmt::format("l{}", layers_.size());
      if (block.kind == BlockKind::kConv) {
        auto options = torch::nn::Conv2dOptions(width, out, block.kernel);
        options.stride(block.stride).padding(block.padding).dilation(block.dilation);
        torch::nn::Conv2d conv(options.bias(block.bias));
        register_module(name, conv);
        layers_.push_back({.conv = conv});
        side = conv_side(side, block);
      } else {
        add_linear(name, width, out, block.bias);
      }
      if (block.scale) layers_.back().scale = register_parameter(name + "s", torch::ones({out}));
      width = out;
    }
    flatten();
    add_linear("out", width, net.classes, true);
    to(at::kDouble);
    // Not by torch's own initialisation: threads share its generator.
    auto generator = at::detail::createCPUGenerator(seed);
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : parameters()) {
      const double fan_in = parameter.dim() > 1 ? static_cast<double>(parameter[0].numel()) : 4.0;
      parameter.copy_(at::randn(parameter.sizes(), generator, at::kDouble) / std::sqrt(fan_in));
    }
  }

  at::Tensor forward(const at::Tensor& images) {
    at::Tensor x = images;  // [N,C,H,W], then [N,positions,C], then [N,features]
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const bool last = i == net_.blocks.size();
      const BlockKind kind = last ? BlockKind::kLinear : net_.blocks[i].kind;
      if (kind == BlockKind::kTokens && x.dim() == 4) x = x.flatten(2).transpose(1, 2);
      if (kind == BlockKind::kLinear && x.dim() > 2) x = x.flatten(1);
      if (last) return layers_[i].linear(x);
      for (int use = 0; use < net_.blocks[i].uses; ++use) {
        x = torch::tanh(kind == BlockKind::kConv ? layers_[i].conv(x) : layers_[i].linear(x));
      }
      if (layers_[i].scale.defined()) {
        x = x * (kind == BlockKind::kConv ? layers_[i].scale.view({-1, 1, 1}) : layers_[i].scale);
      }
    }
    return x;
  }

 private:
  struct Layer {
    torch::nn::Conv2d conv = nullptr;
    torch::nn::Linear linear = nullptr;
    at::Tensor scale = {};
  };
  void add_linear(const std::string& name, std::int64_t in, std::int64_t out, bool bias) {
    torch::nn::Linear linear(torch::nn::LinearOptions(in, out).bias(bias));
    register_module(name, linear);
    layers_.push_back({.linear = linear});
  }

  NetSpec net_;
  std::vector<Layer> layers_;
};
TORCH_MODULE(StressNet);

}  // namespace spdkfac::stress
