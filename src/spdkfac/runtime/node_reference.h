// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

namespace spdkfac::runtime {

// LibTorch counts the nodes of a graph with std::shared_ptr up to 2.12, with c10::intrusive_ptr
// from 2.13 on.
template <class Pointer>
struct WeakFor;
template <class Value>
struct WeakFor<std::shared_ptr<Value>> {
  using Type = std::weak_ptr<Value>;
};
template <class Value>
struct WeakFor<c10::intrusive_ptr<Value>> {
  using Type = c10::weak_intrusive_ptr<Value>;
};

// A node that may be gone: lock() and expired().
using NodeReference =
    WeakFor<std::remove_cvref_t<decltype(std::declval<const at::Tensor&>().grad_fn())>>::Type;

}  // namespace spdkfac::runtime
