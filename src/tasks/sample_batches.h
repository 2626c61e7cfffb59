#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <functional>
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
    std::vector<int64_t> epochs;  ///< of each of them
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

/// `count` of the numbers 0 .. size-1, evenly spread, or all of them: neighbours may have the same label, or come from
/// one document.
std::vector<int64_t> evenly_spread(int64_t size, int64_t count);

/// Calls `use` with the numbers of the samples of each of this rank's batches, of at most `count` of a set of `size`.
template <class Use>
void for_own_batches(const distributed::SharedBatches& shared, int64_t size, int64_t count, int64_t batch_size,
                     Use&& use) {
  const std::vector<int64_t> chosen = evenly_spread(size, count);
  const auto samples = static_cast<int64_t>(chosen.size());
  for (int64_t number = 0; number * batch_size < samples; ++number) {
    if (!shared.own(number)) continue;
    const auto first = chosen.begin() + number * batch_size;
    use(std::vector<int64_t>(first, first + std::min(batch_size, samples - number * batch_size)));
  }
}

}  // namespace mnemo::tasks
