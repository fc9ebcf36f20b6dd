// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/runtime/batch_cache.h"

#include <utility>

namespace spdkfac::runtime {

kfac::InverseBatch& BatchCache::inverses(const std::vector<FactorId>& ids,
                                         const std::vector<kfac::InverseBatch::Task>& tasks) {
  std::vector<const void*> places;
  for (const kfac::InverseBatch::Task& task : tasks) {
    places.push_back(task.factor.const_data_ptr());
    places.push_back(task.inverse->value.const_data_ptr());
  }
  for (Inverses& known : inverses_) {
    if (known.ids != ids) continue;
    if (known.places != places) {
      known.batch = kfac::InverseBatch(tasks, precision_);
      known.places = std::move(places);
    }
    return known.batch;
  }
  inverses_.push_back({ids, std::move(places), kfac::InverseBatch(tasks, precision_)});
  return inverses_.back().batch;
}

kfac::PreconditionBatch& BatchCache::gradients(
    const std::vector<std::size_t>& layers,
    const std::vector<kfac::PreconditionBatch::Task>& tasks) {
  std::vector<const void*> places;
  for (const kfac::PreconditionBatch::Task& task : tasks) {
    places.push_back(task.inverse_a.const_data_ptr());
    places.push_back(task.inverse_g.const_data_ptr());
  }
  if (!gradients_ || gradients_->layers != layers || gradients_->places != places) {
    gradients_.reset();  // its memory first
    gradients_.emplace(
        Gradients{layers, std::move(places), kfac::PreconditionBatch(tasks, precision_)});
  }
  return gradients_->batch;
}

Bytes BatchCache::buffer_bytes() const {
  Bytes bytes;
  for (const Inverses& known : inverses_) bytes += known.batch.buffer_bytes();
  if (gradients_) bytes += gradients_->batch.buffer_bytes();
  return bytes;
}

}  // namespace spdkfac::runtime
