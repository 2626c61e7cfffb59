#pragma once

#include <cmath>
#include <cstdint>

namespace mnemo::metrics {

/// A sum in double with Neumaier's correction (1974). Adding the losses of a text token by token or segment by segment
/// gives the same result up to the last bit or two.
class Sum {
 public:
  void add(double value) {
    const double next = total_ + value;
    lost_ += std::abs(total_) >= std::abs(value) ? (total_ - next) + value : (value - next) + total_;
    total_ = next;
  }
  /// A non-finite value stays non-finite.
  double value() const { return std::isfinite(total_) ? total_ + lost_ : total_; }

 private:
  double total_ = 0, lost_ = 0;
};

}  // namespace mnemo::metrics
