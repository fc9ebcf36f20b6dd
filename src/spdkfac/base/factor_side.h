// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spdkfac {

// Of a layer's two Kronecker factors: A from its inputs, G from the gradients of its outputs.
enum class FactorSide { kA, kG };

}  // namespace spdkfac
