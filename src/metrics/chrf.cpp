#include "metrics/chrf.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "base/unicode.h"
#include "metrics/bleu.h"

namespace mnemo::metrics {
namespace {

using Counts = std::unordered_map<std::u32string_view, int64_t>;

bool is_ascii_punctuation(char32_t c) {
  return (c >= U'!' && c <= U'/') || (c >= U':' && c <= U'@') || (c >= U'[' && c <= U'`') || (c >= U'{' && c <= U'~');
}

/// The n-grams of a line by order, as views into the two texts it owns.
class ChrfNgrams {
 public:
  ChrfNgrams(std::string_view line, const ChrfOptions& options) {
    std::u32string text = base::code_points(line, "chrF");
    if (options.lowercase) text = base::lower(std::u32string_view(text));
    for (const char32_t c : text) {
      if (options.whitespace || !base::is_space(c)) characters_.push_back(c);
    }
    for (int64_t n = 1; n <= options.char_order; ++n) {
      Counts& counts = orders_.emplace_back();
      for (size_t i = 0; i + static_cast<size_t>(n) <= characters_.size(); ++i)
        ++counts[std::u32string_view(characters_).substr(i, static_cast<size_t>(n))];
    }
    if (options.word_order > 0) add_words(text, options.word_order);
  }
  ChrfNgrams(const ChrfNgrams&) = delete;
  ChrfNgrams& operator=(const ChrfNgrams&) = delete;

  const std::vector<Counts>& orders() const { return orders_; }

 private:
  /// Appends a word to the text of words, with a space after each.
  void add_word(std::u32string_view word) {
    starts_.push_back(words_.size());
    words_.append(word).push_back(U' ');
  }

  void add_words(std::u32string_view text, int64_t order) {
    for (size_t at = 0; at < text.size();) {
      if (base::is_space(text[at])) {
        ++at;
        continue;
      }
      size_t end = at;
      while (end < text.size() && !base::is_space(text[end])) ++end;
      const std::u32string_view word = text.substr(at, end - at);
      if (word.size() > 1 && is_ascii_punctuation(word.back())) {
        add_word(word.substr(0, word.size() - 1));
        add_word(word.substr(word.size() - 1));
      } else if (word.size() > 1 && is_ascii_punctuation(word.front())) {
        add_word(word.substr(0, 1));
        add_word(word.substr(1));
      } else {
        add_word(word);
      }
      at = end;
    }
    for (size_t n = 1; n <= static_cast<size_t>(order); ++n) {
      Counts& counts = orders_.emplace_back();
      for (size_t i = 0; i + n <= starts_.size(); ++i) {
        const size_t last = i + n < starts_.size() ? starts_[i + n] : words_.size();
        ++counts[std::u32string_view(words_).substr(starts_[i], last - starts_[i])];
      }
    }
  }

  std::u32string characters_, words_;
  std::vector<size_t> starts_;
  std::vector<Counts> orders_;
};

std::vector<ChrfOrder> compare(const ChrfNgrams& hypothesis, const ChrfNgrams& reference) {
  std::vector<ChrfOrder> out;
  for (size_t order = 0; order < hypothesis.orders().size(); ++order) {
    const Counts &found = hypothesis.orders()[order], &expected = reference.orders()[order];
    ChrfOrder counts;
    for (const auto& [ngram, count] : expected) counts.reference += count;
    for (const auto& [ngram, count] : found) {
      // An order that the reference does not have says nothing about the hypothesis.
      if (!expected.empty()) counts.hypothesis += count;
      const auto at = expected.find(ngram);
      if (at != expected.end()) counts.matches += std::min(count, at->second);
    }
    out.push_back(counts);
  }
  return out;
}

}  // namespace

void ChrfOptions::validate() const {
  base::require(
      char_order >= 0 && char_order <= 32 && word_order >= 0 && word_order <= 32 && char_order + word_order > 0,
      "chrF: expected orders of 0 to 32, not both 0, found char_order = {}, word_order = {}", char_order, word_order);
  base::require(beta > 0, "chrF: beta: expected a positive number, found {}", beta);
}

std::vector<ChrfOrder> chrf_counts(std::string_view hypothesis, std::span<const std::string_view> references,
                                   const ChrfOptions& options) {
  options.validate();
  base::require(!references.empty(), "chrF: expected at least one reference, found none");
  const ChrfNgrams found(hypothesis, options);
  std::vector<ChrfOrder> best;
  double highest = -1.0;
  for (const std::string_view reference : references) {
    std::vector<ChrfOrder> counts = compare(found, ChrfNgrams(reference, options));
    if (const double score = chrf_of(counts, options); score > highest) {
      highest = score;
      best = std::move(counts);
    }
  }
  return best;
}

double chrf_of(std::span<const ChrfOrder> counts, const ChrfOptions& options) {
  double precision = 0.0, recall = 0.0;
  int64_t orders = 0;
  for (const ChrfOrder& order : counts) {
    if (order.hypothesis == 0 || order.reference == 0) continue;
    precision += static_cast<double>(order.matches) / static_cast<double>(order.hypothesis);
    recall += static_cast<double>(order.matches) / static_cast<double>(order.reference);
    ++orders;
  }
  if (precision + recall == 0.0) return 0.0;
  precision /= static_cast<double>(orders);
  recall /= static_cast<double>(orders);
  const double factor = options.beta * options.beta;
  return 100.0 * (1.0 + factor) * precision * recall / (factor * precision + recall);
}

void add_counts(std::vector<ChrfOrder>& sum, std::span<const ChrfOrder> counts) {
  sum.resize(counts.size());
  for (size_t order = 0; order < counts.size(); ++order) {
    sum[order].hypothesis += counts[order].hypothesis;
    sum[order].reference += counts[order].reference;
    sum[order].matches += counts[order].matches;
  }
}

std::vector<std::vector<ChrfOrder>> chrf_counts_of(std::span<const std::string> hypotheses,
                                                   std::span<const std::vector<std::string>> references,
                                                   const ChrfOptions& options) {
  options.validate();
  require_reference_sets("chrF", hypotheses.size(), references);
  std::vector<std::vector<ChrfOrder>> out;
  std::vector<std::string_view> own(references.size());
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    for (size_t r = 0; r < references.size(); ++r) own[r] = references[r][i];
    out.push_back(chrf_counts(hypotheses[i], own, options));
  }
  return out;
}

double corpus_chrf(std::span<const std::string> hypotheses, std::span<const std::vector<std::string>> references,
                   const ChrfOptions& options) {
  std::vector<ChrfOrder> sum;
  for (const std::vector<ChrfOrder>& counts : chrf_counts_of(hypotheses, references, options)) add_counts(sum, counts);
  return chrf_of(sum, options);
}

std::string chrf_signature(const ChrfOptions& options, size_t reference_sets) {
  return fmt::format("nrefs:{}|case:{}|eff:yes|nc:{}|nw:{}|space:{}|version:{}", reference_sets,
                     options.lowercase ? "lc" : "mixed", options.char_order, options.word_order,
                     options.whitespace ? "yes" : "no", kSacreBleuVersion);
}

}  // namespace mnemo::metrics
