// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/preconditioner.h"

#include <utility>

#include <fmt/ranges.h>

#include "spdkfac/base/error.h"
#include "spdkfac/runtime/preconditioner_impl.h"

namespace spdkfac {
namespace {

std::shared_ptr<Logger> logger_or_default(std::shared_ptr<Logger> logger) {
  return logger ? std::move(logger) : make_logger({});
}

}  // namespace

Preconditioner::Preconditioner(torch::nn::Module& model, const KfacOptions& options,
                               std::shared_ptr<Logger> logger)
    : Preconditioner(model, options, Distribution{}, std::move(logger)) {}

Preconditioner::Preconditioner(torch::nn::Module& model, const KfacOptions& options,
                               const Distribution& distribution, std::shared_ptr<Logger> logger) {
  std::vector<std::string> uncovered;
  std::vector<TrackedLayer> layers = tracked_layers(model, &uncovered, options.norms);
  logger = logger_or_default(std::move(logger));
  if (!uncovered.empty()) {
    logger->info(fmt::format("kfac: {} modules keep their own gradient: {}", uncovered.size(),
                             fmt::join(uncovered, ", ")));
  }
  impl_ = std::make_unique<Impl>(std::move(layers), model.parameters(), distribution, options,
                                 std::move(logger));
}

Preconditioner::Preconditioner(std::vector<TrackedLayer> layers, std::vector<at::Tensor> others,
                               const KfacOptions& options, std::shared_ptr<Logger> logger) {
  std::vector<at::Tensor> parameters;
  for (const TrackedLayer& layer : layers) {
    for (const ParameterPart& own : own_parameters(layer)) parameters.push_back(own.parameter);
  }
  parameters.insert(parameters.end(), others.begin(), others.end());
  impl_ = std::make_unique<Impl>(std::move(layers), std::move(parameters), Distribution{}, options,
                                 logger_or_default(std::move(logger)));
}

Preconditioner::Preconditioner(std::vector<TrackedLayer> layers, std::vector<at::Tensor> parameters,
                               const KfacOptions& options, const Distribution& distribution,
                               std::shared_ptr<Logger> logger)
    : impl_(std::make_unique<Impl>(std::move(layers), std::move(parameters), distribution, options,
                                   logger_or_default(std::move(logger)))) {}

Preconditioner::~Preconditioner() = default;

void Preconditioner::step(double learning_rate, const Momentum& momentum) {
  if (!(learning_rate >= 0)) {
    throw ConfigError(fmt::format("kfac: step({}); pass the optimizer's learning rate, at least 0",
                                  learning_rate));
  }
  impl_->step(learning_rate, momentum);
}

void Preconditioner::step() {
  if (!impl_->options.learning_rate && impl_->options.kl_clip > 0) {
    throw ConfigError(
        "kfac: kl_clip needs the learning rate; call step(learning_rate), set "
        "options.learning_rate, or set kl_clip=0");
  }
  impl_->step(impl_->options.learning_rate.value_or(0), {});
}

void Preconditioner::synchronize() { impl_->synchronize(); }

void Preconditioner::change(const KfacChanges& changes) { impl_->change(changes); }

int Preconditioner::ranks() const { return impl_->ranks(); }

void Preconditioner::discard() { impl_->discard(); }

KfacCounters Preconditioner::counters() { return impl_->counters(); }

KfacMemory Preconditioner::memory() const { return impl_->memory(); }

const std::vector<TrackedLayer>& Preconditioner::layers() const { return impl_->layers; }

const KfacOptions& Preconditioner::options() const { return impl_->options; }

std::optional<Plan> Preconditioner::plan(StepKind kind) const { return impl_->plans().plan(kind); }

const ModelSpec& Preconditioner::model() const { return impl_->plans().model(); }

KfacStateStream Preconditioner::state() { return impl_->state(); }

void Preconditioner::load(const KfacState& state) { impl_->load(state); }

}  // namespace spdkfac
