// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/train/trainer.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <optional>
#include <sstream>

#include <fmt/format.h>
#include <torch/torch.h>
#include <unistd.h>

#include "spdkfac/base/error.h"
#include "spdkfac/data/batches.h"
#include "spdkfac/plan/plan_file.h"
#include "spdkfac/runtime/step_control.h"
#include "spdkfac/runtime/step_meter.h"
#include "spdkfac/train/device.h"
#include "spdkfac/train/interrupt.h"
#include "spdkfac/train/metrics_file.h"
#include "spdkfac/train/rank_report.h"
#include "spdkfac/train/recorded_training.h"
#include "spdkfac/train/train_report.h"
#include "spdkfac/train/train_state.h"
#include "spdkfac/train/training.h"
#include "spdkfac/train/value_again.h"

namespace spdkfac::train {
namespace {

using Clock = std::chrono::steady_clock;

// A long run must not end with a path that could never be written.
void check_output(const std::string& path, const char* flag) {
  if (path.empty()) return;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (::access(folder.empty() ? "." : folder.c_str(), W_OK) == 0) return;
  throw ConfigError(fmt::format("{}: cannot be written ({}); check the path of {}", path,
                                std::strerror(errno), flag));
}

// For ranks that another one speaks for.
class SilentListener : public TrainListener {
 public:
  void line(const std::string&) override {}
  void warning(const std::string&) override {}
  void row(const TrainRow&) override {}
  bool progress_due() const override { return false; }
  void progress(const TrainProgress&) override {}
};

class Trainer {
 public:
  Trainer(const TrainOptions& options, std::unique_ptr<Ranks> ranks, TrainListener& listener);
  TrainResult run();

 private:
  void begin();
  void record_steps();
  void train_step(const data::Batch& batch);
  void train_as_it_is(const data::Batch& batch, double rate);
  at::Tensor loss_of(const data::Batch& batch) {
    return at::cross_entropy_loss(training_.model->forward(batch.images), batch.labels);
  }
  void after_step();
  // Brings time and loss since the last call into the position. On CUDA this waits for the device.
  void settle();
  void show_progress();
  void save_checkpoint();
  // With the loss of all ranks, which all of them ask for at once, or with an estimate of it.
  TrainStatus status(bool of_all_ranks);
  void say_what_ranks_did(Json& summary);
  TrainResult finish();
  // Of all ranks.
  std::int64_t batch_of_all() const { return options_.batch * ranks_.size(); }
  std::int64_t steps_left_in_epoch() const {
    return (training_.train.size - position_.examples) / batch_of_all();
  }
  void next_epoch();
  // Epochs and steps as given; one of both may be open.
  std::int64_t total_steps() const;
  bool due(std::int64_t interval) const { return interval > 0 && position_.step % interval == 0; }
  bool done() const { return position_.step >= total_ || target_reached_ || stopped_; }

  const TrainOptions& options_;
  TrainListener& listener_;
  MetricsFile metrics_;
  std::optional<CheckpointFolder> checkpoints_;
  Training training_;
  Ranks& ranks_;
  TrainPosition position_;
  std::int64_t per_epoch_;
  std::int64_t total_;
  LearningRate rate_;
  Settings settings_;
  Interrupt interrupt_;

