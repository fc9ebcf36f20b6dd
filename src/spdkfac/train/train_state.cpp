// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/train/train_state.h"

#include <algorithm>
#include <memory>

#include <ATen/Context.h>
#include <torch/torch.h>

#include "spdkfac/base/json.h"
#include "spdkfac/base/tensor_file.h"
#include "spdkfac/runtime/counters_json.h"
#include "spdkfac/runtime/state_parts.h"

namespace spdkfac::train {
namespace {

// A tensor of the file: one that every rank has, or one of K-FAC's.
struct Entry {
  TensorSpec spec;
  at::Tensor tensor;
  std::optional<std::size_t> kfac = std::nullopt;
};

Json settings_json(const Settings& settings) {
  Json json = Json::object();
  for (const auto& [flag, value] : settings) json[flag] = value;
  return json;
}

Json position_json(const TrainPosition& position, const Ranks& ranks) {
  return {{"step", position.step},
          {"epoch", position.epoch},
          {"examples", position.examples},
          {"epoch_steps", position.epoch_steps},
          {"loss_sum", ranks.sum({position.loss_sum})[0]},
          {"seconds", position.seconds},
          {"epoch_seconds", position.epoch_seconds}};
}

// Of random numbers on that device, for models with dropout; row r is that of rank r.
at::Tensor generator_states(const Ranks& ranks, at::Device device) {
  return ranks.gather_bytes(at::globalContext().defaultGenerator(device).get_state());
}

std::vector<Entry> entries_of(Training& training, const KfacStateStream* kfac) {
  std::vector<Entry> entries;
  const auto add = [&](const std::string& prefix, const NamedTensors& tensors) {
    for (const auto& [name, tensor] : tensors) {
      entries.push_back({runtime::spec_of(prefix + name, tensor), tensor.detach()});
    }
  };
  add("model.", model_tensors(training));
  add("optimizer.", optimizer_tensors(training.optimizers(), model_parameters(training)));
  for (std::size_t i = 0; kfac != nullptr && i < kfac->tensors().size(); ++i) {
    entries.push_back({kfac->tensors()[i], {}, i});
    entries.back().spec.name = "kfac." + entries.back().spec.name;
  }
  add("", {{"random.cpu", generator_states(*training.ranks, at::kCPU)}});
  if (training.device.is_cuda()) {
    add("", {{"random.cuda", generator_states(*training.ranks, training.device)}});
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return element_bytes(a.spec.dtype) > element_bytes(b.spec.dtype);
  });
  return entries;
}

}  // namespace

NamedTensors model_parameters(const Training& training) {
  NamedTensors tensors;
  for (const auto& item : training.model->named_parameters()) {
    tensors.emplace_back(item.key(), item.value());
  }
  return tensors;
}

NamedTensors model_tensors(const Training& training) {
  NamedTensors tensors = model_parameters(training);
  for (const auto& item : training.model->named_buffers()) {
    tensors.emplace_back(item.key(), item.value());
  }
  return tensors;
}

void save_state(const CheckpointFolder* folder, Training& training, const TrainPosition& position,
                const Settings& settings) {
  const Ranks& ranks = *training.ranks;
  const std::string what = "writing the checkpoint";
  std::optional<KfacStateStream> kfac;
  if (training.second_order) kfac = training.kfac->state();
  const std::vector<Entry> entries = entries_of(training, kfac ? &*kfac : nullptr);
  TensorHeader header;
  header.metadata = {{"format", kCheckpointFormat},
                     {"settings", settings_json(settings).dump()},
                     {"position", position_json(position, ranks).dump()}};
  if (kfac) {
    header.metadata["kfac"] =
        Json{{"options", kfac->options()}, {"counters", runtime::counters_json(kfac->counters())}}
            .dump();
  }
  for (const Entry& entry : entries) header.tensors.push_back(entry.spec);
  std::unique_ptr<TensorFileWriter> writer;
  ranks.on_first(what, [&] {
    writer = std::make_unique<TensorFileWriter>(folder->file_of(position.step), header);
  });
  for (const Entry& entry : entries) {
    at::Tensor tensor = entry.kfac ? kfac->read(*entry.kfac) : entry.tensor;
    if (ranks.first()) tensor = tensor.cpu().contiguous();
    ranks.on_first(what, [&] { writer->append(tensor.const_data_ptr(), tensor.nbytes()); });
  }
  ranks.on_first(what, [&] {
    writer->finish();
    folder->remove_old();
  });
}

}  // namespace spdkfac::train
