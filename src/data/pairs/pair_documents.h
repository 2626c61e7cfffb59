#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "data/pairs/pair_batches.h"
#include "data/pairs/pair_options.h"

namespace mnemo::data {

/// The pairs of one document: samples first to first + count - 1.
struct PairDocument {
  int64_t first = 0, count = 0;
};

/// The documents of a part, in order; a pair that belongs to none is one by itself.
std::vector<PairDocument> documents_of(const PairPart& part);

/// Endless training batches whose rows are documents read pair by pair, so that a memory can go from one pair to the
/// next. A row that has read its document takes the next one of the epoch, with `reset`. The order of an epoch depends
/// only on the seed and the epoch.
class DocumentBatches {
 public:
  DocumentBatches(std::shared_ptr<const PairPart> part, int64_t rows, bool shuffle, int64_t seed,
                  const PairLayout& layout = {});

  TokenSegment next();
  /// Documents begun, over all epochs.
  int64_t begun() const { return begun_; }
  int64_t documents_of_epoch() const { return static_cast<int64_t>(documents_.size()); }

  /// Its position: begun() documents, and for each row [rows,2] its document and the pairs it has read of it.
  at::Tensor rows() const;
  /// Throws InputError for a position in other data.
  void seek(int64_t begun, const at::Tensor& rows);

 private:
  int64_t document_of(int64_t number);

  struct Row {
    int64_t document = -1, read = 0;
  };
  std::shared_ptr<const PairPart> part_;
  std::vector<PairDocument> documents_;
  std::vector<Row> rows_;
  bool shuffle_;
  int64_t seed_, begun_ = 0, epoch_ = -1;
  PairLayout layout_;
  std::vector<int64_t> order_;  ///< of the epoch
};

}  // namespace mnemo::data
