// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/batch_cache.h"

#include <utility>

#include "spdkfac/kfac/graphed_work.h"

namespace spdkfac::runtime {

kfac::InverseBatch& BatchCache::inverses(const std::vector<FactorId>& ids,
                                         const std::vector<kfac::InverseBatch::Task>& tasks) {
  std::vector<const void*> places;
  for (const kfac::InverseBatch::Task& task : tasks) {
    places.push_back(task.factor.const_data_ptr());
    places.push_back(task.inverse->value.const_data_ptr());
  }
  return inverses_.get(ids, std::move(places), kfac::is_recording(tasks.front().factor.device()),
                       [&] { return kfac::InverseBatch(tasks, precision_); });
}

kfac::PreconditionBatch& BatchCache::gradients(
    const std::vector<std::size_t>& layers,
    const std::vector<kfac::PreconditionBatch::Task>& tasks) {
  std::vector<const void*> places;
  for (const kfac::PreconditionBatch::Task& task : tasks) {
    places.push_back(task.inverse_a.const_data_ptr());
    places.push_back(task.inverse_g.const_data_ptr());
    if (task.moments) places.push_back(task.moments->first.const_data_ptr());
  }
  if (!gradients_ || gradients_->layers != layers || gradients_->places != places) {
    gradients_.reset();  // its memory first
    gradients_.emplace(
        Gradients{layers, std::move(places), kfac::PreconditionBatch(tasks, precision_, graft_)});
  }
  return gradients_->batch;
}

Bytes BatchCache::buffer_bytes() const {
  Bytes bytes;
  inverses_.each([&](const kfac::InverseBatch& batch) { bytes += batch.buffer_bytes(); });
  if (gradients_) bytes += gradients_->batch.buffer_bytes();
  return bytes;
}

}  // namespace spdkfac::runtime
