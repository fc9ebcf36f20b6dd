// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <exception>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <set>

#include <ATen/Context.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include "spdkfac/base/error.h"
#include "spdkfac/base/json.h"
#include "spdkfac/base/tensor_file.h"
#include "spdkfac/runtime/counters_json.h"
#include "spdkfac/runtime/state_parts.h"
#include "spdkfac/train/train_state.h"

namespace spdkfac::train {
namespace {

using TensorMap = std::map<std::string, at::Tensor>;

constexpr std::int64_t kMany = std::numeric_limits<std::int64_t>::max();

// What another number of ranks may change: the batch of a rank, and what depends on it.
const std::set<std::string> kSettingsOfRanks = {"ranks", "--batch", "--algorithm",
                                                "steps of the run"};

std::map<std::string, std::string> parse_settings(const std::string& text,
                                                  const std::string& where) {
  const Json document = parse_json(text, where);
  JsonObject object{JsonValue(document, where)};
  std::map<std::string, std::string> settings;
  for (const auto& [flag, value] : object.entries()) settings[flag] = value.string();
  return settings;
}

void check_settings(const std::map<std::string, std::string>& saved, const Settings& settings,
                    const std::string& where) {
  const std::map<std::string, std::string> now(settings.begin(), settings.end());
  const auto value = [](const std::map<std::string, std::string>& of, const std::string& flag) {
    return of.contains(flag) ? of.at(flag) : "absent";
  };
  const bool other_ranks = value(saved, "ranks") != value(now, "ranks");
  std::vector<std::string> differences;
  const auto compare = [&](const std::string& flag) {
    if (other_ranks && kSettingsOfRanks.contains(flag)) return;
    if (value(saved, flag) == value(now, flag)) return;
    differences.push_back(
        fmt::format("{} {} (now {})", flag, value(saved, flag), value(now, flag)));
  };
  for (const auto& [flag, text] : settings) compare(flag);
  for (const auto& [flag, text] : saved) {
    if (!now.contains(flag)) compare(flag);
  }
  if (differences.empty()) return;
  throw ConfigError(fmt::format(
      "{}: was made with other options: {}; use the same options, or another --checkpoint-dir",
      where, fmt::join(differences, ", ")));
}

TrainPosition parse_position(const std::string& text, const std::string& where, int ranks) {
  const Json document = parse_json(text, where);
  JsonObject object{JsonValue(document, where)};
  TrainPosition position;
  position.step = object.required("step").integer(0, kMany);
  position.epoch = object.required("epoch").integer(0, kMany);
  position.examples = object.required("examples").integer(0, kMany);
  position.epoch_steps = object.required("epoch_steps").integer(0, kMany);
  position.loss_sum =
      object.required("loss_sum")
          .number(-std::numeric_limits<double>::max(), std::numeric_limits<double>::max()) /
      ranks;
  position.seconds = object.required("seconds").non_negative_number();
  position.epoch_seconds = object.required("epoch_seconds").non_negative_number();
  object.finish();
  return position;
}

const std::string& text_of(const TensorHeader& header, const char* key, const std::string& where) {
  const auto found = header.metadata.find(key);
  if (found != header.metadata.end()) return found->second;
  throw ConfigError(
      fmt::format("{}: has no {}; use a file that 'spdkfac train' wrote", where, key));
}

// Tensors whose names begin so, without that beginning.
TensorMap with_prefix(const TensorMap& tensors, const std::string& prefix) {
  TensorMap found;
  for (const auto& [name, tensor] : tensors) {
    if (name.starts_with(prefix)) found[name.substr(prefix.size())] = tensor;
  }
  return found;
}

void check_model(const TensorMap& tensors, const NamedTensors& own, const std::string& where) {
  for (const auto& [name, tensor] : own) {
    const auto found = tensors.find(name);
    if (found != tensors.end() && found->second.sizes() == tensor.sizes() &&
        found->second.scalar_type() == tensor.scalar_type()) {
      continue;
    }
    throw ConfigError(fmt::format(
        "{}: model.{} is missing or of another shape; use a file of the same model", where, name));
  }
  if (tensors.size() != own.size()) {
    throw ConfigError(
        fmt::format("{}: has {} tensors of the model, which has {}; use a file of the same model",
                    where, tensors.size(), own.size()));
  }
}

KfacState kfac_state(const TensorHeader& header, TensorMap tensors, const std::string& where) {
  const std::string place = where + ": kfac";
  const Json document = parse_json(text_of(header, "kfac", where), place);
  JsonObject object{JsonValue(document, place)};
  KfacState state;
  state.options = object.required("options").string();
  state.counters =
      runtime::parse_counters(object.required("counters").json().dump(), place + ".counters");
  object.finish();
  state.tensors = std::move(tensors);
  return state;
}

// A generator of a rank that the file does not know keeps the state that its seed gave it.
struct SavedGenerator {
  at::Device device;
  at::Tensor state;
};

// A generator that takes the state is a generator's.
void require_generator_state(const SavedGenerator& saved, const std::string& where) {
  at::Generator copy = at::globalContext().defaultGenerator(saved.device).clone();
  try {
    copy.set_state(saved.state);
  } catch (const c10::Error& error) {
    throw ConfigError(
        fmt::format("{}: a state of random numbers is refused ({}); use a file that this program "
                    "wrote",
                    where, error.what_without_backtrace()));
  }
}

std::vector<SavedGenerator> saved_generators(const TensorMap& random, const Training& training,
                                             const std::string& where) {
  std::vector<SavedGenerator> all;
  for (const auto& [name, states] : random) {
    const at::Device device = name == "cpu" ? at::Device(at::kCPU) : training.device;
    if (name == "cuda" && !training.device.is_cuda()) continue;
    const at::Tensor own = at::globalContext().defaultGenerator(device).get_state();
    if ((name != "cpu" && name != "cuda") || states.dim() != 2 ||
        states.scalar_type() != at::kByte || states.size(1) != own.numel()) {
      throw ConfigError(fmt::format(
          "{}: random.{} is no state of a generator; use a file that this program wrote", where,
          name));
    }
    if (training.ranks->rank() < states.size(0)) {
      all.push_back({device, states[training.ranks->rank()].clone()});
      require_generator_state(all.back(), where);
    }
  }
  return all;
}

// All tensors of the file on every rank, on the CPU.
TensorMap read_tensors(const TensorFileReader* reader, const TensorHeader& header,
                       const Ranks& ranks) {
  TensorMap tensors;
  for (std::size_t i = 0; i < header.tensors.size(); ++i) {
    const TensorSpec& spec = header.tensors[i];
    const at::Tensor tensor = at::empty(spec.shape, runtime::dtype_of(spec.dtype));
    ranks.on_first("reading the checkpoint", [&] { reader->read(i, tensor.mutable_data_ptr()); });
    ranks.share(tensor);
    tensors[spec.name] = tensor;
  }
  return tensors;
}

// What is in a file, checked as far as a rank can alone.
struct CheckedState {
  TrainPosition position;
  TensorMap model;
  OptimizerStates optimizer;
  std::optional<KfacState> kfac;
  std::vector<SavedGenerator> generators;
};

TrainPosition checked_position(const TensorHeader& header, const std::string& where,
                               const Training& training, const Settings& settings) {
  if (const std::string& format = text_of(header, "format", where); format != kCheckpointFormat) {
    throw ConfigError(
        fmt::format("{}: its format is {}, not {}; use a file that 'spdkfac train' "
                    "wrote",
                    where, format, kCheckpointFormat));
  }
  check_settings(parse_settings(text_of(header, "settings", where), where + ": settings"), settings,
                 where);
  const TrainPosition position = parse_position(text_of(header, "position", where),
                                                where + ": position", training.ranks->size());
  if (position.examples > training.train.size) {
    throw ConfigError(fmt::format("{}: {} examples of an epoch of {}; use the same data", where,
                                  position.examples, training.train.size));
  }
  return position;
}

CheckedState checked_state(const TensorHeader& header, const TensorMap& tensors,
                           const std::string& where, const Training& training) {
  CheckedState state;
  state.model = with_prefix(tensors, "model.");
  const TensorMap optimizer = with_prefix(tensors, "optimizer.");
  TensorMap kfac = with_prefix(tensors, "kfac.");
  const TensorMap random = with_prefix(tensors, "random.");
  if (state.model.size() + optimizer.size() + kfac.size() + random.size() != tensors.size()) {
    throw ConfigError(
        fmt::format("{}: has unknown tensors; use a file that 'spdkfac train' wrote", where));
  }
  check_model(state.model, model_tensors(training), where);
  state.generators = saved_generators(random, training, where);
  if (!training.second_order && !kfac.empty()) {
    throw ConfigError(fmt::format("{}: is of a run with K-FAC; use the same --algorithm", where));
  }
  state.optimizer =
      optimizer_states(optimizer, where, model_parameters(training), training.optimizers());
  if (training.second_order) state.kfac = kfac_state(header, std::move(kfac), where);
  return state;
}

// Checks everything, then changes the training: on all ranks or on none.
TrainPosition load_state(const TensorHeader& header, const TensorFileReader* reader,
                         const std::string& where, Training& training, const Settings& settings) {
  const TrainPosition position = checked_position(header, where, training, settings);
  const TensorMap tensors = read_tensors(reader, header, *training.ranks);
  CheckedState state;
  std::exception_ptr failure;
  try {
    state = checked_state(header, tensors, where, training);
  } catch (...) {
    failure = std::current_exception();
  }
  training.ranks->require_all(where, failure);
  if (state.kfac) training.kfac->load(*state.kfac);  // changes nothing if it throws
  put_states(std::move(state.optimizer), training.optimizers());
  const torch::NoGradGuard no_grad;
  for (auto [name, tensor] : model_tensors(training)) tensor.copy_(state.model.at(name));
  for (const auto& [device, saved] : state.generators) {
    at::Generator generator = at::globalContext().defaultGenerator(device);
    generator.set_state(saved);
  }
  return position;
}

// Files of earlier versions end with their checksum.
void refuse_earlier_version(const std::filesystem::path& file) {
  constexpr std::string_view kMark = "\nspdkfac.checkpoint/1 size=";
  constexpr std::streamoff kEnd = 63;
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  const std::streamoff size = in.tellg();
  if (!in || size < kEnd) return;
  std::string end(kMark.size(), '\0');
  in.seekg(size - kEnd);
  if (!in.read(end.data(), static_cast<std::streamsize>(end.size())) || end != kMark) return;
  throw ConfigError(
      fmt::format("{}: was written by an earlier version of spdkfac, whose checkpoints "
                  "are no longer read because they could run code; finish with that "
                  "version, or pass another --checkpoint-dir",
                  file.string()));
}

// The newest that is whole; null when there is none. On the first rank only.
std::unique_ptr<TensorFileReader> open_newest(const CheckpointFolder& folder,
                                              const std::function<void(const std::string&)>& warn) {
  const auto files = folder.files();
  for (const auto& file : files) {
    try {
      return std::make_unique<TensorFileReader>(file);
    } catch (const DamagedFile& error) {
      refuse_earlier_version(file);
      folder.set_aside(file);
      warn(fmt::format("{}; renamed it to {}.damaged and using the previous checkpoint",
                       error.what(), file.filename().string()));
    }
  }
  if (files.empty()) {
    const auto damaged = folder.damaged();
    if (damaged.empty()) return nullptr;
    throw ConfigError(fmt::format(
        "{}: its only checkpoints are damaged ({}{}); delete them to start from the beginning, or "
        "pass another --checkpoint-dir",
        folder.path().string(), damaged.front().filename().string(),
        damaged.size() > 1 ? fmt::format(" and {} more", damaged.size() - 1) : ""));
  }
  throw ConfigError(fmt::format(
      "{}: none of its {} checkpoints can be read; pass another --checkpoint-dir to start again",
      folder.path().string(), files.size()));
}

}  // namespace

std::optional<Resumed> load_newest(const CheckpointFolder* folder, Training& training,
                                   const Settings& settings,
                                   const std::function<void(const std::string&)>& warn) {
  const Ranks& ranks = *training.ranks;
  std::unique_ptr<TensorFileReader> reader;
  ranks.on_first("reading the checkpoint", [&] { reader = open_newest(*folder, warn); });
  const std::string where = ranks.from_first(reader ? reader->where() : "");
  if (where.empty()) return std::nullopt;
  std::uint64_t bytes = 0;
  if (reader) {
    for (const TensorSpec& spec : reader->header().tensors) bytes += tensor_bytes(spec);
  }
  const std::string text =
      ranks.from_first(reader ? tensor_header_json(reader->header()) : std::string());
  bytes = std::stoull(ranks.from_first(std::to_string(bytes)));
  const TensorHeader header = parse_tensor_header(text, bytes, where);
  return Resumed{load_state(header, reader.get(), where, training, settings), where};
}

}  // namespace spdkfac::train
