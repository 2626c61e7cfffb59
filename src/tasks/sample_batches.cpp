#include "tasks/sample_batches.h"

#include <torch/types.h>

#include "base/error.h"
#include "tasks/data_position.h"

namespace mnemo::tasks {

std::vector<int64_t> evenly_spread(int64_t size, int64_t count) {
  std::vector<int64_t> chosen;
  count = std::min(size, count);
  for (int64_t i = 0; i < count; ++i) chosen.push_back(i * size / count);
  return chosen;
}

SampleBatches::Batch SampleBatches::next() {
  const int64_t first = next_batch_++ * batch_size_;
  Batch batch;
  for (int64_t i = first; i < first + batch_size_; ++i) {
    batch.samples.push_back(order_[i]);
    batch.epochs.push_back(i / order_.size());
  }
  return batch;
}

double SampleBatches::epoch() const {
  return static_cast<double>(next_batch_ * batch_size_) / static_cast<double>(order_.size());
}

weights::NamedTensors SampleBatches::save(uint64_t fingerprint) const {
  return {{"next_batch", at::full({1}, next_batch_, at::kLong)},
          {"fingerprint", at::full({1}, static_cast<int64_t>(fingerprint), at::kLong)}};
}

void SampleBatches::load(const std::function<at::Tensor(const std::string&)>& find, uint64_t fingerprint,
                         const char* others) {
  const int64_t next_batch = saved_next_batch(find);
  base::require(saved_number(find, "fingerprint") == static_cast<int64_t>(fingerprint),
                "data position: it belongs to {}", others);
  next_batch_ = next_batch;
}

}  // namespace mnemo::tasks
