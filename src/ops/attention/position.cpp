#include "ops/attention/position.h"

#include <c10/core/InferenceMode.h>
#include <torch/types.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "ops/fixed_shapes.h"

namespace mnemo::ops {

at::Tensor sinusoids(const at::Tensor& positions, int64_t dim, const at::TensorOptions& options) {
  const auto wide = at::TensorOptions().dtype(at::kDouble).device(positions.device());
  const at::Tensor frequencies = at::pow(10000.0, at::arange(0, dim, 2, wide) * (-1.0 / static_cast<double>(dim)));
  const at::Tensor angles = positions.to(at::kDouble).unsqueeze(-1) * frequencies;
  return at::cat({angles.sin(), angles.cos()}, -1).to(options.dtype()).to(options.device());
}

at::Tensor fairseq_sinusoids(const at::Tensor& positions, int64_t dim, const at::TensorOptions& options) {
  const auto wide = at::TensorOptions().dtype(at::kDouble).device(positions.device());
  const int64_t half = dim / 2;
  const at::Tensor frequencies = at::pow(
      10000.0, at::arange(half, wide) * (-1.0 / static_cast<double>(std::max<int64_t>(half - 1, 1))));
  const at::Tensor angles = positions.to(at::kDouble).unsqueeze(-1) * frequencies;
  const at::Tensor rows = at::cat({angles.sin(), angles.cos()}, -1);
  return at::constant_pad_nd(rows, {0, dim - 2 * half}).to(options.dtype()).to(options.device());
}

at::Tensor distance_sinusoids(int64_t num_queries, int64_t num_keys, bool looks_right, int64_t clamp, int64_t dim,
                              const at::TensorOptions& options) {
  struct Table {
    int64_t dim, clamp, first, last;  // distances first .. -last
    at::ScalarType dtype;
    at::Device device;
    at::Tensor rows;
  };
  // A few constants per thread: building them costs more than small models' attention.
  thread_local std::vector<Table> tables;
  const at::ScalarType dtype = c10::typeMetaToScalarType(options.dtype());
  const int64_t last = looks_right ? num_queries - 1 : 0;
  auto found = std::find_if(tables.begin(), tables.end(), [&](const Table& table) {
    return table.dim == dim && table.clamp == clamp && table.dtype == dtype && table.device == options.device();
  });
  if (found == tables.end()) {
    constexpr size_t kMaxTables = 8;
    if (tables.size() >= kMaxTables) tables.erase(tables.begin());
    found = tables.insert(tables.end(), Table{dim, clamp, -1, -1, dtype, options.device(), {}});
  }
  if (found->first < num_keys - 1 || found->last < last) {
    auto grown = [](int64_t size) { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(size + 1))) - 1; };
    found->first = std::max(found->first, grown(std::max<int64_t>(num_keys - 1, 63)));
    found->last = std::max(found->last, grown(last));
    at::Tensor distances = at::arange(found->first, -found->last - 1, -1, at::TensorOptions().dtype(at::kDouble));
    if (clamp > 0) distances = distances.clamp(-clamp, clamp);
    // The table outlives this call: if it were made in inference mode, it could not be used for training later.
    const c10::InferenceMode ordinary(false);
    const at::NoGradGuard no_grad;
    found->rows = sinusoids(distances, dim, options);
  }
  FixedShapes* work = FixedShapes::now();  // a longer table may replace this one
  const at::Tensor rows = work == nullptr ? found->rows : work->kept(found->rows);
  return rows.narrow(0, found->first - (num_keys - 1), num_keys + last);
}

}  // namespace mnemo::ops
