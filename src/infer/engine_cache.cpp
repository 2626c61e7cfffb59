#include "infer/engine_cache.h"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "infer/open_text.h"
#include "models/model.h"

namespace mnemo::infer {

namespace {

constexpr uint64_t kOdd = 0x9E3779B97F4A7C15;

/// A sum of a tensor's bytes in which their order counts, in one pass at the speed of memory.
uint64_t bytes_sum(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.detach().contiguous();
  const auto* bytes = static_cast<const char*>(plain.const_data_ptr());
  const auto size = static_cast<int64_t>(plain.nbytes());
  constexpr int64_t kBlock = 1 << 20, kLanes = 4, kStep = kLanes * sizeof(uint64_t);
  std::atomic<uint64_t> all = 0;
  at::parallel_for(0, (size + kBlock - 1) / kBlock, 1, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      std::array<uint64_t, kLanes> lanes = {1, 2, 3, 4};
      const int64_t end = std::min(size, (block + 1) * kBlock);
      for (int64_t at = block * kBlock; at < end; at += kStep) {
        std::array<uint64_t, kLanes> words{};
        std::memcpy(words.data(), bytes + at, static_cast<size_t>(std::min(kStep, end - at)));
        for (size_t lane = 0; lane < words.size(); ++lane) lanes[lane] = (lanes[lane] ^ words[lane]) * kOdd;
      }
      uint64_t sum = static_cast<uint64_t>(block) + 1;
      for (const uint64_t lane : lanes) sum = (sum ^ lane ^ (lane >> 32)) * kOdd;
      all += sum;
    }
  });
  return all;
}

}  // namespace

bool EngineCache::Weights::equals(const Weights& other) const {
  return places == other.places && sum == other.sum &&
         std::ranges::equal(per_model, other.per_model,
                            [](const at::Tensor& a, const at::Tensor& b) { return at::equal(a, b); });
}

EngineCache::Weights EngineCache::weights_of(const models::Model& model) {
  Weights weights;
  for (const layers::Parameter& parameter : model.parameters().all()) {
    weights.places.push_back(parameter.tensor.const_data_ptr());
    weights.sum = weights.sum * kOdd + bytes_sum(parameter.tensor);
  }
  const c10::InferenceMode inference;
  for (const auto& [field, tensor] : model.initial_state(1).fields()) {
    if (!field.per_sequence()) weights.per_model.push_back(tensor.clone());
  }
  return weights;
}

std::shared_ptr<const Engine> EngineCache::get(const std::shared_ptr<const models::Model>& model,
                                               const std::optional<std::string>& precision, std::string_view who,
                                               const std::string& kv_precision) {
  if (!unsupported_reason(*model).empty()) return make_engine(model, precision, who, kv_precision);
  const std::scoped_lock lock(mutex_);
  Weights weights = weights_of(*model);
  if (engine_ == nullptr || engine_->model() != model || precision_ != precision || kv_precision_ != kv_precision ||
      !weights_.equals(weights)) {
    engine_ = make_engine(model, precision, who, kv_precision);
    precision_ = precision;
    kv_precision_ = kv_precision;
    weights_ = std::move(weights);
  }
  return engine_;
}

}  // namespace mnemo::infer
