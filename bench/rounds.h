#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/node.h"

namespace mnemo::bench {

/// Median, minimum and maximum of the rounds of a measurement.
struct Rounds {
  double median = 0, least = 0, most = 0;
};

double median(std::vector<double> values);
Rounds rounds_of(const std::vector<double>& values);
/// The share of the limit that was reached, if the work takes `bound` seconds at the limit.
Rounds share_of(double bound, const Rounds& seconds);
base::Node as_node(const Rounds& rounds);
/// "1.52 (1.41-1.60)"; empty if nothing was measured.
std::string range_text(const std::optional<Rounds>& rounds);

double seconds_since(std::chrono::steady_clock::time_point begin);
/// Seconds of each of `count` calls.
std::vector<double> seconds_of(int64_t count, const std::function<void()>& call);
/// Seconds of the fastest call.
double fastest_of(int64_t count, const std::function<void()>& call);

/// The kind of a processor with these features, as the file of bars names it: "amx", "avx512" or "avx2".
std::string kind_of_processor(std::string_view features);

/// The bars from a file, and the figures that miss theirs. Tables below `on.KIND` hold for that kind of processor and go
/// before the others. A figure without a bar passes, as does everything without a file.
class Bars {
 public:
  Bars() = default;
  /// Throws InputError if the file cannot be read.
  explicit Bars(const std::string& path, const std::string& kind = "");

  bool has(const std::string& table, const std::string& key) const { return find(table, key).has_value(); }
  /// `table` may be nested ("kernels.causal"); the message starts with `what`.
  void at_least(const std::string& table, const std::string& key, double value, const std::string& what);
  void at_most(const std::string& table, const std::string& key, double value, const std::string& what);
  const std::vector<std::string>& missed() const { return missed_; }

 private:
  std::optional<double> find(const std::string& table, const std::string& key) const;

  base::Node bars_;
  std::string kind_;
  std::vector<std::string> missed_;
};

}  // namespace mnemo::bench
