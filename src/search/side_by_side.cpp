#include "search/side_by_side.h"

#include <torch/types.h>

#include <algorithm>
#include <numeric>

#include "core/model.h"

namespace mnemo::search {

core::State side_by_side(const core::Model& model, const std::vector<std::vector<int64_t>>& documents, int64_t rows,
                         const VisitPairs& visit, const core::State& first) {
  const auto size_of = [&](int64_t document) { return documents[static_cast<size_t>(document)].size(); };
  std::vector<int64_t> order(documents.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return size_of(a) > size_of(b); });
  const auto last = static_cast<int64_t>(documents.size()) - 1;
  core::State after = last == 0 && !first.empty() ? first : model.initial_state(1);
  for (size_t begin = 0; begin < order.size(); begin += static_cast<size_t>(rows)) {
    const std::vector<int64_t> group(
        order.begin() + static_cast<int64_t>(begin),
        order.begin() + std::min<int64_t>(static_cast<int64_t>(begin) + rows, static_cast<int64_t>(order.size())));
    std::vector<core::State> starts;
    for (const int64_t document : group)
      starts.push_back(document == 0 && !first.empty() ? first : model.initial_state(1));
    core::State state = core::concat_batch(starts);
    auto running = static_cast<int64_t>(group.size());
    for (size_t step = 0; running > 0; ++step) {
      std::vector<int64_t> pairs;
      for (const int64_t document : group) {
        if (step < size_of(document)) pairs.push_back(documents[static_cast<size_t>(document)][step]);
      }
      // The longest documents stand first, so those that have ended are the last rows.
      const auto count = static_cast<int64_t>(pairs.size());
      const auto rows_of = [&](int64_t from, int64_t to) {
        return core::select_batch(state, at::arange(from, to, at::TensorOptions(at::kLong).device(device_of(model))));
      };
      const auto place = std::find(group.begin(), group.end(), last) - group.begin();
      if (place >= count && place < running) after = rows_of(place, place + 1);
      if (count < running) state = rows_of(0, count);
      running = count;
      if (running > 0) state = visit(pairs, state);
    }
  }
  return model.carried(after);
}

}  // namespace mnemo::search
