#include "distributed/shared_batches.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"

namespace mnemo::distributed {
namespace {

/// Texts as one that unpack() takes apart, whatever they hold.
std::string pack(const Texts& texts) {
  std::string packed;
  for (const std::string& text : texts) packed += fmt::format("{} {}", text.size(), text);
  return packed;
}

Texts unpack(const std::string& packed) {
  Texts texts;
  for (size_t at = 0; at < packed.size();) {
    const size_t length = std::strtoull(packed.c_str() + at, nullptr, 10), begin = packed.find(' ', at) + 1;
    texts.push_back(packed.substr(begin, length));
    at = begin + length;
  }
  return texts;
}

constexpr const char *kResult = "result", *kRefused = "refused", *kNotFinite = "not finite";

}  // namespace

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

int64_t SharedBatches::sum(int64_t value) const {
  if (group_ == nullptr) return value;
  at::Tensor total = at::full({1}, value, at::kLong);
  group_->sum(total);
  return total.item<int64_t>();
}

void share_batches(Group* group, int64_t count, const std::function<Texts(int64_t)>& work,
                   const std::function<void(int64_t, const Texts&)>& use) {
  if (group == nullptr) {
    for (int64_t batch = 0; batch < count; ++batch) use(batch, work(batch));
    return;
  }
  for (int64_t first = 0; first < count; first += group->size()) {
    Texts mine;
    const int64_t own = first + group->rank();
    try {
      if (own < count) {
        mine = work(own);
        mine.emplace_back(kResult);
      }
    } catch (const base::NotFinite& error) {
      mine = {error.what(), kNotFinite};
    } catch (const base::InputError& error) {
      mine = {error.what(), kRefused};
    }
    const std::vector<std::string> round = group->gather(pack(mine));
    for (int64_t batch = first; batch < std::min(count, first + group->size()); ++batch) {
      Texts texts = unpack(round[static_cast<size_t>(batch - first)]);
      const std::string outcome = texts.back();
      texts.pop_back();
      if (outcome == kNotFinite) throw base::NotFinite(texts.front());
      if (outcome == kRefused) throw base::InputError(texts.front());
      use(batch, texts);
    }
  }
}

}  // namespace mnemo::distributed
