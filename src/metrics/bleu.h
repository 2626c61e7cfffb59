#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mnemo::metrics {

/// How a line becomes tokens: the rules of mteval-v13a, those of its international form, white space alone, or a token
/// for each character.
enum class BleuTokenizer { mteval_13a, international, none, character };

/// Smoothing of n-gram orders with no match (Chen and Cherry 2014).
///   exp    the m-th such order counts 1 / 2^m matches
///   floor  it counts `smooth_value` matches
///   add_k  matches and totals of the orders 2 to 4 grow by `smooth_value`
enum class BleuSmoothing { exp, floor, add_k, none };

struct BleuOptions {
  BleuTokenizer tokenizer = BleuTokenizer::mteval_13a;
  bool lowercase = false;
  BleuSmoothing smoothing = BleuSmoothing::exp;
  std::optional<double> smooth_value = {};  ///< of floor (0.1) and add_k (1)
  bool effective_order = false;             ///< average only over orders that have n-grams: for single sentences
};

/// "13a", "intl", "none", "char", and "exp", "floor", "add-k", "none". Throw InputError for another name.
BleuTokenizer bleu_tokenizer(std::string_view name);
BleuSmoothing bleu_smoothing(std::string_view name);

inline constexpr size_t kBleuOrder = 4;

/// The counts that BLEU is computed from. Counts of sentences add up to those of their corpus.
struct BleuCounts {
  std::array<int64_t, kBleuOrder> matches{}, totals{};  ///< by n-gram order, from 1
  int64_t length = 0;                                   ///< tokens of the hypotheses
  int64_t reference_length = 0;                         ///< of each sentence, of the reference nearest in length
  BleuCounts& operator+=(const BleuCounts& other);
};

struct BleuScore {
  double score = 0;                             ///< 0 to 100
  std::array<double, kBleuOrder> precisions{};  ///< per cent, after smoothing
  double brevity_penalty = 0;
  BleuCounts counts = {};
};

/// The version of sacreBLEU whose scores BLEU and chrF have here.
inline constexpr const char* kSacreBleuVersion = "2.6.0";

/// Throws InputError that names the metric unless there is a set, and each has `lines` lines.
void require_reference_sets(const char* metric, size_t lines, std::span<const std::vector<std::string>> references);

/// The tokens of a line as BLEU counts them, separated by one space. Throws InputError for invalid UTF-8.
std::string bleu_tokens(std::string_view line, const BleuOptions& options);

/// Counts of one sentence.
///   matches_n = sum over n-grams of min(count in the hypothesis, largest count in a reference)
///   totals_n  = max(0, tokens - n + 1)
/// Throws InputError for no references and for invalid UTF-8.
BleuCounts bleu_counts(std::string_view hypothesis, std::span<const std::string_view> references,
                       const BleuOptions& options);

/// BLEU (Papineni et al. 2002) of counts, as sacreBLEU (Post 2018) computes it.
///   BLEU = bp exp(1/4 sum_n ln p_n),   p_n = 100 matches_n / totals_n,   bp = min(1, exp(1 - reference / length))
BleuScore bleu_of(const BleuCounts& counts, const BleuOptions& options);

/// BLEU of a corpus. references[r] is the r-th set, with a line for each hypothesis. Throws InputError for no sets,
/// sets of another size, and invalid UTF-8.
BleuScore corpus_bleu(std::span<const std::string> hypotheses, std::span<const std::vector<std::string>> references,
                      const BleuOptions& options = {});

/// Counts of each sentence of a corpus, for paired_bootstrap(). Errors as above.
std::vector<BleuCounts> bleu_counts_of(std::span<const std::string> hypotheses,
                                       std::span<const std::vector<std::string>> references,
                                       const BleuOptions& options = {});

/// sacreBLEU's signature: "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0".
std::string bleu_signature(const BleuOptions& options, size_t reference_sets);

}  // namespace mnemo::metrics
