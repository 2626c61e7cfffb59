#include "metrics/bleu.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <unordered_map>

#include "base/error.h"
#include "base/nearest.h"
#include "base/node.h"

namespace mnemo::metrics {
namespace {

constexpr std::string_view kTokenizers[] = {"13a", "intl", "none", "char"};
constexpr std::string_view kSmoothings[] = {"exp", "floor", "add-k", "none"};

template <class Enum, size_t n>
Enum named(const char* what, const std::string_view (&names)[n], std::string_view name) {
  const auto* found = std::find(std::begin(names), std::end(names), name);
  base::require(found != std::end(names), "BLEU: unknown {} {}{}", what, base::in_quotes(name),
                base::suggestion(name, {std::begin(names), std::end(names)}));
  return static_cast<Enum>(found - std::begin(names));
}

double smooth_value(const BleuOptions& options) {
  return options.smooth_value.value_or(options.smoothing == BleuSmoothing::floor ? 0.1 : 1.0);
}

/// N-grams of tokens separated by one space, all orders in one table, as views into the text.
struct Ngrams {
  std::unordered_map<std::string_view, int64_t> counts[kBleuOrder];
  int64_t tokens = 0;

  explicit Ngrams(std::string_view text) {
    std::vector<size_t> starts;
    for (size_t at = 0; at < text.size(); at = std::min(text.size(), text.find(' ', at)) + 1) starts.push_back(at);
    tokens = static_cast<int64_t>(starts.size());
    for (size_t n = 0; n < kBleuOrder; ++n) {
      for (size_t i = 0; i + n < starts.size(); ++i) {
        const size_t end = i + n + 1 < starts.size() ? starts[i + n + 1] - 1 : text.size();
        ++counts[n][text.substr(starts[i], end - starts[i])];
      }
    }
  }
};

}  // namespace

BleuTokenizer bleu_tokenizer(std::string_view name) { return named<BleuTokenizer>("tokenizer", kTokenizers, name); }
BleuSmoothing bleu_smoothing(std::string_view name) { return named<BleuSmoothing>("smoothing", kSmoothings, name); }

BleuCounts& BleuCounts::operator+=(const BleuCounts& other) {
  for (size_t n = 0; n < kBleuOrder; ++n) {
    matches[n] += other.matches[n];
    totals[n] += other.totals[n];
  }
  length += other.length;
  reference_length += other.reference_length;
  return *this;
}

BleuCounts bleu_counts(std::string_view hypothesis, std::span<const std::string_view> references,
                       const BleuOptions& options) {
  base::require(!references.empty(), "BLEU: expected at least one reference, found none");
  const std::string text = bleu_tokens(hypothesis, options);
  const Ngrams found(text);
  std::vector<std::string> texts;
  std::vector<Ngrams> expected;
  // The tables hold views into the texts, which must not move.
  texts.reserve(references.size());
  expected.reserve(references.size());
  for (const std::string_view reference : references)
    expected.emplace_back(texts.emplace_back(bleu_tokens(reference, options)));

  BleuCounts out{.length = found.tokens, .reference_length = expected.front().tokens};
  for (const Ngrams& reference : expected) {
    const int64_t distance = std::abs(reference.tokens - found.tokens),
                  nearest = std::abs(out.reference_length - found.tokens);
    if (distance < nearest || (distance == nearest && reference.tokens < out.reference_length))
      out.reference_length = reference.tokens;
  }
  for (size_t n = 0; n < kBleuOrder; ++n) {
    out.totals[n] = std::max<int64_t>(0, found.tokens - static_cast<int64_t>(n));
    for (const auto& [ngram, count] : found.counts[n]) {
      int64_t most = 0;
      for (const Ngrams& reference : expected) {
        const auto at = reference.counts[n].find(ngram);
        if (at != reference.counts[n].end()) most = std::max(most, at->second);
      }
      out.matches[n] += std::min(count, most);
    }
  }
  return out;
}

BleuScore bleu_of(const BleuCounts& counts, const BleuOptions& options) {
  const double value = smooth_value(options);
  BleuScore out{.counts = counts};
  const auto length = static_cast<double>(counts.length), reference = static_cast<double>(counts.reference_length);
  out.brevity_penalty = length >= reference ? 1.0 : length > 0 ? std::exp(1.0 - reference / length) : 0.0;
  if (std::all_of(counts.matches.begin(), counts.matches.end(), [](int64_t m) { return m == 0; })) return out;
  double halves = 1.0;
  size_t orders = kBleuOrder;
  for (size_t n = 0; n < kBleuOrder; ++n) {
    const double added = options.smoothing == BleuSmoothing::add_k && n > 0 ? value : 0.0;
    const double matches = static_cast<double>(counts.matches[n]) + added;
    const double total = static_cast<double>(counts.totals[n]) + added;
    if (total == 0.0) break;
    if (options.effective_order) orders = n + 1;
    if (matches > 0.0) {
      out.precisions[n] = 100.0 * matches / total;
    } else if (options.smoothing == BleuSmoothing::exp) {
      halves *= 2.0;
      out.precisions[n] = 100.0 / (halves * total);
    } else if (options.smoothing == BleuSmoothing::floor) {
      out.precisions[n] = 100.0 * value / total;
    }
  }
  double logs = 0.0;
  for (size_t n = 0; n < orders; ++n) {
    if (out.precisions[n] == 0.0) return out;
    logs += std::log(out.precisions[n]);
  }
  out.score = out.brevity_penalty * std::exp(logs / static_cast<double>(orders));
  return out;
}

void require_reference_sets(const char* metric, size_t lines, std::span<const std::vector<std::string>> references) {
  base::require(!references.empty(), "{}: expected at least one set of references, found none", metric);
  for (size_t r = 0; r < references.size(); ++r) {
    base::require(references[r].size() == lines,
                  "{}: reference set {}: expected {} lines, one for each hypothesis, found {}", metric, r, lines,
                  references[r].size());
  }
}

std::vector<BleuCounts> bleu_counts_of(std::span<const std::string> hypotheses,
                                       std::span<const std::vector<std::string>> references,
                                       const BleuOptions& options) {
  require_reference_sets("BLEU", hypotheses.size(), references);
  std::vector<BleuCounts> out;
  std::vector<std::string_view> own(references.size());
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    for (size_t r = 0; r < references.size(); ++r) own[r] = references[r][i];
    out.push_back(bleu_counts(hypotheses[i], own, options));
  }
  return out;
}

BleuScore corpus_bleu(std::span<const std::string> hypotheses, std::span<const std::vector<std::string>> references,
                      const BleuOptions& options) {
  BleuCounts sum;
  for (const BleuCounts& counts : bleu_counts_of(hypotheses, references, options)) sum += counts;
  return bleu_of(sum, options);
}

std::string bleu_signature(const BleuOptions& options, size_t reference_sets) {
  std::string smooth(kSmoothings[static_cast<size_t>(options.smoothing)]);
  if (options.smoothing == BleuSmoothing::floor || options.smoothing == BleuSmoothing::add_k)
    smooth += fmt::format("[{:.2f}]", smooth_value(options));
  return fmt::format("nrefs:{}|case:{}|eff:{}|tok:{}|smooth:{}|version:{}", reference_sets,
                     options.lowercase ? "lc" : "mixed", options.effective_order ? "yes" : "no",
                     kTokenizers[static_cast<size_t>(options.tokenizer)], smooth, kSacreBleuVersion);
}

}  // namespace mnemo::metrics
