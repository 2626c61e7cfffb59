#include "distributed/shared_batches.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"

namespace mnemo::distributed {

std::vector<std::vector<double>> SharedBatches::all() const {
  if (group_ == nullptr) return counts_;
  const auto rows = static_cast<int64_t>(counts_.size());
  const int64_t columns = group_->max(rows == 0 ? 0 : static_cast<int64_t>(counts_.front().size()));
  at::Tensor mine = at::empty({rows, columns}, at::kDouble);
  auto* out = mine.mutable_data_ptr<double>();
  for (const std::vector<double>& counts : counts_) {
    base::ensure(static_cast<int64_t>(counts.size()) == columns, "batches with {} and {} counts", counts.size(),
                 columns);
    out = std::copy(counts.begin(), counts.end(), out);
  }
  const std::vector<at::Tensor> ranks = group_->gather(mine);
  std::vector<std::vector<double>> merged;
  for (int64_t batch = 0;; ++batch) {
    const at::Tensor& from = ranks[static_cast<size_t>(batch % size())];
    const int64_t row = batch / size();
    if (row >= from.size(0)) return merged;
    const double* read = from.const_data_ptr<double>() + row * columns;
    merged.emplace_back(read, read + columns);
  }
}

std::vector<std::string> SharedBatches::all(const std::vector<std::vector<std::string>>& own) const {
  // Each list as its length, and each text as its own, so that a text may hold anything.
  std::string packed;
  for (const auto& texts : own) {
    packed += fmt::format("{} ", texts.size());
    for (const std::string& text : texts) packed += fmt::format("{} {}", text.size(), text);
  }
  const std::vector<std::string> ranks = group_ == nullptr ? std::vector<std::string>{packed} : group_->gather(packed);
  std::vector<size_t> at(ranks.size(), 0);
  std::vector<std::string> merged;
  for (int64_t batch = 0;; ++batch) {
    const auto rank = static_cast<size_t>(batch % size());
    const std::string& from = ranks[rank];
    size_t& place = at[rank];
    if (place == from.size()) return merged;
    const auto number = [&] {
      const size_t value = std::strtoull(from.c_str() + place, nullptr, 10);
      place = from.find(' ', place) + 1;
      return value;
    };
    for (size_t left = number(); left > 0; --left) {
      const size_t length = number();
      merged.push_back(from.substr(place, length));
      place += length;
    }
  }
}

int64_t SharedBatches::sum(int64_t value) const {
  if (group_ == nullptr) return value;
  at::Tensor total = at::full({1}, value, at::kLong);
  group_->sum(total);
  return total.item<int64_t>();
}

}  // namespace mnemo::distributed
