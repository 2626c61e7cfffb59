#include "data/pairs/pair_documents.h"

#include <torch/types.h>

#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/random.h"

namespace mnemo::data {

std::vector<PairDocument> documents_of(const PairPart& part) {
  std::vector<PairDocument> documents;
  int64_t before = -1;
  for (size_t i = 0; i < part.texts.size(); ++i) {
    const int64_t document = part.texts[i].document;
    if (document < 0 || document != before || documents.empty()) documents.push_back({static_cast<int64_t>(i), 0});
    ++documents.back().count;
    before = document;
  }
  return documents;
}

DocumentBatches::DocumentBatches(std::shared_ptr<const PairPart> part, int64_t rows, bool shuffle, int64_t seed,
                                 const PairLayout& layout)
    : part_(std::move(part)),
      documents_(documents_of(*part_)),
      rows_(static_cast<size_t>(rows)),
      shuffle_(shuffle),
      seed_(seed),
      layout_(layout) {
  base::ensure(!documents_.empty() && rows > 0, "no documents to train on");
}

int64_t DocumentBatches::document_of(int64_t number) {
  const int64_t epoch = number / documents_of_epoch();
  if (epoch != epoch_) {
    order_.resize(documents_.size());
    std::iota(order_.begin(), order_.end(), 0);
    if (shuffle_) base::Random{static_cast<uint64_t>(seed_), static_cast<uint64_t>(epoch)}.shuffle(order_);
    epoch_ = epoch;
  }
  return order_[static_cast<size_t>(number % documents_of_epoch())];
}

Batch DocumentBatches::next() {
  std::vector<int64_t> chosen;
  std::vector<uint8_t> starts;
  for (Row& row : rows_) {
    const bool ended = row.document < 0 || row.read == documents_[static_cast<size_t>(row.document)].count;
    if (ended) row = {document_of(begun_++), 0};
    starts.push_back(ended ? 1 : 0);
    chosen.push_back(documents_[static_cast<size_t>(row.document)].first + row.read++);
  }
  Batch batch = make_pair_batch(part_->samples, chosen, layout_);
  batch.reset = at::tensor(starts, at::kByte).to(at::kBool);
  return batch;
}

at::Tensor DocumentBatches::rows() const {
  at::Tensor rows = at::empty({static_cast<int64_t>(rows_.size()), 2}, at::kLong);
  int64_t* to = rows.mutable_data_ptr<int64_t>();
  for (const Row& row : rows_) {
    *to++ = row.document;
    *to++ = row.read;
  }
  return rows;
}

void DocumentBatches::seek(int64_t begun, const at::Tensor& rows) {
  const auto count = static_cast<int64_t>(rows_.size());
  const bool fits = begun >= 0 && rows.defined() && rows.scalar_type() == at::kLong && rows.dim() == 2 &&
                    rows.size(0) == count && rows.size(1) == 2;
  base::require(fits, "data position: expected documents of {} rows, found others; does it belong to other data?",
                count);
  std::vector<Row> next;
  const auto numbers = rows.contiguous();
  const int64_t* from = numbers.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i) {
    const Row row{from[2 * i], from[2 * i + 1]};
    const bool known = row.document >= 0 && row.document < documents_of_epoch() && row.read >= 0 &&
                       row.read <= documents_[static_cast<size_t>(row.document)].count;
    base::require(known || (row.document == -1 && row.read == 0),
                  "data position: expected pairs of {} documents, found pair {} of document {}", documents_of_epoch(),
                  row.read, row.document);
    next.push_back(row);
  }
  rows_ = std::move(next);
  begun_ = begun;
}

}  // namespace mnemo::data
