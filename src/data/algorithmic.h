#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/option_rules.h"
#include "base/options.h"
#include "data/segment.h"

namespace mnemo::data {

/// Tasks that ask for memory and nothing else (Bulatov, Kuratov and Burtsev 2022, section 4.1).
struct AlgorithmicOptions {
  std::string task = "copy";
  int64_t num_symbols = 24;
  int64_t alphabet = 10;
  int64_t num_pairs = 4;
  int64_t num_keys = 26;

  template <class V>
  void visit(V&& v) {
    v("task", task, "copy: X, then X twice; reverse: X, then X backwards; retrieval: key-value pairs, then one key",
      base::one_of("copy", "reverse", "retrieval"));
    v("num_symbols", num_symbols, "copy, reverse: symbols in X", base::range(1, 1 << 20));
    v("alphabet", alphabet, "different symbols that X, or the values of the pairs, are drawn from",
      base::range(1, 1 << 20));
    v("num_pairs", num_pairs, "retrieval: pairs in a sample, at most num_keys and at most alphabet",
      base::range(1, 1 << 20));
    v("num_keys", num_keys, "retrieval: different keys", base::range(1, 1 << 20));
  }
  void validate(const base::Where& where) const;
};

/// The parts of a generated data set; no sample of one is made by the numbers of another.
enum class Part { train, valid, test };

/// The part of that name; throws InputError "WHERE: expected train, valid or test" for another.
Part part_of(std::string_view name, std::string_view where);

/// Samples of one batch, teacher forced: targets are inputs one place on.
///   inputs, targets [B,L] int64    answer [B,L] bool, true where the target belongs to the answer
struct AlgorithmicBatch {
  at::Tensor inputs, targets, answer;
};

/// Makes samples from the seed, the part and the batch's number alone, so resuming needs nothing but that number.
///
///   copy       x1 … xn 1 x1 … xn x1 … xn    L = 3n    symbols 2 to alphabet + 1, 1 = start of the answer, 0 = padding
///   reverse    x1 … xn 1 xn … x1            L = 2n    the same
///   retrieval  k1 v1 … kK vK q ? v          L = 2K + 2    values 0 to alphabet - 1, ? = alphabet, keys above; keys and
///                                           values of a sample are all different, q is one of the keys
/// The last token is a target only.
class AlgorithmicTask {
 public:
  /// Throws InputError if the options do not fit together.
  AlgorithmicTask(AlgorithmicOptions options, int64_t seed);

  /// Batch number `step` of a part.
  AlgorithmicBatch batch(Part part, int64_t step, int64_t batch_size) const;

  const AlgorithmicOptions& options() const { return options_; }
  /// Number of different tokens.
  int64_t vocabulary_size() const;
  /// L, the tokens of a sample that go in.
  int64_t length() const;
  /// Targets that belong to the answer.
  int64_t answer_length() const;
  /// Accuracy of guessing without having seen X: 1 / alphabet.
  double chance() const { return 1.0 / static_cast<double>(options_.alphabet); }

 private:
  std::vector<int64_t> sample(Part part, int64_t step, int64_t row) const;

  AlgorithmicOptions options_;
  int64_t seed_;
};

/// A batch cut into segments of equal length. The first has `reset` set in every row; targets outside the answer are
/// kIgnoreTarget. Throws InputError if the length is no multiple of `num_segments`.
std::vector<TokenSegment> cut_segments(const AlgorithmicBatch& batch, int64_t num_segments);

/// Samples as lines of three columns: "input", "target" (tokens with blanks between) and "answer" (0 and 1), after a line
/// with these names.
void write_samples(const AlgorithmicTask& task, Part part, int64_t count, std::ostream& out);

}  // namespace mnemo::data
