// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace spdkfac::kfac {

// Symmetric matrices [d, d] or [groups, d, d], each row in one piece: products that write only the
// upper triangle, and the packed triangle that travels in messages.

// sum += scale·rows·rowsᵀ, or = with `overwrite`, for rows [d, k], upper triangle only; about half
// the work of a full product where d is large enough for that to pay. The lower triangle is left
// undefined.
void add_gram(const at::Tensor& rows, double scale, at::Tensor sum, bool overwrite = false);

// Copies the upper triangle over the lower one.
void mirror_upper(at::Tensor matrix);

// Writes the upper triangles, multiplied by `scale`, row by row into `packed`, a contiguous buffer
// of groups·d(d+1)/2 elements of the same type and device, in one pass. No temporary of the
// matrix's size.
void pack_upper(const at::Tensor& matrix, at::Tensor packed, double scale = 1);

// The triangles of a whole message, of one type and device: on a GPU one kernel (for up to 64).
struct Triangle {
  at::Tensor matrix;
  at::Tensor packed;
  double scale = 1;
};
void pack_upper(const std::vector<Triangle>& triangles);

// The reverse; writes both triangles.
void unpack_upper(const at::Tensor& packed, at::Tensor matrix);

}  // namespace spdkfac::kfac
