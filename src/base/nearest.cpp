#include "base/nearest.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace mnemo::base {
namespace {

// Longer names are not compared: none of ours is that long, and hostile input could make the comparison slow.
constexpr size_t kMaxNameLength = 64;
constexpr size_t kMaxListed = 24;

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  // Rows i-2, i-1 and i of the table of distances between prefixes.
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before_last, last);
    std::swap(last, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replace, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::optional<std::string> nearest(std::string_view name, const std::vector<std::string>& candidates) {
  if (name.size() > kMaxNameLength) return std::nullopt;
  const std::string* best = nullptr;
  size_t best_distance = 0;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kMaxNameLength) continue;
    const size_t distance = edit_distance(name, candidate);
    const size_t longer = std::max(name.size(), candidate.size());
    const size_t allowed = longer <= 2 ? 1 : std::max<size_t>(2, (longer + 2) / 3);
    if (distance > allowed || distance >= longer) continue;
    if (best == nullptr || distance < best_distance) {
      best = &candidate;
      best_distance = distance;
    }
  }
  if (best != nullptr || name.size() < 3) return best == nullptr ? std::nullopt : std::optional<std::string>(*best);
  // The first words of exactly one candidate: "window" of "window_size".
  for (const std::string& candidate : candidates) {
    if (!candidate.starts_with(std::string(name) + "_")) continue;
    if (best != nullptr) return std::nullopt;
    best = &candidate;
  }
  return best == nullptr ? std::nullopt : std::optional<std::string>(*best);
}

std::string suggestion(std::string_view name, const std::vector<std::string>& candidates) {
  if (auto near = nearest(name, candidates)) return fmt::format("; did you mean '{}'?", *near);
  if (candidates.empty()) return "; none are known here";
  const size_t listed = std::min(candidates.size(), kMaxListed);
  // In quotes, because a name may contain a comma.
  return fmt::format("; known: '{}'{}",
                     fmt::join(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(listed), "', '"),
                     listed < candidates.size() ? ", …" : "");
}

}  // namespace mnemo::base
