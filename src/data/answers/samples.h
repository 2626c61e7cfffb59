#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "base/option_rules.h"
#include "data/part.h"
#include "data/segment.h"

namespace mnemo::data {

/// How a sample becomes segments and an answer is measured: keys that made tasks and task files share.
struct AnswerOptions {
  int64_t num_segments = 0;
  std::string decoding = "greedy";

  template <class V>
  void visit(V&& v) {
    v("num_segments", num_segments,
      "number of segments per sample, of equal length except for the last; 0: derived from model.segment_size",
      base::range(0, 1 << 20));
    v("decoding", decoding,
      "how `accuracy` is measured: greedy: the model reads its own predictions back; teacher_forced: it reads the "
      "correct symbols",
      base::one_of("greedy", "teacher_forced"));
  }
  /// Throws InputError where samples of `length` tokens cannot be cut into num_segments.
  void require_cut(int64_t length, const base::Where& where) const;
};

/// Samples of one batch, teacher forced: targets are inputs one place on.
///   inputs, targets [B,L] int64
///   answer  [B,L] bool, true where the target belongs to the answer: it counts for the loss
///   scored  [B,L] bool, true where it counts for accuracy too: the answer without the padding that some tasks ask for
///   valid   [B,L] bool, false for padding of shorter samples, on the right; undefined when all samples are of length L
struct SampleBatch {
  at::Tensor inputs, targets, answer, scored;
  at::Tensor valid = {};
};

/// Samples that ask for an answer: made ones, or those of a file.
class SampleSource {
 public:
  virtual ~SampleSource() = default;

  /// What the samples are called: "copy", or a file's path.
  virtual std::string name() const = 0;
  /// Batch `number` of a part that is dealt in batches of batch_size samples. Training goes round for ever; of held-out
  /// samples that are numbered the last batch may be smaller.
  virtual SampleBatch batch(Part part, int64_t number, int64_t batch_size) const = 0;
  /// Samples of a part, 0 where there is none; nothing where there are as many as one likes.
  virtual std::optional<int64_t> size(Part part) const = 0;
  /// Number of different tokens.
  virtual int64_t vocabulary_size() const = 0;
  /// L, the tokens of a sample that go in; of the longest one.
  virtual int64_t length() const = 0;
  /// Targets that belong to the answer; of the longest one.
  virtual int64_t answer_length() const = 0;
  /// Those at its end that are the result: all of them, or the last field of a worked solution.
  virtual int64_t result_length() const { return answer_length(); }
};

/// Tokens of a segment when `length` tokens are cut into `num_segments`: length / num_segments, rounded up; where the
/// sample is too short, there are not as many segments as that (AnswerOptions::require_cut).
int64_t segment_length(int64_t length, int64_t num_segments);

/// A batch cut into segments of `segment_size`; the last one is shorter where that does not divide L. The first has
/// `reset` set in every row; targets outside the answer are kIgnoreTarget.
std::vector<TokenSegment> cut_segments(const SampleBatch& batch, int64_t segment_size);

/// Samples as lines of three columns after a line with their names: "input" and "target", tokens with blanks between,
/// and "answer", 1 where the target is asked, 2 where it is asked but does not count for accuracy, 0 elsewhere.
/// read_task_file reads it.
void write_samples(const SampleSource& source, Part part, int64_t count, std::ostream& out);

/// The third column's numbers of one sample: [L] int64.
at::Tensor answer_column(const SampleBatch& batch, int64_t row);

}  // namespace mnemo::data
