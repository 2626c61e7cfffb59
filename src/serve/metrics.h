#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace mnemo::serve {

/// Counts of a server. Any thread may add to them.
class Metrics {
 public:
  void request(const std::string& path, int status);  ///< path: one of the API's, without ids
  void tokens(int64_t in, int64_t out);
  void first_token(double seconds);
  void token_gap(double seconds);
  void pass(double seconds, bool ends_segment);  ///< of the engine; whether a text's segment ended in it
  /// Texts in the batch and behind it.
  void texts(int64_t running, int64_t waiting);
  int64_t writing() const;

  struct Now {
    int64_t in_flight = 0, connections = 0, sessions = 0, session_bytes = 0, stored_bytes = 0;
    bool ready = false;
  };
  /// Prometheus' text format.
  std::string text(const Now& now) const;

 private:
  struct Histogram {
    static constexpr std::array<double, 12> kEnds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                                     0.1,   0.25,   0.5,   1,    2.5,   10};
    std::array<int64_t, kEnds.size() + 1> counts = {};
    double sum = 0;
    void add(double seconds);
    std::string text(const std::string& name, const std::string& help) const;
  };

  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, int64_t> requests_;
  int64_t tokens_in_ = 0, tokens_out_ = 0, running_ = 0, waiting_ = 0;
  Histogram first_token_, token_gap_, pass_, segment_end_;
};

}  // namespace mnemo::serve
