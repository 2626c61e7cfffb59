#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mnemo::metrics {

/// chrF (Popović 2015) by default; chrF++ (Popović 2017) with word_order = 2.
struct ChrfOptions {
  int64_t char_order = 6;  ///< longest n-gram of characters
  int64_t word_order = 0;  ///< longest n-gram of words, where a mark of punctuation at an end is a word
  double beta = 2.0;       ///< weight of recall: beta times that of precision
  bool lowercase = false;
  bool whitespace = false;  ///< white space counts as characters

  /// Throws InputError for orders below 0 or above 32, no order at all, or a beta that is not positive.
  void validate() const;
};

/// The counts of one n-gram order. Counts of sentences add up to those of their corpus.
struct ChrfOrder {
  int64_t hypothesis = 0, reference = 0, matches = 0;
};

/// Counts of one sentence, by order: characters first, then words. With several references, the one with the highest
/// score counts. Throws InputError for no references and for invalid UTF-8.
std::vector<ChrfOrder> chrf_counts(std::string_view hypothesis, std::span<const std::string_view> references,
                                   const ChrfOptions& options);

/// Adds the counts of a sentence to those of others: sum is empty, or has its orders.
void add_counts(std::vector<ChrfOrder>& sum, std::span<const ChrfOrder> counts);

/// The score of counts, 0 to 100: precision and recall are means over the orders that both sides have.
///   chrF = 100 (1 + beta^2) P R / (beta^2 P + R)
double chrf_of(std::span<const ChrfOrder> counts, const ChrfOptions& options);

/// The score of a corpus, as sacreBLEU computes it. references[r] is the r-th set, with a line for each hypothesis.
/// Throws InputError for no sets, sets of another size, and invalid UTF-8.
double corpus_chrf(std::span<const std::string> hypotheses, std::span<const std::vector<std::string>> references,
                   const ChrfOptions& options = {});

/// Counts of each sentence of a corpus, for paired_bootstrap(). Errors as above.
std::vector<std::vector<ChrfOrder>> chrf_counts_of(std::span<const std::string> hypotheses,
                                                   std::span<const std::vector<std::string>> references,
                                                   const ChrfOptions& options = {});

/// sacreBLEU's signature: "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0".
std::string chrf_signature(const ChrfOptions& options, size_t reference_sets);

}  // namespace mnemo::metrics
