#include "infer/engine_search.h"

#include <torch/types.h>

#include <ATen/Parallel.h>

#include <cmath>

#include "core/input.h"
#include "models/model.h"
#include "ops/row_kernels.h"

namespace mnemo::infer {

int64_t EngineSearch::vocabulary() const { return core::pair_input(engine_->model()->input()).target_vocab_size; }

std::optional<int64_t> EngineSearch::max_tokens() const {
  return core::pair_input(engine_->model()->input()).max_target;
}

void EngineSearch::start(const at::Tensor& source, const at::Tensor& valid) {
  start(engine_->read_source(source, valid, engine_->model()->initial_state(source.size(0))));
}

at::Tensor EngineSearch::log_probabilities(std::span<const int64_t> last) {
  const auto rows = static_cast<int64_t>(last.size()), words = vocabulary();
  at::Tensor logits = at::empty({rows, words}, at::kFloat);
  float* data = logits.mutable_data_ptr<float>();
  steps_.clear();
  for (int64_t row = 0; row < rows; ++row) {
    const auto i = static_cast<size_t>(row);
    steps_.push_back({&sequences_[i], last.subspan(i, 1), data + row * words});
  }
  engine_->run(steps_);
  at::parallel_for(0, rows, 4, [&](int64_t begin, int64_t end) {
    thread_local std::vector<float> memory;
    float* shares = core::at_least(memory, words);
    for (int64_t row = begin; row < end; ++row) {
      float* own = data + row * words;
      const float most = ops::add_then_max<float>(own, nullptr, words);
      std::copy_n(own, words, shares);
      const float shift = most + std::log(ops::exp_then_sum<float>(shares, words, most));
      for (int64_t word = 0; word < words; ++word) own[word] -= shift;
    }
  });
  return logits;
}

void EngineSearch::select(std::span<const int64_t> parents) {
  std::vector<int> uses(sequences_.size(), 0);
  for (const int64_t parent : parents) ++uses[static_cast<size_t>(parent)];
  std::vector<EngineSequence> chosen;
  chosen.reserve(parents.size());
  for (const int64_t parent : parents) {
    EngineSequence& sequence = sequences_[static_cast<size_t>(parent)];
    // The last hypothesis that continues a sequence takes it; others take copies.
    if (--uses[static_cast<size_t>(parent)] == 0) {
      chosen.push_back(std::move(sequence));
    } else {
      chosen.push_back(sequence);
    }
  }
  sequences_ = std::move(chosen);
}

}  // namespace mnemo::infer
