#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "ops/row_kernels.h"
#include "search/allowed_tokens.h"

namespace mnemo::search {

struct Candidate {
  double sum;
  int64_t beam, token;
};

inline bool is_better(const Candidate& a, const Candidate& b) {
  return a.sum > b.sum || (a.sum == b.sum && std::pair(a.beam, a.token) < std::pair(b.beam, b.token));
}

/// The sum of a hypothesis with one more token. It never grows, though rounding may put a log probability above 0.
inline double longer_sum(double sum, double log_probability) { return sum + std::min(0.0, log_probability); }

/// The best `wanted` candidates seen, as a heap with the worst in front.
class BestCandidates {
 public:
  void start(int64_t wanted) {
    wanted_ = static_cast<size_t>(wanted);
    heap_.clear();
  }
  /// Takes the tokens of a beam: log probabilities row [V] after a beam with that sum.
  template <class T>
  void take(int64_t beam, double sum, const T* row, int64_t words) {
    constexpr int64_t kPiece = 256;
    int64_t places[kPiece];
    for (int64_t from = 0; from < words; from += kPiece) {
      const int64_t found = ops::places_above(row + from, std::min(kPiece, words - from), least(sum, T()), places);
      for (int64_t i = 0; i < found; ++i)
        put({longer_sum(sum, static_cast<double>(row[from + places[i]])), beam, from + places[i]});
    }
  }
  const std::vector<Candidate>& in_order() {
    std::sort(heap_.begin(), heap_.end(), is_better);
    return heap_;
  }

 private:
  /// A log probability that is certainly too low.
  template <class T>
  T least(double sum, T) const {
    if (heap_.size() < wanted_) return static_cast<T>(kNever);
    const double bound = heap_.front().sum - sum;
    return static_cast<T>(bound - 1e-6 * std::abs(bound) - 1e-30);  // rounding must not exclude an equal one
  }
  void put(const Candidate& candidate) {
    if (heap_.size() == wanted_) {
      if (!is_better(candidate, heap_.front())) return;
      std::pop_heap(heap_.begin(), heap_.end(), is_better);
      heap_.pop_back();
    }
    heap_.push_back(candidate);
    std::push_heap(heap_.begin(), heap_.end(), is_better);
  }

  size_t wanted_ = 0;
  std::vector<Candidate> heap_;
};

}  // namespace mnemo::search
