#include <torch/types.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "infer/batcher.h"

namespace mnemo::infer {
namespace {

/// The dimension of rows of the past in a per-sequence field, or -1.
int64_t past_dim(const core::Field& field) { return field.per_sequence() ? field.dim("M") : -1; }

/// The i-th padded field without its first drop[i] rows.
core::State drop_left(const core::State& state, const std::vector<int64_t>& drop) {
  size_t i = 0;
  return state.map([&](const core::Field& field, const at::Tensor& tensor) {
    const int64_t dim = past_dim(field);
    if (dim < 0) return tensor;
    const int64_t count = drop[i++];
    return count == 0 ? tensor : tensor.narrow(dim, count, tensor.size(dim) - count);
  });
}

}  // namespace

PaddedBatch::PaddedBatch(core::State state) : state_(std::move(state)) { made_ = padded_fields(); }

PaddedBatch::PaddedBatch(const std::vector<Row>& members) : size_(static_cast<int64_t>(members.size())) {
  std::vector<Piece> pieces;  // consecutive rows of the same block are taken out together
  std::vector<core::State> states;
  for (size_t i = 0; i < members.size();) {
    std::vector<int64_t> rows;
    const PaddedBatch& block = *members[i].block;
    for (; i < members.size() && members[i].block.get() == &block; ++i) rows.push_back(members[i].row);
    pieces.push_back(block.take(rows));
    states.push_back(pieces.back().state);
  }
  state_ = core::concat_batch(states);
  size_t f = 0;
  for (const auto& [field, tensor] : state_.fields()) {
    const int64_t dim = past_dim(field);
    if (dim < 0) continue;
    PaddedField joined{field.path, tensor.size(dim), {}, WeakTensor(tensor.getIntrusivePtr())};
    for (const Piece& piece : pieces) {
      const PaddedField& part = piece.fields[f];
      for (const int64_t padding : part.padding) joined.padding.push_back(padding + joined.width - part.width);
    }
    made_.push_back(std::move(joined));
    ++f;
  }
}

void PaddedBatch::advance(core::State state, int64_t tokens, core::Part part) {
  state_ = std::move(state);
  tokens_ += tokens;
  crossed_segment_ = crossed_segment_ || part.starts || part.ends;
}

std::vector<PaddedBatch::PaddedField> PaddedBatch::padded_fields() const {
  std::vector<PaddedField> now;
  for (const auto& [field, tensor] : state_.fields()) {
    const int64_t dim = past_dim(field);
    if (dim < 0) continue;
    const int64_t width = tensor.size(dim);
    std::vector<int64_t> padding(static_cast<size_t>(size_), 0);
    const auto before = std::find_if(made_.begin(), made_.end(),
                                     [&](const PaddedField& r) { return r.path == field.path; });
    if (before != made_.end()) {
      const bool same = before->tensor.lock().get() == tensor.unsafeGetTensorImpl();
      // Within a segment, new rows enter on the right, and as many as do not fit leave on the left. At the end of a
      // segment the mechanism decides; the padding is then kept, marked as invalid, until the mechanism drops it.
      const int64_t left = before->width + tokens_ - width;
      if (same) {
        padding = before->padding;
      } else if (!crossed_segment_ && left >= 0) {
        for (size_t row = 0; row < padding.size(); ++row)
          padding[row] = std::max<int64_t>(0, before->padding[row] - left);
      }
    }
    now.push_back({field.path, width, std::move(padding), WeakTensor(tensor.getIntrusivePtr())});
  }
  return now;
}

PaddedBatch::Piece PaddedBatch::take(const std::vector<int64_t>& rows) const {
  Piece piece;
  std::vector<int64_t> drop;
  for (PaddedField& field : padded_fields()) {
    std::vector<int64_t> padding;
    for (const int64_t row : rows) padding.push_back(field.padding[row]);
    const int64_t shared = *std::min_element(padding.begin(), padding.end());
    for (int64_t& count : padding) count -= shared;
    drop.push_back(shared);
    piece.fields.push_back({std::move(field.path), field.width - shared, std::move(padding), std::move(field.tensor)});
  }
  piece.state = drop_left(state_, drop);
  std::vector<int64_t> in_order(static_cast<size_t>(size_));
  std::iota(in_order.begin(), in_order.end(), 0);
  if (rows == in_order) return piece;
  for (const auto& [field, tensor] : state_.fields()) {
    if (!field.per_sequence()) continue;
    piece.state = core::select_batch(piece.state, at::tensor(rows, tensor.options().dtype(at::kLong)));
    break;
  }
  return piece;
}

}  // namespace mnemo::infer
