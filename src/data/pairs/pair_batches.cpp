#include "data/pairs/pair_batches.h"

#include <torch/types.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/ignore_target.h"
#include "base/random.h"

namespace mnemo::data {
namespace {

int64_t length_of(const PairSample& sample) {
  return static_cast<int64_t>(std::max(sample.source.size(), sample.target.size()));
}

}  // namespace

Batch make_pair_batch(const std::vector<PairSample>& samples, const std::vector<int64_t>& chosen,
                      const PairLayout& layout) {
  size_t longest_source = 1, longest_target = 1;
  for (const int64_t number : chosen) {
    const PairSample& sample = samples[static_cast<size_t>(number)];
    longest_source = std::max(longest_source, sample.source.size());
    longest_target = std::max(longest_target, sample.target.size());
  }
  const auto rows = static_cast<int64_t>(chosen.size());
  const auto table = [&](size_t width, int64_t value) {
    return at::full({rows, static_cast<int64_t>(width)}, value, at::kLong);
  };
  Batch batch;
  core::Segment& input = batch.input;
  input.source = table(longest_source, layout.pad);
  input.tokens = table(longest_target, layout.pad);
  input.source_valid = at::zeros_like(input.source, at::kBool);
  const at::Tensor targets = table(longest_target, base::kIgnoreTarget);
  batch.targets = TokenTargets{targets};
  for (int64_t row = 0; row < rows; ++row) {
    const PairSample& sample = samples[static_cast<size_t>(chosen[static_cast<size_t>(row)])];
    const auto source = static_cast<int64_t>(sample.source.size()), target = static_cast<int64_t>(sample.target.size());
    // The row's part without padding.
    const auto part = [&](const at::Tensor& whole, int64_t length) {
      return whole[row].narrow(0, layout.padding == PairLayout::Padding::left ? whole.size(1) - length : 0, length);
    };
    std::copy(sample.source.begin(), sample.source.end(), part(input.source, source).mutable_data_ptr<int64_t>());
    std::copy(sample.target.begin(), sample.target.end(), part(targets, target).mutable_data_ptr<int64_t>());
    part(input.source_valid, source).fill_(true);
    int64_t* previous = part(input.tokens, target).mutable_data_ptr<int64_t>();
    previous[0] = layout.first;
    std::copy(sample.target.begin(), sample.target.end() - 1, previous + 1);
    batch.num_targets += static_cast<int64_t>(sample.target.size());
  }
  input.valid = targets != base::kIgnoreTarget;
  return batch;
}

std::vector<std::vector<int64_t>> bucket_pairs(const std::vector<PairSample>& samples, std::vector<int64_t> order,
                                               int64_t max_tokens, int64_t max_rows) {
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return length_of(samples[static_cast<size_t>(a)]) < length_of(samples[static_cast<size_t>(b)]);
  });
  std::vector<std::vector<int64_t>> batches;
  for (const int64_t number : order) {
    const int64_t length = length_of(samples[static_cast<size_t>(number)]);
    // The samples are sorted, so this one is the longest of its batch.
    const bool fits = !batches.empty() && static_cast<int64_t>(batches.back().size()) < max_rows &&
                      (static_cast<int64_t>(batches.back().size()) + 1) * length <= max_tokens;
    if (!fits) batches.emplace_back();
    batches.back().push_back(number);
  }
  return batches;
}

PairBatches::PairBatches(std::shared_ptr<const std::vector<PairSample>> samples, int64_t max_tokens, int64_t max_rows,
                         bool shuffle, int64_t seed, const PairLayout& layout)
    : samples_(std::move(samples)),
      max_tokens_(max_tokens),
      max_rows_(max_rows),
      shuffle_(shuffle),
      seed_(seed),
      layout_(layout) {
  base::ensure(!samples_->empty(), "no pairs to train on");
  begin(0);
}

void PairBatches::begin(int64_t epoch) {
  epoch_ = epoch;
  batch_ = 0;
  std::vector<int64_t> order(samples_->size());
  std::iota(order.begin(), order.end(), 0);
  base::Random random{static_cast<uint64_t>(seed_), static_cast<uint64_t>(epoch)};
  if (shuffle_) random.shuffle(order);
  batches_ = bucket_pairs(*samples_, std::move(order), max_tokens_, max_rows_);
  if (shuffle_) random.shuffle(batches_);
}

Batch PairBatches::next() {
  if (batch_ == batches_of_epoch()) begin(epoch_ + 1);
  return make_pair_batch(*samples_, batches_[static_cast<size_t>(batch_++)], layout_);
}

void PairBatches::seek(int64_t epoch, int64_t batch) {
  begin(epoch);
  base::require(batch >= 0 && batch <= batches_of_epoch(),
                "data position: expected a batch from 0 to {}, found {}; does it belong to other data?",
                batches_of_epoch(), batch);
  batch_ = batch;
}

}  // namespace mnemo::data
