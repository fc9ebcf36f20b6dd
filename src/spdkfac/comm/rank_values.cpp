// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/comm/rank_values.h"

#include <algorithm>
#include <cstring>

#include <ATen/ATen.h>

namespace spdkfac::comm {
namespace {

at::Tensor bytes_of(const std::string& text, std::int64_t length, c10::Device device) {
  const at::Tensor bytes = at::zeros({length}, at::kByte);
  if (!text.empty()) std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  return bytes.to(device);
}

std::string text_of(const at::Tensor& bytes, std::int64_t length) {
  if (length == 0) return "";
  const at::Tensor host = bytes.to(at::kCPU).contiguous();
  return {static_cast<const char*>(host.const_data_ptr()), static_cast<std::size_t>(length)};
}

}  // namespace

std::vector<std::vector<double>> numbers_of_ranks(Communicator& communicator, c10::Device device,
                                                  const std::vector<double>& values) {
  if (values.empty()) {
    return std::vector<std::vector<double>>(static_cast<std::size_t>(communicator.size()));
  }
  const auto count = static_cast<std::int64_t>(values.size());
  const at::Tensor own = at::empty({count}, at::kDouble);
  std::copy(values.begin(), values.end(), own.mutable_data_ptr<double>());
  const at::Tensor own_there = own.to(device);
  const at::Tensor all = at::empty({communicator.size(), count}, own_there.options());
  communicator.all_gather_async(own_there, all, "numbers of ranks").wait();
  const at::Tensor host = all.to(at::kCPU).contiguous();
  std::vector<std::vector<double>> result;
  for (int rank = 0; rank < communicator.size(); ++rank) {
    const double* data = host.const_data_ptr<double>() + rank * count;
    result.emplace_back(data, data + count);
  }
  return result;
}

std::vector<double> largest_of_ranks(Communicator& communicator, c10::Device device,
                                     const std::vector<double>& values) {
  std::vector<double> largest = values;
  for (const std::vector<double>& one : numbers_of_ranks(communicator, device, values)) {
    for (std::size_t i = 0; i < one.size(); ++i) largest[i] = std::max(largest[i], one[i]);
  }
  return largest;
}

std::string text_of_rank_zero(Communicator& communicator, c10::Device device,
                              const std::string& text) {
  at::Tensor length = at::full({1}, static_cast<std::int64_t>(text.size()), at::kLong).to(device);
  communicator.broadcast_async(length, 0, "length of a text").wait();
  const auto size = length.item<std::int64_t>();
  const at::Tensor bytes =
      communicator.rank() == 0
          ? bytes_of(text, size, device)
          : at::empty({size}, at::TensorOptions().dtype(at::kByte).device(device));
  communicator.broadcast_async(bytes, 0, "text").wait();
  return text_of(bytes, size);
}

std::vector<std::string> texts_of_ranks(Communicator& communicator, c10::Device device,
                                        const std::string& text) {
  const auto length = largest_of_ranks(communicator, device, {static_cast<double>(text.size())});
  // One more byte, so that every text ends with a zero.
  const std::int64_t size = static_cast<std::int64_t>(length[0]) + 1;
  const at::Tensor own = bytes_of(text, size, device);
  const at::Tensor all = at::empty({communicator.size(), size}, own.options());
  communicator.all_gather_async(own, all, "texts of ranks").wait();
  std::vector<std::string> texts;
  for (std::int64_t rank = 0; rank < all.size(0); ++rank) {
    texts.emplace_back(text_of(all[rank], size).c_str());
  }
  return texts;
}

}  // namespace spdkfac::comm
