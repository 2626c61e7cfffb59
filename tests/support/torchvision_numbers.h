#pragma once

#include <torch/types.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mnemo::test {

inline bool has_part(const std::string& name, std::string_view part) { return name.find(part) != std::string::npos; }

/// Numbers of [0, 1) from a hash of name and place, as in tests/python/torchvision_detectors.py.
inline at::Tensor torchvision_uniform(const std::string& name, const std::vector<int64_t>& shape) {
  uint32_t seed = 2166136261U;
  for (const char c : name) seed = (seed ^ static_cast<unsigned char>(c)) * 16777619U;
  at::Tensor out = at::empty(shape, at::kDouble);
  auto* to = out.mutable_data_ptr<double>();
  for (int64_t i = 0; i < out.numel(); ++i) {
    uint32_t h = static_cast<uint32_t>(i) * 0x9E3779B1U + seed;
    h = (h ^ (h >> 16)) * 0x85EBCA6BU;
    h = (h ^ (h >> 13)) * 0xC2B2AE35U;
    to[i] = static_cast<double>(h ^ (h >> 16)) / 4294967296.0;
  }
  return out;
}

/// The value of a tensor of a state_dict, in float32.
inline at::Tensor torchvision_value(const std::string& name, const std::vector<int64_t>& shape) {
  const at::Tensor u = torchvision_uniform(name, shape);
  if (name.ends_with("running_var")) return (0.5 + u).to(at::kFloat);
  if (shape.size() == 1) {
    const bool norm = has_part(name, ".bn") || has_part(name, "downsample.1");
    const bool scale = norm && name.ends_with(".weight");
    return (scale ? (has_part(name, "bn3") ? 0.2 : 0.8) + 0.4 * u : 0.2 * u - 0.1).to(at::kFloat);
  }
  double fan_in = 1;
  for (size_t d = 1; d < shape.size(); ++d) fan_in *= static_cast<double>(shape[d]);
  const bool predicts = has_part(name, "cls_logits") || has_part(name, "cls_score") ||
                        has_part(name, "mask_fcn_logits");
  const double gain = predicts                                                           ? 12.0
                      : has_part(name, "bbox")                                           ? 0.25
                      : has_part(name, "inner_blocks") || has_part(name, "layer_blocks") ? 0.24
                                                                                         : 6.0;
  return ((2 * u - 1) * std::sqrt(gain / fan_in)).to(at::kFloat);
}

}  // namespace mnemo::test
