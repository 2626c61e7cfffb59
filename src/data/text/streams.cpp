#include "data/text/streams.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/error.h"
#include "base/ignore_target.h"
#include "base/random.h"

namespace mnemo::data {

PieceStreams::PieceStreams(std::shared_ptr<const TokenStore> text, int64_t batch_size) : text_(std::move(text)) {
  base::require(batch_size > 0, "batch_size: expected at least 1, found {}", batch_size);
  if (text_->has_documents()) {
    for (int64_t i = 0; i < text_->num_documents(); ++i) {
      const Piece piece{text_->document_begin(i), text_->document_end(i) - 1};
      if (piece.size() > 0) pieces_.push_back(piece);
    }
  } else {
    const int64_t total = std::max<int64_t>(text_->size() - 1, 0);
    for (int64_t b = 0; b < batch_size; ++b) {
      // total * b / batch_size, without overflow of the product
      const auto bound = [&](int64_t i) { return total / batch_size * i + total % batch_size * i / batch_size; };
      const Piece piece{bound(b), bound(b + 1)};
      if (piece.size() > 0) pieces_.push_back(piece);
    }
  }
  for (const Piece& piece : pieces_) predictions_ += piece.size();
  // Rows without a piece count as finished: the first cut assigns the first pieces.
  rows_.resize(static_cast<size_t>(batch_size));
}

Batch PieceStreams::cut(int64_t tgt_len, bool shrink, int64_t context) {
  base::require(tgt_len > 0, "tgt_len: expected at least 1, found {}", tgt_len);
  const auto batch = static_cast<int64_t>(rows_.size());
  base::require(context >= 0 && context < tgt_len, "context: expected 0 to {}, less than a segment, found {}",
                tgt_len - 1, context);
  int64_t longest = 0, shortest = tgt_len;
  // New tokens of a row, and those before them that are read again.
  const auto fresh_of = [&](const Row& row) { return std::min(tgt_len - context, row.piece.size() - row.offset); };
  const auto again_of = [&](const Row& row) { return row.done() ? 0 : std::min(context, row.offset); };
  for (int64_t b = 0; b < batch; ++b) {
    Row& row = rows_[static_cast<size_t>(b)];
    if (row.done()) row = take(b);
    const int64_t count = fresh_of(row) + again_of(row);
    longest = std::max(longest, count);
    shortest = std::min(shortest, count);
  }
  const int64_t length = shrink ? longest : tgt_len;
  Batch out;
  at::Tensor& tokens = out.input.tokens = at::zeros({batch, length}, at::kLong);
  at::Tensor& valid = out.input.valid;
  if (shortest < length) valid = at::zeros({batch, length}, at::kBool);
  const at::Tensor targets = at::full({batch, length}, base::kIgnoreTarget, at::kLong);
  out.targets = TokenTargets{targets};
  out.reset = at::zeros({batch}, at::kBool);
  std::vector<int64_t> ids;
  for (int64_t b = 0; b < batch; ++b) {
    Row& row = rows_[static_cast<size_t>(b)];
    const int64_t fresh = fresh_of(row), again = again_of(row), count = fresh + again;
    if (fresh == 0) continue;
    ids.resize(static_cast<size_t>(count + 1));
    text_->read(row.piece.begin + row.offset - again, ids);
    std::copy_n(ids.begin(), count, tokens.mutable_data_ptr<int64_t>() + b * length);
    std::copy_n(ids.begin() + 1 + again, fresh, targets.mutable_data_ptr<int64_t>() + b * length + again);
    out.reset.mutable_data_ptr<bool>()[b] = row.offset == 0;
    if (valid.defined()) std::fill_n(valid.mutable_data_ptr<bool>() + b * length, count, true);
    row.offset += fresh;
    out.num_targets += fresh;
  }
  predicted_ += out.num_targets;
  return out;
}

StreamBatches::StreamBatches(std::shared_ptr<const TokenStore> text, StreamOptions options)
    : PieceStreams(std::move(text), options.batch_size), options_(options) {
  const auto found = static_cast<int64_t>(pieces_.size());
  base::require(!options_.shuffle || text_->has_documents(),
                "shuffle = true: the text has no documents to shuffle; set document_separator");
  base::require(found >= options_.batch_size,
                "batch_size = {}: expected at least as many {} in the text, found {}; use fewer streams or more text",
                options_.batch_size, text_->has_documents() ? "documents of two tokens or more" : "tokens to predict",
                text_->has_documents() ? found : std::max<int64_t>(text_->size() - 1, 0));
}

std::vector<Batch> StreamBatches::next(int64_t tgt_len, int64_t num_segments) {
  std::vector<Batch> segments;
  for (int64_t i = 0; i < num_segments; ++i) segments.push_back(cut(tgt_len, false));
  return segments;
}

PieceStreams::Row StreamBatches::take(int64_t row) {
  const int64_t before = rows_[static_cast<size_t>(row)].item;
  const int64_t item = text_->has_documents() ? next_item_++ : before < 0 ? row : before + options_.batch_size;
  return {item, piece(item), 0};
}

PieceStreams::Piece StreamBatches::piece(int64_t item) {
  const auto count = static_cast<int64_t>(pieces_.size());
  const int64_t epoch = item / count;
  auto index = static_cast<size_t>(item % count);
  if (options_.shuffle) {
    if (order_epoch_ != epoch) {
      order_.resize(pieces_.size());
      std::iota(order_.begin(), order_.end(), 0);
      base::Random random{static_cast<uint64_t>(options_.seed), static_cast<uint64_t>(epoch)};
      random.shuffle(order_);
      order_epoch_ = epoch;
    }
    index = static_cast<size_t>(order_[index]);
  }
  return pieces_[index];
}

StreamBatches::NamedTensors StreamBatches::save() const {
  const auto tensor = [](const std::vector<int64_t>& values) {
    at::Tensor out = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
    std::copy(values.begin(), values.end(), out.mutable_data_ptr<int64_t>());
    return out;
  };
  std::vector<int64_t> items, offsets;
  for (const Row& row : rows_) {
    items.push_back(row.item);
    offsets.push_back(row.offset);
  }
  return {{"item", tensor(items)},
          {"offset", tensor(offsets)},
          {"next_item", tensor({next_item_})},
          {"predicted", tensor({predicted_})},
          {"text", tensor({std::bit_cast<int64_t>(text_->fingerprint())})},
          {"options", tensor({options_.batch_size, options_.shuffle, options_.seed})}};
}

void StreamBatches::load(const std::function<at::Tensor(const std::string&)>& find) {
  const auto values = [&](const std::string& name, int64_t count) {
    const at::Tensor tensor = find(name);
    base::require(tensor.defined(), "data position: the tensor \"{}\" is missing", name);
    base::require(tensor.scalar_type() == at::kLong && tensor.dim() == 1 && tensor.size(0) == count,
                  "data position: \"{}\": expected int64 [{}], found {} with {} elements", name, count,
                  at::toString(tensor.scalar_type()), tensor.numel());
    const at::Tensor flat = tensor.to(at::kCPU).contiguous();
    const int64_t* data = flat.const_data_ptr<int64_t>();
    return std::vector<int64_t>(data, data + count);
  };
  const auto options = values("options", 3);
  base::require(options == std::vector<int64_t>{options_.batch_size, options_.shuffle, options_.seed},
                "data position: expected batch_size, shuffle, seed = {}, {}, {}, found {}, {}, {}", options_.batch_size,
                static_cast<int>(options_.shuffle), options_.seed, options[0], options[1], options[2]);
  base::require(values("text", 1)[0] == std::bit_cast<int64_t>(text_->fingerprint()),
                "data position: it belongs to another training text (or vocabulary, or document rule) than this one");
  const auto items = values("item", options_.batch_size);
  const auto offsets = values("offset", options_.batch_size);
  const int64_t next_item = values("next_item", 1)[0];
  const int64_t predicted = values("predicted", 1)[0];
  base::require(predicted >= 0 && next_item >= 0, "data position: expected non-negative counts, found {} and {}",
                predicted, next_item);
  const int64_t most = text_->has_documents() ? next_item : INT64_MAX - 2 * options_.batch_size;
  std::vector<Row> rows;
  for (size_t b = 0; b < items.size(); ++b) {
    Row row{items[b], {}, offsets[b]};
    base::require(row.item >= -1 && row.item < most, "data position: row {}: expected an item below {}, found {}", b,
                  most, row.item);
    if (row.item >= 0) row.piece = piece(row.item);
    base::require(row.offset >= 0 && row.offset <= row.piece.size(),
                  "data position: row {}: expected an offset of at most {}, found {}", b, row.piece.size(), row.offset);
    rows.push_back(row);
  }
  rows_ = std::move(rows);
  next_item_ = next_item;
  predicted_ = predicted;
}

EvalStream::EvalStream(std::shared_ptr<const TokenStore> text, int64_t batch_size)
    : PieceStreams(std::move(text), batch_size) {}

std::optional<Batch> EvalStream::next(int64_t tgt_len, int64_t context) {
  if (predicted_ == predictions_) return std::nullopt;
  return cut(tgt_len, true, context);
}

PieceStreams::Row EvalStream::take(int64_t) {
  if (next_item_ == static_cast<int64_t>(pieces_.size())) return {};
  const int64_t item = next_item_++;
  return {item, pieces_[static_cast<size_t>(item)], 0};
}

}  // namespace mnemo::data
