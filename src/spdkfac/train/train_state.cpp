// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/train/train_state.h"

#include <algorithm>

#include <ATen/Context.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include "spdkfac/base/error.h"
#include "spdkfac/base/json.h"

namespace spdkfac::train {
namespace {

namespace serialize = torch::serialize;

constexpr const char* kFormat = "spdkfac.training-state/1";

Json settings_json(const Settings& settings) {
  Json json = Json::object();
  for (const auto& [flag, value] : settings) json[flag] = value;
  return json;
}

void check_settings(const Json& saved, const Settings& settings, const std::string& where) {
  const Json now = settings_json(settings);
  std::vector<std::string> differences;
  const auto value = [](const Json& json, const std::string& flag) {
    return json.contains(flag) ? json[flag].get<std::string>() : "absent";
  };
  const auto compare = [&](const Json& one) {
    for (const auto& item : one.items()) {
      const std::string text = fmt::format("{} {} (now {})", item.key(), value(saved, item.key()),
                                           value(now, item.key()));
      const bool known =
          std::find(differences.begin(), differences.end(), text) != differences.end();
      if (value(saved, item.key()) != value(now, item.key()) && !known) differences.push_back(text);
    }
  };
  compare(saved);
  compare(now);
  if (differences.empty()) return;
  throw ConfigError(fmt::format(
      "{}: was made with other options: {}; use the same options, or another --checkpoint-dir",
      where, fmt::join(differences, ", ")));
}

// Of random numbers on that device, for models with dropout.
at::Tensor generator_state(at::Device device) {
  return at::globalContext().defaultGenerator(device).get_state();
}

template <class Value>
Value read_value(serialize::InputArchive& archive, const std::string& key) {
  c10::IValue value;
  archive.read(key, value);
  return value.to<Value>();
}

}  // namespace

std::string save_state(Training& training, const TrainPosition& position,
                       const Settings& settings) {
  serialize::OutputArchive archive;
  archive.write("format", c10::IValue(kFormat));
  archive.write("settings", c10::IValue(settings_json(settings).dump()));
  archive.write("step", c10::IValue(position.step));
  archive.write("seconds", c10::IValue(position.seconds));
  // The same on all ranks; their sum is what counts.
  const Ranks& ranks = *training.ranks;
  archive.write("loss_sum", c10::IValue(ranks.sum({position.loss_sum})[0] / ranks.size()));
  archive.write("examples", c10::IValue(position.examples));
  archive.write("epoch_seconds", c10::IValue(position.epoch_seconds));
  const auto write_generators = [&](const char* key, at::Device device) {
    archive.write(key, training.ranks->gather_bytes(generator_state(device)), /*is_buffer=*/true);
  };
  write_generators("generators_cpu", at::kCPU);
  if (training.device.is_cuda()) write_generators("generators_cuda", training.device);
  serialize::OutputArchive model;
  training.model->save(model);
  archive.write("model", model);
  serialize::OutputArchive optimizer;
  training.optimizer->save(optimizer);
  archive.write("optimizer", optimizer);
  if (training.kfac) {
    serialize::OutputArchive kfac;
    training.kfac->save(kfac);
    archive.write("kfac", kfac);
  }
  std::string content;
  archive.save_to([&](const void* data, std::size_t size) {
    content.append(static_cast<const char*>(data), size);
    return size;
  });
  return content;
}

TrainPosition load_state(const std::string& content, const std::string& where, Training& training,
                         const Settings& settings) {
  try {
    serialize::InputArchive archive;
    archive.load_from(content.data(), content.size(), training.device);
    if (read_value<std::string>(archive, "format") != kFormat) {
      throw Error(fmt::format("{}: cannot be read (its format is not {})", where, kFormat));
    }
    check_settings(parse_json(read_value<std::string>(archive, "settings"), where), settings,
                   where);
    TrainPosition position;
    position.step = read_value<std::int64_t>(archive, "step");
    position.seconds = read_value<double>(archive, "seconds");
    position.loss_sum = read_value<double>(archive, "loss_sum");
    position.examples = read_value<std::int64_t>(archive, "examples");
    position.epoch_seconds = read_value<double>(archive, "epoch_seconds");
    serialize::InputArchive part;
    archive.read("model", part);
    training.model->load(part);
    archive.read("optimizer", part);
    training.optimizer->load(part);
    if (training.kfac) {
      archive.read("kfac", part);
      training.kfac->load(part);
    }
    const auto restore = [&](const char* key, at::Device device) {
      at::Tensor state;
      if (!archive.try_read(key, state, /*is_buffer=*/true)) return;
      at::Generator generator = at::globalContext().defaultGenerator(device);
      generator.set_state(state.cpu()[training.ranks->rank()].clone());
    };
    restore("generators_cpu", at::kCPU);
    if (training.device.is_cuda()) restore("generators_cuda", training.device);
    return position;
  } catch (const c10::Error& error) {
    throw Error(fmt::format("{}: cannot be read ({})", where,
                            std::string_view(error.what_without_backtrace()).substr(0, 200)));
  }
}

std::optional<Resumed> load_newest(const CheckpointFolder& folder, Training& training,
                                   const Settings& settings,
                                   const std::function<void(const std::string&)>& warn) {
  const auto files = folder.files();
  for (const auto& file : files) {
    try {
      const std::string content = folder.read(file);
      return Resumed{load_state(content, file.string(), training, settings), file.string(),
                     content};
    } catch (const ConfigError&) {
      throw;
    } catch (const Error& error) {
      folder.set_aside(file);
      warn(fmt::format("{}; renamed it to {}.damaged and using the previous checkpoint",
                       error.what(), file.filename().string()));
    }
  }
  if (files.empty()) return std::nullopt;
  throw ConfigError(fmt::format(
      "{}: none of its {} checkpoints can be read; pass another --checkpoint-dir to start again",
      folder.path().string(), files.size()));
}

}  // namespace spdkfac::train
