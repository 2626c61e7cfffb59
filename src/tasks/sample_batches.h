#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "data/epoch_order.h"
#include "distributed/shared_batches.h"
#include "weights/safetensors.h"

namespace mnemo::tasks {

/// The samples of a training set in batches, repeated epoch after epoch. A batch may hold the last samples of an epoch
/// and the first of the next one.
class SampleBatches {
 public:
  struct Batch {
    std::vector<int64_t> samples;
    int64_t epoch = 0;  ///< of the first of them
  };

  SampleBatches(data::EpochOrder order, int64_t batch_size) : order_(std::move(order)), batch_size_(batch_size) {}

  Batch next();
  /// Passes over the samples so far.
  double epoch() const;
  /// The position, with the fingerprint of the training set, for Task::save().
  weights::NamedTensors save(uint64_t fingerprint) const;
  /// Continues at a saved position; `find` as in Task::load(). Throws InputError if it has another fingerprint:
  /// "data position: it belongs to `others`".
  void load(const std::function<at::Tensor(const std::string&)>& find, uint64_t fingerprint, const char* others);

 private:
  data::EpochOrder order_;
  int64_t batch_size_;
  int64_t next_batch_ = 0;
};

/// Calls `use` with the numbers of the samples of each of this rank's batches, of the first `samples` of a set.
template <class Use>
void for_own_batches(const distributed::SharedBatches& shared, int64_t samples, int64_t batch_size, Use&& use) {
  for (int64_t number = 0; number * batch_size < samples; ++number) {
    if (!shared.own(number)) continue;
    const int64_t first = number * batch_size;
    std::vector<int64_t> batch(static_cast<size_t>(std::min(batch_size, samples - first)));
    std::iota(batch.begin(), batch.end(), first);
    use(batch);
  }
}

}  // namespace mnemo::tasks
