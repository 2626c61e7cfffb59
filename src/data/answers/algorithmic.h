#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/option_rules.h"
#include "base/options.h"
#include "data/answers/samples.h"

namespace mnemo::data {

/// Synthetic tasks that need memory (Bulatov, Kuratov and Burtsev 2022, section 4).
struct AlgorithmicOptions {
  std::string task = "copy";
  int64_t num_symbols = 24;
  int64_t alphabet = 10;
  int64_t num_pairs = 4;
  int64_t num_keys = 26;
  AnswerOptions answer = {};

  template <class V>
  void visit(V&& v) {
    v("task", task,
      "copy: X, then X twice; reverse: X, then X backwards; retrieval: key-value pairs, then one key; quadratic: an "
      "equation, "
      "then its solution step by step",
      base::one_of_names(tasks()));
    v("num_symbols", num_symbols, "copy, reverse: symbols in X", base::range(1, 1 << 20));
    v("alphabet", alphabet, "different symbols that X, or the values of the pairs, are drawn from",
      base::range(1, 1 << 20));
    v("num_pairs", num_pairs, "retrieval: pairs in a sample, at most num_keys and at most alphabet",
      base::range(1, 1 << 20));
    v("num_keys", num_keys, "retrieval: number of different keys", base::range(1, 1 << 20));
    answer.visit(v);
  }
  void validate(const base::Where& where) const;
  /// The names that `task` may have.
  static const std::vector<std::string>& tasks();
  /// Number of input tokens of a sample, and of targets that belong to the answer.
  int64_t length() const;
  int64_t answer_length() const;
};

/// Generates samples from the seed, the part and the batch number, so resuming only needs the batch number.
///
///   copy       x1 … xn 1 x1 … xn x1 … xn    L = 3n    symbols 2 to alphabet + 1, 1 = start of the answer, 0 = padding
///   reverse    x1 … xn 1 xn … x1            L = 2n    the same
///   retrieval  k1 v1 … kK vK q ? v          L = 2K + 2    values 0 to alphabet - 1, ? = alphabet, keys above; keys and
///                                           values of a sample are all different, q is one of the keys
///   quadratic  equation 1 fields            L = 180    characters, see quadratic.h; padding of the fields is learned
///   but
///                                           not scored
/// The last token is only a target.
class AlgorithmicTask final : public SampleSource {
 public:
  /// Throws InputError if the options are incompatible.
  AlgorithmicTask(AlgorithmicOptions options, int64_t seed);

  std::string name() const override { return options_.task; }
  /// Depends only on `number`, part and seed; a larger batch starts with the rows of a smaller one.
  SampleBatch batch(Part part, int64_t number, int64_t batch_size) const override;
  std::optional<int64_t> size(Part) const override { return std::nullopt; }
  /// Fingerprint of the options except AnswerOptions.
  uint64_t fingerprint() const override;
  int64_t vocabulary_size() const override;
  int64_t length() const override { return options_.length(); }
  int64_t answer_length() const override { return options_.answer_length(); }
  int64_t result_length() const override;
  /// For quadratic equations.
  std::optional<std::string> text_of(const SampleBatch& batch, int64_t row) const override;

  const AlgorithmicOptions& options() const { return options_; }
  /// Accuracy of guessing without having seen X: 1 / alphabet; for quadratic, of guessing among all characters.
  double chance() const;

 private:
  std::vector<int64_t> sample(Part part, int64_t step, int64_t row) const;

  AlgorithmicOptions options_;
  int64_t seed_;
};

}  // namespace mnemo::data
