#include "infer/sampling.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/random.h"

namespace mnemo::infer {
namespace {

struct Candidate {
  double logit;
  int64_t id;
  double weight;
};

bool likelier(const Candidate& a, const Candidate& b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; }

/// The most likely id and its logit. Also detects logits that have no softmax.
template <class T>
std::pair<int64_t, double> likeliest(const T* logits, int64_t size) {
  T best = -std::numeric_limits<T>::infinity();
  int64_t id = 0;
  bool nan = false;
  for (int64_t i = 0; i < size; ++i) {
    nan |= logits[i] != logits[i];
    if (logits[i] > best) {
      best = logits[i];
      id = i;
    }
  }
  if (nan) throw base::NotFinite(fmt::format("sampling: expected finite logits (or -inf), found NaN among {}", size));
  if (!std::isfinite(best)) {
    throw base::NotFinite(fmt::format("sampling: expected a largest logit that is finite, found {} among {}",
                                      best > 0 ? "+inf" : "only -inf", size));
  }
  return {id, static_cast<double>(best)};
}

/// The first id whose cumulative weight exceeds `target`, in the order given; the last one with non-zero weight if
/// rounding leaves `target` at the end.
template <class Weight, class Id>
int64_t invert(size_t count, double target, const Weight& weight, const Id& id) {
  double sum = 0.0;
  size_t last = 0;
  for (size_t i = 0; i < count; ++i) {
    const double w = weight(i);
    if (w <= 0.0) continue;
    sum += w;
    last = i;
    if (sum > target) break;
  }
  return id(last);
}

/// How many of the first `kept` candidates make up the nucleus; afterwards these come first, sorted. Few are usually
/// enough, so only as many as needed are sorted.
size_t nucleus(std::vector<Candidate>& candidates, size_t kept, double goal) {
  double sum = 0.0;
  size_t sorted = 0;
  for (size_t block = 64; sorted < kept; block *= 8) {
    const size_t end = std::min(kept, sorted + block);
    if (end < kept) {
      std::nth_element(candidates.begin() + sorted, candidates.begin() + end, candidates.begin() + kept, likelier);
    }
    std::sort(candidates.begin() + sorted, candidates.begin() + end, likelier);
    while (sorted < end) {
      sum += candidates[sorted++].weight;
      if (sum >= goal) return sorted;
    }
  }
  return kept;
}

template <class T>
int64_t pick_one(const T* logits, int64_t size, const GenerateOptions& options, uint64_t draw) {
  const auto [best_id, best] = likeliest(logits, size);
  if (options.temperature == 0.0) return best_id;
  const double uniform = static_cast<double>(base::Random{static_cast<uint64_t>(options.seed), draw}.next() >> 11) *
                         0x1p-53;
  auto weight_of = [&, top = best](double logit) { return std::exp((logit - top) / options.temperature); };

  const bool all = options.top_p == 1.0 && options.min_p == 0.0 && (options.top_k == 0 || options.top_k >= size);
  if (all) {
    thread_local std::vector<double> weights;
    weights.resize(static_cast<size_t>(size));
    double total = 0.0;
    for (int64_t i = 0; i < size; ++i) total += weights[i] = weight_of(static_cast<double>(logits[i]));
    return invert(
        weights.size(), uniform * total, [&](size_t i) { return weights[i]; },
        [](size_t i) { return static_cast<int64_t>(i); });
  }

  thread_local std::vector<Candidate> candidates;
  candidates.resize(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) candidates[i] = {static_cast<double>(logits[i]), i, 0.0};
  size_t kept = candidates.size();
  if (options.top_k > 0 && static_cast<size_t>(options.top_k) < kept) {
    kept = static_cast<size_t>(options.top_k);
    std::nth_element(candidates.begin(), candidates.begin() + kept, candidates.end(), likelier);
  }
  double total = 0.0;
  for (size_t i = 0; i < kept; ++i) total += candidates[i].weight = weight_of(candidates[i].logit);
  if (options.top_p < 1.0) {
    kept = nucleus(candidates, kept, options.top_p * total);
    total = 0.0;
    for (size_t i = 0; i < kept; ++i) total += candidates[i].weight;
  }
  if (options.min_p > 0.0) {
    // The most likely token has weight 1.
    const auto end = std::partition(candidates.begin(), candidates.begin() + kept,
                                    [&](const Candidate& c) { return c.weight >= options.min_p; });
    kept = static_cast<size_t>(end - candidates.begin());
    total = 0.0;
    for (size_t i = 0; i < kept; ++i) total += candidates[i].weight;
  }
  // By id, not by probability: two tokens whose logits differ only by rounding must not be swapped.
  std::sort(candidates.begin(), candidates.begin() + kept, [](const auto& a, const auto& b) { return a.id < b.id; });
  return invert(
      kept, uniform * total, [&](size_t i) { return candidates[i].weight; },
      [&](size_t i) { return candidates[i].id; });
}

template <class T>
void penalise(std::span<T> logits, const GenerateOptions& options, const TokenCounts& seen) {
  const std::span<const TokenCounts::Entry> entries = seen.entries();
  base::ensure(entries.empty() || static_cast<size_t>(entries.back().token) < logits.size(),
               "sampling: counts of token {} for {} logits", entries.empty() ? 0 : entries.back().token, logits.size());
  for (const auto& [token, read, written] : entries) {
    T& logit = logits[static_cast<size_t>(token)];
    auto penalised = static_cast<double>(logit);
    penalised = penalised > 0.0 ? penalised / options.repetition_penalty : penalised * options.repetition_penalty;
    if (written > 0) penalised -= options.frequency_penalty * written + options.presence_penalty;
    logit = static_cast<T>(penalised);
  }
}

/// `count` and `more`, up to the largest number.
int32_t sum_of(int32_t count, int32_t more) {
  return static_cast<int32_t>(std::min<int64_t>(int64_t{count} + more, std::numeric_limits<int32_t>::max()));
}

void require_shape(const at::Tensor& logits, int64_t dims, const char* shape) {
  if (logits.dim() != dims || logits.size(-1) == 0) {
    throw base::ShapeError(
        fmt::format("[sampling] expected logits {} with V of at least 1, found {}", shape, c10::str(logits.sizes())));
  }
}

}  // namespace

void TokenCounts::add_read(std::span<const int64_t> tokens) {
  for (const int64_t token : tokens) add(token, 1, 0);
}

void TokenCounts::add(int64_t token, int32_t read, int32_t written) {
  if (entries_.empty()) entries_.reserve(64);
  auto place = std::ranges::lower_bound(entries_, token, {}, &Entry::token);
  if (place == entries_.end() || place->token != token)
    place = entries_.insert(place, Entry{static_cast<int32_t>(token), 0, 0});
  place->read = sum_of(place->read, read);
  place->written = sum_of(place->written, written);
}

Sampler::Sampler(const GenerateOptions& options, int64_t unknown_id, int64_t vocabulary)
    : options_(options), unknown_id_(unknown_id), vocabulary_(vocabulary) {
  base::check_options(options);
}

template <class T>
int64_t Sampler::pick(const T* logits, int64_t rows, uint64_t draw, const TokenCounts& seen) const {
  const int64_t size = std::min(rows, vocabulary_);
  const bool hides = !options_.sample_unknown && unknown_id_ >= 0 && unknown_id_ < size;
  const bool penalises = options_.penalises() && !seen.entries().empty();
  if (!hides && !penalises) return pick_one(logits, size, options_, draw);
  thread_local std::vector<T> changed;
  changed.assign(logits, logits + rows);
  if (penalises) penalise(std::span<T>(changed), options_, seen);
  if (hides) changed[static_cast<size_t>(unknown_id_)] = -std::numeric_limits<T>::infinity();
  return pick_one(changed.data(), size, options_, draw);
}

int64_t Sampler::pick(const at::Tensor& logits, uint64_t draw, const TokenCounts& seen) const {
  require_shape(logits, 1, "[V]");
  const at::Tensor readable = readable_logits(logits);
  const int64_t size = readable.size(0);
  return readable.scalar_type() == at::kDouble ? pick(readable.const_data_ptr<double>(), size, draw, seen)
                                               : pick(readable.const_data_ptr<float>(), size, draw, seen);
}

int64_t Sampler::pick(std::span<const float> logits, uint64_t draw, const TokenCounts& seen) const {
  return pick(logits.data(), static_cast<int64_t>(logits.size()), draw, seen);
}

std::vector<int64_t> pick_rows(const at::Tensor& logits, std::span<const Sampler> samplers,
                               std::span<const uint64_t> draws) {
  require_shape(logits, 2, "[B,V]");
  const auto rows = static_cast<size_t>(logits.size(0));
  if (samplers.size() != rows || draws.size() != rows) {
    throw base::ShapeError(fmt::format("[sampling] expected a sampler and a draw for each of {} rows, found {} and {}",
                                       rows, samplers.size(), draws.size()));
  }
  const at::Tensor readable = readable_logits(logits);
  std::vector<int64_t> tokens;
  for (size_t b = 0; b < rows; ++b) {
    tokens.push_back(samplers[b].pick(readable.select(0, static_cast<int64_t>(b)), draws[b]));
  }
  return tokens;
}

at::Tensor readable_logits(const at::Tensor& logits) {
  base::require(logits.is_floating_point(), "sampling: expected logits of a floating type, found {}",
                c10::toString(logits.scalar_type()));
  const bool readable = logits.scalar_type() == at::kDouble || logits.scalar_type() == at::kFloat;
  if (readable && logits.is_cpu() && logits.is_contiguous()) return logits;
  return logits.to(at::kCPU, readable ? logits.scalar_type() : at::kFloat).contiguous();
}

}  // namespace mnemo::infer
