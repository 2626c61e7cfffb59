#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "distributed/group.h"

namespace mnemo::distributed {

/// The batches of an evaluation, dealt to the ranks in turn. Every rank adds the counts in the order of the batches, so
/// that sums have the same bits as in one process.
class SharedBatches {
 public:
  /// group: null for one process, which has all batches.
  explicit SharedBatches(Group* group) : group_(group) {}

  int64_t rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  int64_t size() const { return group_ == nullptr ? 1 : group_->size(); }
  /// Whether this rank has the batch of that number, from 0.
  bool own(int64_t batch) const { return batch % size() == rank(); }

  /// Adds the counts of this rank's next batch: the same number of values for every batch.
  void add(const std::vector<double>& counts) { counts_.push_back(counts); }
  /// The counts of all batches in order. Once, by all ranks.
  std::vector<std::vector<double>> all() const;

  /// The sum over the ranks.
  int64_t sum(int64_t value) const;

 private:
  Group* group_;
  std::vector<std::vector<double>> counts_;
};

/// Batches 0 .. count-1 whose results are texts, dealt to the ranks in turn. `work(batch)` runs on the rank that has
/// it; `use(batch, texts)` gets what it returned on every rank, in the order of the batches, after each round of one
/// batch a rank. An InputError of `work` is thrown by all ranks when its batch is due. Called by all ranks together,
/// with the same count; group: null for one process, which has all batches.
using Texts = std::vector<std::string>;
void share_batches(Group* group, int64_t count, const std::function<Texts(int64_t batch)>& work,
                   const std::function<void(int64_t batch, const Texts& texts)>& use);

}  // namespace mnemo::distributed