  Clock::time_point since_;  // what is not in the position yet
  at::Tensor loss_;          // sum of what is not in the position yet, on the device
  std::optional<RecordedTraining> recorded_;
  std::optional<Evaluation> evaluation_;  // of the last evaluated step
  bool target_reached_ = false;
  bool stopped_ = false;  // by a signal to any rank
  std::int64_t saved_step_ = -1;
  std::int64_t steps_here_ = 0;  // of this process
};

Trainer::Trainer(const TrainOptions& options, std::unique_ptr<Ranks> ranks, TrainListener& listener)
    : options_(options),
      listener_(listener),
      metrics_(ranks->first() ? options.metrics : ""),
      training_(make_training(options, std::move(ranks),
                              [this](const std::string& text) { listener_.line(text); })),
      ranks_(*training_.ranks),
      per_epoch_(training_.train.size / batch_of_all()),
      total_(total_steps()),
      rate_{options.learning_rate, options.schedule, options.warmup_steps, total_},
      settings_(settings_of(options, ranks_.size(), total_)),
      loss_(torch::zeros({}, at::TensorOptions(at::kDouble).device(training_.device))) {
  settings_.emplace_back("training examples", std::to_string(training_.train.size));
  if (!options.checkpoint_dir.empty() && ranks_.first()) {
    checkpoints_.emplace(options.checkpoint_dir, options.keep);
  }
}

// From where the run stands: another number of ranks may have done the first steps.
std::int64_t Trainer::total_steps() const {
  const std::int64_t later = options_.epochs - 1 - position_.epoch;
  const std::int64_t by_epochs =
      later < 0 ? position_.step : position_.step + steps_left_in_epoch() + later * per_epoch_;
  if (options_.max_steps == 0) return by_epochs;
  return options_.epochs == 0 ? options_.max_steps : std::min(by_epochs, options_.max_steps);
}

void Trainer::next_epoch() {
  ++position_.epoch;
  position_.examples = position_.epoch_steps = 0;
  position_.loss_sum = position_.epoch_seconds = 0;
}

void Trainer::begin() {
  training_.model->train();
  listener_.line(header_text(options_, training_, total_));
  if (options_.checkpoint_dir.empty()) return;
  if (!options_.resume) {
    if (!checkpoints_) return;
    const auto files = checkpoints_->files();
    if (files.empty()) return;
    throw ConfigError(
        fmt::format("{}: contains checkpoints of an earlier run ({}); pass --resume to continue "
                    "it, or another --checkpoint-dir",
                    options_.checkpoint_dir, files.front().filename().string()));
  }
  const auto resumed = load_newest(checkpoints_ ? &*checkpoints_ : nullptr, training_, settings_,
                                   [&](const std::string& text) { listener_.warning(text); });
  if (!resumed) {
    listener_.line(
        fmt::format("no checkpoint in {}; starting from the beginning", options_.checkpoint_dir));
    return;
  }
  position_ = resumed->position;
  if (steps_left_in_epoch() == 0) next_epoch();  // too few examples are left for these ranks
  total_ = rate_.total_steps = total_steps();
  saved_step_ = position_.step;
  listener_.line(fmt::format("continuing from {} after {} steps", resumed->file, position_.step));
  if (options_.target_accuracy > 0) {
    evaluation_ = evaluate(training_, options_.batch);
    target_reached_ = evaluation_->accuracy >= options_.target_accuracy;
  }
}

// Each kind of step on a GPU, unless that cannot be or is not wanted.
void Trainer::record_steps() {
  if (training_.device.is_cpu() || !options_.graphs || done()) return;
  if (const std::optional<std::string> obstacle = RecordedTraining::obstacle(training_)) {
    listener_.line("steps are not recorded: " + *obstacle);
    return;
  }
  recorded_.emplace(training_, loss_);
}

void Trainer::train_step(const data::Batch& batch) {
  const double rate = learning_rate_at(rate_, position_.step);
  recorded_ ? recorded_->step(batch, rate) : train_as_it_is(batch, rate);
  ++position_.step;
  ++position_.epoch_steps;
  ++steps_here_;
  position_.examples += batch.size() * ranks_.size();
}

void Trainer::train_as_it_is(const data::Batch& batch, double rate) {
  training_.model->zero_grad();
  std::optional<RandomNumbers> random;
  if (options_.kfac.lm_damping) random.emplace(training_.device);
  const at::Tensor loss = loss_of(batch);
  loss.backward();
  if (training_.kfac) training_.kfac->step(rate, momentum_of(*training_.optimizer));
  training_.update(rate);
  if (training_.kfac && StepControl(*training_.kfac).judges_damping()) {
    const double after = value_again(training_, *random, [&] { return loss_of(batch); });
    StepControl(*training_.kfac).judge_damping(loss.item<double>(), after);
  }
  loss_.add_(loss.detach(), batch.size());
}

void Trainer::settle() {
  const double loss = loss_.item<double>();
  loss_.zero_();
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - since_).count();
  since_ = now;
  position_.seconds += seconds;
  position_.epoch_seconds += seconds;
  position_.loss_sum += loss;
  if (!std::isfinite(loss)) {
    throw NumericalError(
        fmt::format("train: the loss is {} at step {} (learning rate {}); lower --lr{}", loss,
                    position_.step, learning_rate_at(rate_, position_.step - 1),
                    options_.second_order() ? ", raise --damping or lower --kl-clip"
                                            : " or use --warmup-steps"));
  }
}

void Trainer::show_progress() {
  const TrainStatus now = status(/*of_all_ranks=*/false);
  listener_.progress(
      {.epoch = position_.epoch + 1,
       .batch = position_.epoch_steps,
       .batches = position_.epoch_steps + steps_left_in_epoch(),
       .steps_left = total_ - position_.step,
       .steps_per_second = now.images_per_second() / static_cast<double>(batch_of_all()),
       .images_per_second = now.images_per_second(),
       .loss = now.train_loss()});
}

TrainStatus Trainer::status(bool of_all_ranks) {
  TrainStatus result{.options = options_,
                     .position = position_,
                     .steps_per_epoch = per_epoch_,
                     .world = ranks_.size()};
  const double loss = result.position.loss_sum;
  result.position.loss_sum = of_all_ranks ? ranks_.sum({loss})[0] : loss * ranks_.size();
  result.learning_rate = learning_rate_at(rate_, std::max<std::int64_t>(position_.step - 1, 0));
  result.evaluation = evaluation_;
  return result;
}

void Trainer::after_step() {
  if (training_.device.is_cpu() || listener_.progress_due()) settle();
  if (listener_.progress_due()) show_progress();
  evaluation_.reset();
  const bool end_of_epoch = steps_left_in_epoch() == 0;
  if (end_of_epoch || due(options_.eval_every) || position_.step == total_) {
    settle();
    evaluation_ = evaluate(training_, options_.batch);
    target_reached_ =
        options_.target_accuracy > 0 && evaluation_->accuracy >= options_.target_accuracy;
    TrainStatus now = status(/*of_all_ranks=*/true);
    if (options_.second_order()) now.counters = training_.kfac->counters();
    listener_.row(row_of(now));
    if (due(options_.eval_every)) metrics_.append(eval_json(now));
    if (end_of_epoch || position_.step == total_ || target_reached_) {
      metrics_.append(epoch_json(now));
    }
    if (end_of_epoch) next_epoch();
    since_ = Clock::now();
  }
  const bool by_interval =
      options_.checkpoint_every > 0 ? due(options_.checkpoint_every) : end_of_epoch;
  if (by_interval) save_checkpoint();
  stopped_ = ranks_.any_stopped(interrupt_.signal() != 0);
}

void Trainer::save_checkpoint() {
  if (options_.checkpoint_dir.empty() || saved_step_ == position_.step) return;
  settle();
  ranks_.average(training_.model->buffers());
  save_state(checkpoints_ ? &*checkpoints_ : nullptr, training_, position_, settings_);
  saved_step_ = position_.step;
  since_ = Clock::now();
}

TrainResult Trainer::run() {
  begin();
  record_steps();
  since_ = Clock::now();
  while (!done()) {
    const data::Batches batches(training_.train, {.batch = options_.batch,
                                                  .shuffle = true,
                                                  .augment = options_.augment,
                                                  .seed = options_.seed,
                                                  .epoch = position_.epoch,
                                                  .rank = ranks_.rank(),
                                                  .world = ranks_.size(),
                                                  .first = position_.examples,
                                                  .device = training_.device});
    for (std::int64_t k = 0; k < batches.size() && !done(); ++k) {
      train_step(batches.at(k));
      after_step();
    }
  }
  return finish();
}

void Trainer::say_what_ranks_did(Json& summary) {
  const KfacMemory memory = training_.kfac->memory();
  const std::vector<RankFigures> figures = gather(
      ranks_, {.memory = memory,
               .sent_per_step = ranks_.communicator()->traffic().sent /
                                static_cast<double>(std::max<std::int64_t>(1, steps_here_))});
  listener_.line(ranks_text(figures));
  summary["ranks"] = ranks_json(figures);
  const std::optional<Plan> plan = training_.kfac->plan();
  if (!plan) return;
  summary["plan"] = plan->digest();
  if (!options_.ranks.plan_out.empty() && ranks_.first()) {
    write_file_atomically(options_.ranks.plan_out, to_json(*plan).dump(1) + "\n");
  }
}

TrainResult Trainer::finish() {
  if (position_.step > 0) save_checkpoint();
  TrainResult result;
  if (stopped_) result.signal = interrupt_.signal() != 0 ? interrupt_.signal() : SIGTERM;
  std::string ended_by = target_reached_ ? "target" : "end";
  if (result.signal != 0) {
    ended_by = result.signal == SIGINT ? "SIGINT" : "SIGTERM";
    listener_.line(fmt::format("stopped by {} after {} of {} steps; {}", ended_by, position_.step,
                               total_,
                               !options_.checkpoint_dir.empty()
                                   ? "to continue, repeat the command with --resume"
                                   : "nothing was saved because there is no --checkpoint-dir"));
  } else if (!evaluation_) {  // a finished run was continued
    evaluation_ = evaluate(training_, options_.batch);
    listener_.row(row_of(status(/*of_all_ranks=*/true)));
  }
  if (target_reached_) {
    listener_.line(fmt::format("reached an accuracy of {:.2f} % after {} steps and {:.1f} s",
                               100 * evaluation_->accuracy, position_.step, position_.seconds));
  }
  TrainStatus now = status(/*of_all_ranks=*/true);
  if (options_.second_order()) {
    now.counters = training_.kfac->counters();
    const std::string trouble = trouble_text(*now.counters);
    if (!trouble.empty()) listener_.line(trouble);
    if (!options_.trace.empty() && ranks_.first()) {
      std::ostringstream text;
      StepMeter(*training_.kfac).trace().write_perfetto(text);
      write_file_atomically(options_.trace, text.str());
    }
  }
  result.summary = summary_json(now, training_, ended_by);
  if (!ranks_.alone()) say_what_ranks_did(result.summary);
  return result;
}

}  // namespace

TrainResult train(const TrainOptions& options, TrainListener& listener) {
  auto ranks = std::make_unique<Ranks>(options.ranks, find_device(options.device));
  const bool first = ranks->first();
  if (first) {
    check_output(options.trace, "--trace");
    check_output(options.ranks.plan_out, "--plan-out");
    check_output(options.out, "--out");
  }
  SilentListener silent;
  TrainResult result = Trainer(options, std::move(ranks), first ? listener : silent).run();
  result.first_rank = first;
  return result;
}

}  // namespace spdkfac::train
