#include "data/text/span_corruption.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace mnemo::data {
namespace {

/// `total` as a sum of `parts` numbers of at least 1, all such sums alike.
std::vector<int64_t> random_parts(int64_t total, int64_t parts, base::Random& random) {
  std::vector<int64_t> cuts(static_cast<size_t>(total - 1));
  std::iota(cuts.begin(), cuts.end(), int64_t{1});
  random.shuffle(cuts, static_cast<size_t>(parts - 1));
  cuts.resize(static_cast<size_t>(parts - 1));
  std::sort(cuts.begin(), cuts.end());
  cuts.push_back(total);
  for (size_t i = cuts.size() - 1; i > 0; --i) cuts[i] -= cuts[i - 1];
  return cuts;
}

}  // namespace

PairSample corrupt_spans(std::span<const int64_t> tokens, const SpanCorruption& corruption, base::Random& random) {
  const auto count = static_cast<int64_t>(tokens.size());
  base::ensure(count > 1 && !corruption.sentinels.empty(), "spans of {} tokens", count);
  const auto rounded = [](double value) { return static_cast<int64_t>(std::llround(value)); };
  const int64_t noise = std::clamp<int64_t>(rounded(corruption.density * static_cast<double>(count)), 1, count - 1);
  const int64_t most = std::min({noise, count - noise, static_cast<int64_t>(corruption.sentinels.size())});
  const int64_t spans = std::clamp<int64_t>(rounded(static_cast<double>(noise) / corruption.mean_span), 1, most);
  const std::vector<int64_t> taken = random_parts(noise, spans, random),
                             kept = random_parts(count - noise, spans, random);
  PairSample sample;
  auto at = tokens.begin();
  for (size_t i = 0; i < taken.size(); ++i) {
    sample.source.insert(sample.source.end(), at, at + kept[i]);
    at += kept[i];
    sample.source.push_back(corruption.sentinels[i]);
    sample.target.push_back(corruption.sentinels[i]);
    sample.target.insert(sample.target.end(), at, at + taken[i]);
    at += taken[i];
  }
  sample.source.push_back(corruption.end);
  sample.target.push_back(corruption.end);
  return sample;
}

std::vector<int64_t> sentinels_of(const text::Tokenizer& tokenizer) {
  std::vector<int64_t> ids;
  for (int64_t id = 0; (id = tokenizer.find(fmt::format("<extra_id_{}>", ids.size()))) >= 0;) ids.push_back(id);
  return ids;
}

}  // namespace mnemo::data
