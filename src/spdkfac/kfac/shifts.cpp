// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/kfac/shifts.h"

#include <algorithm>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "spdkfac/base/check.h"
#include "spdkfac/kfac/cuda/shifts_cuda.h"
#include "spdkfac/kfac/precision.h"
#include "spdkfac/kfac/shift_assembly.h"
#include "spdkfac/kfac/symmetric.h"

namespace spdkfac::kfac {
namespace {

// Elements that are worth a thread of their own.
constexpr std::int64_t kShiftGrain = 1 << 13;

using Pair = std::array<std::int64_t, 2>;

// How far the kernel reaches beyond its corner.
std::int64_t reach(const ConvGeometry& conv, std::size_t axis) {
  return conv.dilation[axis] * (conv.kernel[axis] - 1);
}

// Positions left out on each side of an axis although the kernel meets the image there.
std::int64_t left_out(const ConvGeometry& conv, std::size_t axis) {
  return std::max<std::int64_t>(0, reach(conv, axis) - conv.padding[axis]);
}

// The positions left out at one edge of the image, and the places of the kernel that meet it there.
// Those above and below take the corners.
struct Edge {
  PatchGrid grid;
  Pair begin{0, 0};
  Pair end{0, 0};

  bool empty() const {
    return grid.size[0] <= 0 || grid.size[1] <= 0 || begin[0] >= end[0] || begin[1] >= end[1];
  }
};

Edge edge_of(const Pair& image, const Pair& output, const ConvGeometry& conv, std::size_t axis,
             bool far) {
  const std::size_t other = 1 - axis;
  const std::int64_t count = left_out(conv, axis);
  Edge edge;
  Pair first{};
  first[axis] = far ? output[axis] : -count;
  edge.grid.size[axis] = count;
  const bool corners = axis == 0;
  first[other] = corners ? -left_out(conv, other) : 0;
  edge.grid.size[other] = output[other] + (corners ? 2 * left_out(conv, other) : 0);
  edge.end = conv.kernel;
  const std::int64_t dilation = conv.dilation[axis];
  if (far) {
    const std::int64_t room = image[axis] - 1 + conv.padding[axis] - output[axis];
    edge.end[axis] = room < 0 ? 0 : std::min(conv.kernel[axis], room / dilation + 1);
  } else {
    edge.begin[axis] = (conv.padding[axis] + dilation) / dilation;
  }
  for (std::size_t i = 0; i < 2; ++i) {
    edge.grid.origin[i] = first[i] + conv.dilation[i] * edge.begin[i] - conv.padding[i];
  }
  return edge;
}

std::vector<Edge> edges_of(const at::Tensor& input, const ConvGeometry& conv) {
  const Pair image = {input.size(2), input.size(3)};
  const Pair output = output_size(input, conv);
  std::vector<Edge> edges = {
      edge_of(image, output, conv, 0, false), edge_of(image, output, conv, 0, true),
      edge_of(image, output, conv, 1, false), edge_of(image, output, conv, 1, true)};
  std::erase_if(edges, [](const Edge& edge) { return edge.empty(); });
  return edges;
}

Pair places_of(const Edge& edge) {
  return {edge.end[0] - edge.begin[0], edge.end[1] - edge.begin[1]};
}

at::Tensor edge_products(const at::Tensor& input, const ConvGeometry& conv, const Edge& edge) {
  ConvGeometry part = conv;
  part.kernel = places_of(edge);
  const std::int64_t features = input.size(1) * part.kernel[0] * part.kernel[1];
  const std::int64_t columns = input.size(0) * edge.grid.size[0] * edge.grid.size[1];
  const at::Tensor patches = at::empty({1, features, columns}, input.options());
  copy_patches(input, part, edge.grid, {0, input.size(0), 0, edge.grid.size[0]}, patches);
  at::Tensor products = at::empty({features, features}, input.options());
  add_gram(patches[0], 1, products, /*overwrite=*/true);
  return products;
}

// Of all edges at once: a GPU has little to do with one, and the host much.
at::Tensor edge_products_together(const at::Tensor& input, const ConvGeometry& conv,
                                  const std::vector<Edge>& edges) {
  std::vector<EdgePatches> all;
  for (const Edge& edge : edges) {
    all.push_back({edge.grid.origin, edge.grid.size, places_of(edge)});
  }
  const at::Tensor patches = gather_edges_cuda(input, all, conv.dilation);
  return at::bmm(patches, patches.transpose(1, 2));
}

// For each edge that is not empty, upper triangles.
std::vector<at::Tensor> products_of_edges(const at::Tensor& input, const ConvGeometry& conv,
                                          const std::vector<Edge>& edges) {
  if (edges.empty()) return {};
  if (input.is_cuda()) return edge_products_together(input, conv, edges).unbind();
  std::vector<at::Tensor> products;
  for (const Edge& edge : edges) products.push_back(edge_products(input, conv, edge));
  return products;
}

// Σ_q x[q]·x[q + shift] for all shifts that do not go up, at once: the weight gradient of a
// convolution of x whose output has the gradient x.
at::Tensor shifted_products(const at::Tensor& input, const ConvGeometry& conv) {
  const std::int64_t channels = input.size(1);
  const at::Tensor weight = at::empty({channels, channels, conv.kernel[0], 2 * conv.kernel[1] - 1},
                                      input.options(), input.suggest_memory_format());
  const at::Tensor longer = at::constant_pad_nd(input, {0, 0, 0, reach(conv, 0)});
  return std::get<1>(at::convolution_backward(
      input, longer, weight, std::nullopt, {1, 1}, {0, reach(conv, 1)}, conv.dilation,
      /*transposed=*/false, {0, 0}, /*groups=*/1, {false, true, false}));
}

template <class Scalar>
void assemble_on_cpu(const ShiftAssembly<Scalar>& from, Scalar scale, Scalar keep,
                     const at::Tensor& sum) {
  Scalar* const values = sum.mutable_data_ptr<Scalar>();
  const std::int64_t stride = sum.stride(0);
  at::parallel_for(
      0, from.dim, kShiftGrain / from.dim + 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          for (std::int64_t column = row; column < from.dim; ++column) {
            const Scalar value = scale * shifted_element(from, static_cast<std::int32_t>(row),
                                                         static_cast<std::int32_t>(column));
            Scalar& to = values[row * stride + column];
            to = keep == 0 ? value : to + value;
          }
        }
      });
}

}  // namespace

