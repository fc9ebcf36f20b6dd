// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "spdkfac/kfac/patches.h"

namespace spdkfac::kfac {

// Patches of a convolution with stride 1 repeat their input: the product of the places u and v of
// the kernel, summed over all positions where it meets the image, depends on v − u alone. So the
// kh(2kw−1) shifted products of the input with itself (one weight gradient of a convolution)
// hold the whole factor, but for the positions that the convolution leaves out around the image;
// their patches are few and are subtracted. No patches of the image are made. docs/numerics.md.

// Whether a convolution of these images has its factor A this way: stride 1, one group, more than a
// point, and each place of the kernel meets the image somewhere (where one never does, the factor
// is exactly zero, which a difference is not).
bool has_shifts(const at::Tensor& input, const ConvGeometry& conv);

// Adds scale·Σããᵀ of a convolution without bias to `sum` [d, d], upper triangle, or overwrites it.
void add_shift_products(const at::Tensor& input, const ConvGeometry& conv, double scale,
                        at::Tensor sum, bool overwrite);

// Multiplications and additions of one example this way, in those of a full product of patches, as
// if those for shifts up were made too: a measure for choosing, not a count.
double shift_work(const at::Tensor& input, const ConvGeometry& conv);

}  // namespace spdkfac::kfac
