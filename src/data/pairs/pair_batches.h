#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "data/pairs/pair_vocabulary.h"
#include "data/segment.h"

namespace mnemo::data {

/// A pair as token ids, both ending with eos.
struct PairSample {
  std::vector<int64_t> source, target;
};

/// How pairs become a batch.
struct PairLayout {
  int64_t first = PairVocabulary::kEos;  ///< the decoder's first input
  int64_t pad = PairVocabulary::kPad;    ///< a token for padding, which may be a token of texts too
  enum class Padding { right, left } padding = Padding::right;
};

/// One batch of these samples: source [B,S]; tokens [B,U], the first input and then the target without its last token;
/// targets [B,U].
TokenSegment make_pair_batch(const std::vector<PairSample>& samples, const std::vector<int64_t>& chosen,
                             const PairLayout& layout = {});

/// Divides samples, in the order given, into batches of similar lengths.
///   rows * longest side of the batch <= max_tokens and rows <= max_rows; a longer sample is a batch of its own
/// Returns lists of sample numbers.
std::vector<std::vector<int64_t>> bucket_pairs(const std::vector<PairSample>& samples, std::vector<int64_t> order,
                                               int64_t max_tokens, int64_t max_rows);

/// Endless training batches. The batches of an epoch, and their order, depend only on the seed and the epoch, so the
/// position is two numbers.
class PairBatches {
 public:
  PairBatches(std::shared_ptr<const std::vector<PairSample>> samples, int64_t max_tokens, int64_t max_rows,
              bool shuffle, int64_t seed, const PairLayout& layout = {});

  TokenSegment next();
  int64_t epoch() const { return epoch_; }
  int64_t batch() const { return batch_; }
  int64_t batches_of_epoch() const { return static_cast<int64_t>(batches_.size()); }
  /// next() continues with this batch of that epoch. Throws InputError if it has no such batch.
  void seek(int64_t epoch, int64_t batch);

 private:
  void begin(int64_t epoch);

  std::shared_ptr<const std::vector<PairSample>> samples_;
  int64_t max_tokens_, max_rows_;
  bool shuffle_;
  int64_t seed_;
  PairLayout layout_;
  int64_t epoch_ = 0, batch_ = 0;
  std::vector<std::vector<int64_t>> batches_;
};

}  // namespace mnemo::data
