#include "weights/load_into.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/all.h>
#include <ATen/ops/isfinite.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <map>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/printable.h"
#include "core/mapped_tensor.h"

namespace mnemo::weights {
namespace {

// The first few names, and the total number.
std::string list_names(const std::vector<std::string>& names) {
  constexpr size_t kShown = 5;
  std::string out;
  for (size_t i = 0; i < names.size() && i < kShown; ++i)
    out += (i == 0 ? "'" : ", '") + base::printable(names[i]) + "'";
  if (names.size() > kShown) out += fmt::format(" and {} more", names.size() - kShown);
  return out;
}

bool floating(const at::Tensor& tensor) { return tensor.is_floating_point(); }

/// Nan and inf have an exponent of ones; one more carries into the sign.
bool are_finite(const float* numbers, int64_t count) {
  constexpr uint32_t kExponent = 0x7F800000, kOne = 0x00800000;
  constexpr int64_t kLanes = 32;
  std::array<uint32_t, kLanes> carried{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane)
      carried[lane] |= (std::bit_cast<uint32_t>(numbers[i + lane]) & kExponent) + kOne;
  }
  for (; i < count; ++i) carried[0] |= (std::bit_cast<uint32_t>(numbers[i]) & kExponent) + kOne;
  return std::ranges::all_of(carried, [](uint32_t lane) { return lane >> 31 == 0; });
}

bool is_finite(const at::Tensor& tensor, at::ScalarType dtype) {
  if (!floating(tensor)) return true;
  // A large file should not need memory for its masks.
  if (tensor.scalar_type() != at::kFloat || !tensor.is_cpu() || !tensor.is_contiguous() ||
      (dtype != at::kFloat && dtype != at::kDouble))
    return tensor.to(dtype).isfinite().all().item<bool>();
  std::atomic<bool> finite = true;
  const float* numbers = tensor.const_data_ptr<float>();
  at::parallel_for(0, tensor.numel(), int64_t{1} << 16, [&](int64_t first, int64_t last) {
    if (!are_finite(numbers + first, last - first)) finite = false;
  });
  core::forget_pages(tensor);
  return finite;
}

}  // namespace

LoadReport load_into(const TensorFile& file, const NamedTensors& targets, const std::string& where,
                     const LoadOptions& options) {
  std::map<std::string_view, const at::Tensor*> sources;
  for (const auto& [name, tensor] : file.tensors) sources.emplace(name, &tensor);

  LoadReport report;
  std::vector<std::string> wrong;
  std::set<std::string_view> wanted;
  std::vector<std::pair<const at::Tensor*, at::Tensor>> copies;
  for (const auto& [name, target] : targets) {
    base::ensure(wanted.insert(name).second, "load_into: the target '{}' is given twice", name);
    const auto source = sources.find(name);
    if (source == sources.end()) {
      report.missing.push_back(name);
      continue;
    }
    const at::Tensor& found = *source->second;
    if (found.sizes() != target.sizes()) {
      wrong.push_back(fmt::format("'{}' expected shape [{}], found [{}]", base::printable(name),
                                  fmt::join(target.sizes(), ","), fmt::join(found.sizes(), ",")));
    } else if (found.scalar_type() != target.scalar_type() &&
               !(options.convert_floating && floating(found) && floating(target))) {
      wrong.push_back(fmt::format("'{}' expected {}, found {}", base::printable(name),
                                  c10::toString(target.scalar_type()), c10::toString(found.scalar_type())));
    } else if (options.finite && !is_finite(found, target.scalar_type())) {
      wrong.push_back(fmt::format("'{}' expected finite numbers, found nan or inf", base::printable(name)));
    } else {
      copies.emplace_back(&found, target);
    }
  }
  for (const auto& [name, tensor] : file.tensors) {
    if (!wanted.contains(name)) report.unexpected.push_back(name);
  }

  std::string problems;
  if (options.strict && !report.missing.empty())
    problems += fmt::format("; missing {}: {}", report.missing.size(), list_names(report.missing));
  if (options.strict && !report.unexpected.empty())
    problems += fmt::format("; unexpected {}: {}", report.unexpected.size(), list_names(report.unexpected));
  for (size_t i = 0; i < wrong.size() && i < 5; ++i) problems += "; " + wrong[i];
  if (wrong.size() > 5) problems += fmt::format("; {} more of the wrong shape, type or value", wrong.size() - 5);
  if (!problems.empty())
    throw base::ShapeError(fmt::format("{}: does not fit the model{}", base::printable(where, 400), problems));

  if (options.compare_only) return report;
  const at::NoGradGuard no_grad;
  for (const auto& [source, target] : copies) core::take_values(target, *source);
  return report;
}

}  // namespace mnemo::weights
