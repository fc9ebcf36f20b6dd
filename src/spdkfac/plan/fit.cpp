// SPDX-License-Identifier: Apache-2.0
#include "spdkfac/plan/fit.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "spdkfac/base/error.h"
#include "spdkfac/base/median.h"

namespace spdkfac::plan {
namespace {

void check(std::span<const Measurement> measurements, std::size_t coefficients, const char* form) {
  std::set<double> sizes;
  for (const Measurement& m : measurements) {
    if (!std::isfinite(m.size) || m.size < 0 || !std::isfinite(m.time.value()) ||
        m.time.value() <= 0) {
      throw ConfigError(fmt::format(
          "fit: {} needs sizes from 0 and times above 0 (got size {} and {} s); measure again",
          form, m.size, m.time.value()));
    }
    sizes.insert(m.size);
  }
  if (sizes.size() < coefficients) {
    throw ConfigError(
        fmt::format("fit: {} needs at least {} different sizes (got {}); measure more", form,
                    coefficients, sizes.size()));
  }
}

FitQuality quality_of(std::span<const Measurement> measurements,
                      const std::function<Seconds(double)>& model) {
  FitQuality quality;
  double mean = 0;
  for (const Measurement& m : measurements) mean += m.time.value();
  mean /= static_cast<double>(measurements.size());
  double squared = 0;
  double spread = 0;
  for (const Measurement& m : measurements) {
    const Seconds residual = m.time - model(m.size);
    quality.residuals.push_back(residual);
    squared += residual.value() * residual.value();
    spread += (m.time.value() - mean) * (m.time.value() - mean);
    quality.max_relative_error =
        std::max(quality.max_relative_error, std::abs(residual.value()) / m.time.value());
  }
  quality.r_squared = spread > 0 ? 1 - squared / spread : (squared > 0 ? 0 : 1);
  return quality;
}

using Column = std::vector<double>;

double dot(const Column& a, const Column& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// Coefficients x of min |Σ x_c·column_c − target|² by modified Gram-Schmidt: unlike the normal
// equations it does not square the condition number of columns such as 1, d, d², d³.
std::vector<double> least_squares(std::vector<Column> columns, Column target) {
  const std::size_t n = columns.size();
  std::vector<std::vector<double>> r(n, std::vector<double>(n, 0));
  std::vector<double> rhs(n, 0);
  for (std::size_t c = 0; c < n; ++c) {
    r[c][c] = std::sqrt(dot(columns[c], columns[c]));
    if (r[c][c] == 0) continue;
    for (double& value : columns[c]) value /= r[c][c];
    const auto remove = [&](Column& other) {
      const double share = dot(columns[c], other);
      for (std::size_t i = 0; i < other.size(); ++i) other[i] -= share * columns[c][i];
      return share;
    };
    for (std::size_t k = c + 1; k < n; ++k) r[c][k] = remove(columns[k]);
    rhs[c] = remove(target);
  }
  std::vector<double> x(n, 0);
  for (std::size_t c = n; c-- > 0;) {
    double value = rhs[c];
    for (std::size_t k = c + 1; k < n; ++k) value -= r[c][k] * x[k];
    x[c] = r[c][c] > 0 ? value / r[c][c] : 0;
  }
  return x;
}

// Σ c_p·size^p with relative weights and no negative coefficient: the best among the fits on all
// subsets of powers, which are few.
std::vector<double> fit_polynomial(std::span<const Measurement> measurements, std::size_t powers) {
  std::vector<double> best(powers, 0);
  double best_error = std::numeric_limits<double>::infinity();
  for (unsigned subset = 1; subset < (1U << powers); ++subset) {
    std::vector<std::size_t> used;
    std::vector<Column> columns;
    for (std::size_t p = 0; p < powers; ++p) {
      if ((subset >> p & 1U) == 0) continue;
      used.push_back(p);
      Column& column = columns.emplace_back();
      for (const Measurement& m : measurements) {
        column.push_back(std::pow(m.size, static_cast<double>(p)) / m.time.value());
      }
    }
    const auto x = least_squares(columns, Column(measurements.size(), 1.0));
    if (std::any_of(x.begin(), x.end(), [](double c) { return c < 0; })) continue;
    std::vector<double> coefficients(powers, 0);
    for (std::size_t i = 0; i < used.size(); ++i) coefficients[used[i]] = x[i];
    double error = 0;
    for (const Measurement& m : measurements) {
      double fitted = 0;
      for (std::size_t p = powers; p-- > 0;) fitted = fitted * m.size + coefficients[p];
      error += std::pow(fitted / m.time.value() - 1, 2);
    }
    if (error < best_error) {
      best_error = error;
      best = coefficients;
    }
  }
  return best;
}

// log(time) = x0 + x1·size, returned as e^{x0} and x1.
std::pair<double, double> fit_logarithm(std::span<const Measurement> measurements) {
  std::vector<Column> columns(2);
  Column target;
  for (const Measurement& m : measurements) {
    columns[0].push_back(1);
    columns[1].push_back(m.size);
    target.push_back(std::log(m.time.value()));
  }
  const auto x = least_squares(columns, target);
  return {std::exp(x[0]), x[1]};
}

FitQuality inverse_quality(std::span<const Measurement> measurements, const InverseCost& cost) {
  return quality_of(measurements, [&](double size) {
    return inverse_time(cost, static_cast<std::int64_t>(std::llround(size)));
  });
}

}  // namespace

Fit<CollectiveCost> fit_collective(std::span<const Measurement> measurements) {
  check(measurements, 2, "a collective");
  const auto c = fit_polynomial(measurements, 2);
  const CollectiveCost model{Seconds(c[0]), Seconds(c[1])};
  return {model, quality_of(measurements,
                            [&](double size) { return model.alpha() + model.beta() * size; })};
}

Fit<ExponentialInverse> fit_exponential(std::span<const Measurement> measurements) {
  check(measurements, 2, "an exponential");
  const auto [alpha, beta] = fit_logarithm(measurements);
  const ExponentialInverse model{alpha, beta};
  return {model, inverse_quality(measurements, model)};
}

Fit<CubicInverse> fit_cubic(std::span<const Measurement> measurements) {
  check(measurements, 4, "a cubic");
  const auto c = fit_polynomial(measurements, 4);
  const CubicInverse model{c[0], c[1], c[2], c[3]};
  return {model, inverse_quality(measurements, model)};
}

Fit<CostTable> fit_table(std::span<const Measurement> measurements) {
  check(measurements, 1, "a table");
  std::map<double, std::vector<double>> by_size;
  for (const Measurement& m : measurements) by_size[m.size].push_back(m.time.value());
  struct Pool {
    double sum;
    std::vector<double> sizes;
    double mean() const { return sum / static_cast<double>(sizes.size()); }
  };
  std::vector<Pool> pools;
  for (const auto& [size, times] : by_size) {
    pools.push_back({median(times), {size}});
    while (pools.size() > 1 && pools[pools.size() - 2].mean() > pools.back().mean()) {
      Pool last = std::move(pools.back());
      pools.pop_back();
      pools.back().sum += last.sum;
      pools.back().sizes.insert(pools.back().sizes.end(), last.sizes.begin(), last.sizes.end());
    }
  }
  std::vector<std::pair<double, Seconds>> points;
  for (const Pool& pool : pools) {
    for (const double size : pool.sizes) points.emplace_back(size, Seconds(pool.mean()));
  }
  const CostTable model(std::move(points));
  return {model, quality_of(measurements, std::cref(model))};
}

}  // namespace spdkfac::plan
