#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "base/option_rules.h"
#include "data/batch.h"
#include "data/part.h"

namespace mnemo::data {

/// How samples are divided into segments and answers are scored: keys shared by synthetic tasks and task files.
struct AnswerOptions {
  int64_t num_segments = 0;
  std::vector<int64_t> curriculum = {};
  int64_t curriculum_steps = 0;
  enum class Decoding { greedy, teacher_forced } decoding = Decoding::greedy;

  template <class V>
  void visit(V&& v) {
    v("num_segments", num_segments,
      "number of segments per sample, of equal length except for the last; 0: derived from model.segment_size",
      base::range(0, 1 << 20));
    v("curriculum", curriculum,
      "numbers of segments that training samples are divided into first, each for curriculum_steps steps; then, and in "
      "evaluations, num_segments",
      base::range(1, 1 << 20));
    v("curriculum_steps", curriculum_steps, "steps of each entry of curriculum", base::range(0, int64_t{1} << 40));
    v("decoding", decoding,
      "how `accuracy` is measured: greedy: the model reads its own predictions back; teacher_forced: it reads the "
      "correct symbols",
      base::one_of("greedy", "teacher_forced"));
  }
  /// Throws InputError if samples of `length` tokens cannot be divided into num_segments, or a curriculum into its
  /// numbers.
  void require_cut(int64_t length, const base::Where& where) const;
  /// Tokens of a training segment at a step, counted from 0; `size` after the curriculum.
  int64_t training_segment(int64_t length, int64_t size, int64_t step) const;
};

/// One batch of samples with teacher forcing: targets are the inputs shifted by one.
///   inputs, targets [B,L] int64
///   answer  [B,L] bool, true where the target belongs to the answer: it counts for the loss
///   scored  [B,L] bool, true where it also counts for accuracy: the answer without padding that belongs to it
///   valid   [B,L] bool, false for padding of shorter samples, on the right; undefined when all samples are of length L
struct SampleBatch {
  at::Tensor inputs, targets, answer, scored;
  at::Tensor valid = {};
  template <class F>
  void visit(F&& f) {
    f("inputs", inputs);
    f("targets", targets);
    f("answer", answer);
    f("scored", scored);
    f("valid", valid);
  }
};

/// Question and answer samples: synthetic, or from a file.
class SampleSource {
 public:
  virtual ~SampleSource() = default;

  /// The name of the samples: "copy", or the path of a file.
  virtual std::string name() const = 0;
  /// Batch `number` of a part that is divided into batches of batch_size samples. Training data repeats forever; the
  /// last batch of a finite held-out part may be smaller.
  virtual SampleBatch batch(Part part, int64_t number, int64_t batch_size) const = 0;
  /// Number of samples of a part, 0 if there is none; nothing if it is unlimited.
  virtual std::optional<int64_t> size(Part part) const = 0;
  /// A hash of all that decides the training samples, but for the seed; protects a resumed position against use with
  /// other samples.
  virtual uint64_t fingerprint() const = 0;
  /// Vocabulary size.
  virtual int64_t vocabulary_size() const = 0;
  /// L, the number of input tokens of the longest sample.
  virtual int64_t length() const = 0;
  /// Number of targets in the answer of the longest sample.
  virtual int64_t answer_length() const = 0;
  /// Number of targets at its end that form the result: all of them, or the last field of a solution.
  virtual int64_t result_length() const { return answer_length(); }
  /// Sample `row` of a batch as text; nothing if tokens do not represent characters.
  virtual std::optional<std::string> text_of(const SampleBatch&, int64_t /*row*/) const { return std::nullopt; }
};

/// Tokens per segment if `length` tokens are divided into `num_segments`: length / num_segments, rounded up. If the
/// sample is too short, there are fewer segments (see AnswerOptions::require_cut).
int64_t segment_length(int64_t length, int64_t num_segments);

/// Divides a batch into segments of `segment_size`; the last one is shorter if L is not a multiple. The first segment
/// has `reset` set in every row; targets outside the answer are kIgnoreTarget.
std::vector<Batch> cut_segments(const SampleBatch& batch, int64_t segment_size);

/// Writes samples as lines of three columns after a header line: "input" and "target", tokens separated by spaces, and
/// "answer", 1 if the target is to be predicted, 2 if it does not count for accuracy, 0 otherwise. read_task_file reads
/// this format.
void write_samples(const SampleSource& source, Part part, int64_t count, std::ostream& out);

/// The third column of one sample: [L] int64.
at::Tensor answer_column(const SampleBatch& batch, int64_t row);

}  // namespace mnemo::data
