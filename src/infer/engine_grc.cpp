#include "infer/engine_grc.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "infer/engine_plan.h"
#include "ops/row_kernels.h"

namespace mnemo::infer {
namespace {

float* room(std::vector<float>& memory, int64_t size) {
  if (static_cast<int64_t>(memory.size()) < size) memory.resize(static_cast<size_t>(size));
  return memory.data();
}

float logistic(float x) { return 1.0f / (1.0f + std::exp(-x)); }

/// Two maps of the same input, one below the other.
ops::PackedLinear stacked(const layers::ParameterSet& parameters, const std::string& first, const std::string& second,
                          ops::Precision precision) {
  const at::Tensor bias = parameters.find(first + ".bias");
  return {at::cat({parameters.find(first + ".weight"), parameters.find(second + ".weight")}),
          bias.defined() ? at::cat({bias, parameters.find(second + ".bias")}) : at::Tensor(), precision};
}

}  // namespace

EngineGrc::EngineGrc(const EnginePlan& plan, const layers::ParameterSet& parameters, const std::string& attention,
                     ops::Precision precision)
    : heads_(plan.heads),
      head_dim_(plan.head_dim),
      length_(plan.grc_len),
      channels_(plan.grc_channels),
      width_((plan.grc_channels / plan.heads + ops::kHeadStep - 1) / ops::kHeadStep * ops::kHeadStep) {
  const std::string grc = attention + ".grc.";
  q_ = {parameters.find(grc + "q.weight"), parameters.find(grc + "q.bias"), precision};
  kv_ = stacked(parameters, grc + "k", grc + "v", precision);
  gates_ = stacked(parameters, grc + "reset_gate", grc + "update_gate", precision);
  candidate_ = {parameters.find(grc + "candidate.weight"), parameters.find(grc + "candidate.bias"), precision};
  const at::Tensor share = at::sigmoid(parameters.find(grc + "lambda").detach());
  share_.assign(share.const_data_ptr<float>(), share.const_data_ptr<float>() + heads_);
}

void EngineGrc::project(GrcMemory& memory) const {
  thread_local std::vector<float> scratch;
  float* maps = room(scratch, length_ * 2 * channels_);
  kv_(memory.cache.data(), length_, channels_, maps, 2 * channels_);
  // What lies between a head's width and the padded one stays zero.
  memory.k.resize(static_cast<size_t>(heads_ * length_ * width_));
  memory.v.resize(memory.k.size());
  const int64_t d = channels_ / heads_;
  for (int64_t head = 0; head < heads_; ++head) {
    for (int64_t row = 0; row < length_; ++row) {
      const float* from = maps + row * 2 * channels_ + head * d;
      std::copy_n(from, d, memory.k.data() + (head * length_ + row) * width_);
      std::copy_n(from + channels_, d, memory.v.data() + (head * length_ + row) * width_);
    }
  }
}

void EngineGrc::queries(const float* x, int64_t count, int64_t x_stride, float* q) const {
  q_(x, count, x_stride, q, channels_);
  ops::multiply(q, count * channels_, 1.0f / std::sqrt(static_cast<float>(channels_ / heads_)));
}

void EngineGrc::mix(const GrcMemory& memory, const float* q, float* heads) const {
  thread_local std::vector<float> scratch;
  float* query = room(scratch, length_ + 2 * width_);
  float *o = query + width_, *scores = o + width_;
  const int64_t d = channels_ / heads_;
  std::fill(query + d, query + width_, 0.0f);
  for (int64_t head = 0; head < heads_; ++head) {
    std::copy_n(q + head * d, d, query);
    ops::key_scores<float>(query, nullptr, memory.k.data() + head * length_ * width_, nullptr, length_, width_, scores);
    const float most = ops::add_then_max<float>(scores, nullptr, length_);
    const float sum = ops::exp_then_sum<float>(scores, length_, most);
    ops::weigh_values<float>(scores, memory.v.data() + head * length_ * width_, length_, width_, o);
    const float share = share_[static_cast<size_t>(head)], from_cache = share / sum;
    float* own = heads + head * head_dim_;
    for (int64_t c = 0; c < head_dim_; ++c) own[c] = (1.0f - share) * own[c] + (c < d ? from_cache * o[c] : 0.0f);
  }
}

void EngineGrc::update(GrcMemory& memory) const {
  const int64_t c = channels_, rows = static_cast<int64_t>(memory.rows.size()) / c;
  if (rows == 0) return;
  thread_local std::vector<float> scratch;
  float* joined = room(scratch, length_ * 5 * c);  // [X, C], then [X, r*C]
  float *gates = joined + length_ * 2 * c, *candidate = gates + length_ * 2 * c;
  for (int64_t i = 0; i < length_; ++i) {
    std::copy_n(memory.rows.data() + i * rows / length_ * c, c, joined + i * 2 * c);
    std::copy_n(memory.cache.data() + i * c, c, joined + i * 2 * c + c);
  }
  gates_(joined, length_, 2 * c, gates, 2 * c);
  for (int64_t i = 0; i < length_; ++i) {
    for (int64_t j = 0; j < c; ++j) joined[i * 2 * c + c + j] *= logistic(gates[i * 2 * c + j]);
  }
  candidate_(joined, length_, 2 * c, candidate, c);
  for (int64_t i = 0; i < length_; ++i) {
    for (int64_t j = 0; j < c; ++j) {
      const float u = logistic(gates[i * 2 * c + c + j]);
      float& old = memory.cache[static_cast<size_t>(i * c + j)];
      old = u * candidate[i * c + j] + (1.0f - u) * old;
    }
  }
  memory.rows.clear();
  project(memory);
}

}  // namespace mnemo::infer
