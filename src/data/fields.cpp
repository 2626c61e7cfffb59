#include "data/fields.h"

#include <numeric>

#include "base/error.h"

namespace mnemo::data {

void CountRows::note(std::string_view name, int64_t count) {
  base::ensure(count_.value_or(count) == count, "a batch of {} samples has {} in '{}'", count_.value_or(0), count,
               name);
  count_ = count;
}

void CountRows::operator()(std::string_view name, at::Tensor& tensor) {
  if (tensor.defined()) note(name, tensor.size(0));
}

void CountRows::operator()(std::string_view name, Ragged& ragged) {
  if (ragged.values.defined()) note(name, static_cast<int64_t>(ragged.counts.size()));
}

void KeepRows::operator()(std::string_view, at::Tensor& tensor) {
  if (tensor.defined()) tensor = tensor.narrow(0, first_, count_);
}

void KeepRows::operator()(std::string_view, Ragged& ragged) {
  if (!ragged.values.defined()) return;
  const auto first = ragged.counts.begin() + first_, end = first + count_;
  ragged.values = ragged.values.narrow(0, std::accumulate(ragged.counts.begin(), first, int64_t{0}),
                                       std::accumulate(first, end, int64_t{0}));
  ragged.counts = {first, end};
}

void MoveTo::operator()(std::string_view, at::Tensor& tensor) {
  if (tensor.defined()) tensor = tensor.to(device_);
}

void MoveTo::operator()(std::string_view name, Ragged& ragged) { (*this)(name, ragged.values); }

}  // namespace mnemo::data
