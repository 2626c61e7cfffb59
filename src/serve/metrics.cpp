#include "serve/metrics.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/machine.h"

namespace mnemo::serve {
namespace {

std::string one(const std::string& name, const char* type, const std::string& help, int64_t value) {
  return fmt::format("# HELP {} {}\n# TYPE {} {}\n{} {}\n", name, help, name, type, name, value);
}

}  // namespace

void Metrics::Histogram::add(double seconds) {
  ++counts[static_cast<size_t>(std::ranges::lower_bound(kEnds, seconds) - kEnds.begin())];
  sum += seconds;
}

std::string Metrics::Histogram::text(const std::string& name, const std::string& help) const {
  std::string out = fmt::format("# HELP {} {}\n# TYPE {} histogram\n", name, help, name);
  int64_t total = 0;
  for (size_t i = 0; i < kEnds.size(); ++i)
    out += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, kEnds[i], total += counts[i]);
  total += counts.back();
  return out +
         fmt::format("{}_bucket{{le=\"+Inf\"}} {}\n{}_sum {}\n{}_count {}\n", name, total, name, sum, name, total);
}

void Metrics::request(const std::string& path, int status) {
  const std::scoped_lock lock(mutex_);
  ++requests_[{path, status}];
}

void Metrics::tokens(int64_t in, int64_t out) {
  const std::scoped_lock lock(mutex_);
  tokens_in_ += in;
  tokens_out_ += out;
}

void Metrics::first_token(double seconds) {
  const std::scoped_lock lock(mutex_);
  first_token_.add(seconds);
}

void Metrics::token_gap(double seconds) {
  const std::scoped_lock lock(mutex_);
  token_gap_.add(seconds);
}

void Metrics::pass(double seconds, bool ends_segment) {
  const std::scoped_lock lock(mutex_);
  pass_.add(seconds);
  if (ends_segment) segment_end_.add(seconds);
}

void Metrics::texts(int64_t running, int64_t waiting) {
  const std::scoped_lock lock(mutex_);
  running_ = running;
  waiting_ = waiting;
}

int64_t Metrics::writing() const {
  const std::scoped_lock lock(mutex_);
  return running_ + waiting_;
}

std::string Metrics::text(const Now& now) const {
  const std::scoped_lock lock(mutex_);
  std::string out = "# HELP mnemo_requests_total answers by path and status\n# TYPE mnemo_requests_total counter\n";
  for (const auto& [key, count] : requests_)
    out += fmt::format("mnemo_requests_total{{path=\"{}\",status=\"{}\"}} {}\n", key.first, key.second, count);
  out += one("mnemo_tokens_in_total", "counter", "tokens of prompts that were read", tokens_in_);
  out += one("mnemo_tokens_out_total", "counter", "tokens that were written", tokens_out_);
  out += first_token_.text("mnemo_first_token_seconds", "time from a request to its first token");
  out += token_gap_.text("mnemo_token_gap_seconds", "time between two tokens of a text");
  out += pass_.text("mnemo_pass_seconds", "time of a pass of the engine");
  out += segment_end_.text("mnemo_segment_end_seconds",
                           "time of a pass in which a segment ends and memories are written");
  out += one("mnemo_ready", "gauge", "1 while requests are taken", now.ready ? 1 : 0);
  out += one("mnemo_requests_in_flight", "gauge", "requests that are being answered or wait for it", now.in_flight);
  out += one("mnemo_texts_waiting", "gauge", "texts that wait for a place in the batch", waiting_);
  out += one("mnemo_texts_running", "gauge", "texts in the batch", running_);
  out += one("mnemo_connections", "gauge", "open connections", now.connections);
  out += one("mnemo_sessions", "gauge", "sessions, in memory or stored", now.sessions);
  out += one("mnemo_session_bytes", "gauge", "bytes of sessions in memory", now.session_bytes);
  out += one("mnemo_session_stored_bytes", "gauge", "bytes of sessions in --session-dir", now.stored_bytes);
  return out + one("process_resident_memory_bytes", "gauge", "bytes of the process in memory", base::resident_memory());
}

}  // namespace mnemo::serve