bool has_shifts(const at::Tensor& input, const ConvGeometry& conv) {
  return conv.groups == 1 && conv.stride == Pair{1, 1} && conv.kernel != Pair{1, 1} &&
         left_out(conv, 0) < input.size(2) && left_out(conv, 1) < input.size(3);
}

void add_shift_products(const at::Tensor& input, const ConvGeometry& conv, double scale,
                        at::Tensor sum, bool overwrite) {
  const std::int64_t dim = input.size(1) * conv.kernel[0] * conv.kernel[1];
  SPDKFAC_CHECK(has_shifts(input, conv) && sum.dim() == 2 && sum.size(0) == dim &&
                    sum.size(1) == dim && sum.stride(1) == 1,
                "a convolution without shifted products, or a sum of another size");
  // Both kinds of products read the same values; with bf16 they are tf32, too.
  const bool tf32 = input.is_cuda() && at::globalContext().allowTF32CuDNN();
  const at::Tensor images =
      rounded_to(tf32 ? Precision::kTf32 : Precision::kFp32, input.to(sum.scalar_type()));
  const at::Tensor shifted = shifted_products(images, conv);
  const std::vector<Edge> edges = edges_of(images, conv);
  const std::vector<at::Tensor> products = products_of_edges(images, conv, edges);
  AT_DISPATCH_FLOATING_TYPES(sum.scalar_type(), "add_shift_products", [&] {
    ShiftAssembly<scalar_t> from;
    from.shifted = shifted.const_data_ptr<scalar_t>();
    std::copy_n(shifted.strides().begin(), 4, from.shifted_stride);
    from.kernel_rows = static_cast<std::int32_t>(conv.kernel[0]);
    from.kernel_columns = static_cast<std::int32_t>(conv.kernel[1]);
    from.dim = static_cast<std::int32_t>(dim);
    for (std::size_t i = 0; i < edges.size(); ++i) {
      from.edges[i] = {
          products[i].const_data_ptr<scalar_t>(),       products[i].stride(0),
          static_cast<std::int32_t>(edges[i].begin[0]), static_cast<std::int32_t>(edges[i].end[0]),
          static_cast<std::int32_t>(edges[i].begin[1]), static_cast<std::int32_t>(edges[i].end[1])};
    }
    const auto factor = static_cast<scalar_t>(scale);
    const scalar_t keep = overwrite ? 0 : 1;
    if (sum.is_cuda()) {
      assemble_cuda(from, factor, keep, sum);
    } else {
      assemble_on_cpu(from, factor, keep, sum);
    }
  });
}

double shift_work(const at::Tensor& input, const ConvGeometry& conv) {
  const auto places = static_cast<double>(conv.kernel[0] * conv.kernel[1]);
  const Pair output = output_size(input, conv);
  double work = static_cast<double>((2 * conv.kernel[0] - 1) * (2 * conv.kernel[1] - 1) *
                                    input.size(2) * input.size(3));
  for (const Edge& edge : edges_of(input, conv)) {
    const auto met = static_cast<double>(places_of(edge)[0] * places_of(edge)[1]);
    work += met * met * static_cast<double>(edge.grid.size[0] * edge.grid.size[1]);
  }
  return work / (places * places * static_cast<double>(output[0] * output[1]));
}

}  // namespace spdkfac::kfac
