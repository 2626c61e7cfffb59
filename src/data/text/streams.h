#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/segment.h"
#include "data/text/token_store.h"

namespace mnemo::data {

/// How a text is dealt to parallel streams.
struct StreamOptions {
  int64_t batch_size = 16;  ///< parallel streams
  bool shuffle = false;     ///< documents in another order every epoch
  int64_t seed = 0;         ///< what that order depends on, with the number of the epoch
};

/// Pieces of a text on B rows, cut into segments.
///
/// A piece is a run of predictions [begin, end): inputs are tokens begin to end - 1, targets begin + 1 to end. Every
/// token of a document but its first is predicted once, and so is every token of a text without documents but the
/// first.
class PieceStreams {
 protected:
  struct Piece {
    int64_t begin = 0, end = 0;
    int64_t size() const { return end - begin; }
  };
  /// What a row reads: the number of the piece in the order of dealing (-1: nothing left), and how much of it is done.
  struct Row {
    int64_t item = -1;
    Piece piece;
    int64_t offset = 0;
    bool done() const { return offset == piece.size(); }
  };

  PieceStreams(std::shared_ptr<const TokenStore> text, int64_t batch_size);
  virtual ~PieceStreams() = default;

  /// What a row reads when it is through with its piece.
  virtual Row take(int64_t row) = 0;

  /// The next segment; a row with nothing left is padding. With `shrink` no longer than the longest row needs.
  TokenSegment cut(int64_t tgt_len, bool shrink);

  std::shared_ptr<const TokenStore> text_;
  std::vector<Piece> pieces_;
  std::vector<Row> rows_;
  int64_t predictions_ = 0;  // of one pass over all pieces
  int64_t predicted_ = 0;    // so far
};

/// Training batches: B parallel streams that go over the text again and again, segment after segment, in an order that
/// depends on the options alone.
///
/// Without documents the text is cut into B streams of equal length (to one token) that each wrap around at their end
/// (Dai et al. 2019). With documents a stream takes the next unread one when its own ends. A document's last segment is
/// padded on the right; the next starts with `reset`.
class StreamBatches final : private PieceStreams {
 public:
  /// Throws InputError if the text has fewer documents with a token to predict than streams, or fewer tokens, and for
  /// `shuffle` of a text without documents.
  StreamBatches(std::shared_ptr<const TokenStore> text, StreamOptions options);

  /// The next `num_segments` segments of `tgt_len` tokens.
  std::vector<TokenSegment> next(int64_t tgt_len, int64_t num_segments);

  int64_t batch_size() const { return options_.batch_size; }
  /// Predictions in one pass over the text.
  int64_t predictions_per_epoch() const { return predictions_; }
  /// Predictions made so far.
  int64_t predicted() const { return predicted_; }
  /// Passes over the text so far, as a fraction.
  double epoch() const { return static_cast<double>(predicted_) / static_cast<double>(predictions_); }

  using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;
  /// The whole position as small int64 tensors; after load() of it the batches go on as if never interrupted.
  NamedTensors save() const;
  /// `find(name)` gives the tensor saved under that name, or an undefined one. Throws InputError if the position
  /// belongs to another text or other options, or is damaged; the position is then unchanged.
  void load(const std::function<at::Tensor(const std::string&)>& find);

 private:
  Row take(int64_t row) override;
  Piece piece(int64_t item);

  StreamOptions options_;
  int64_t next_item_ = 0;       // first document not dealt, counted over all epochs
  int64_t order_epoch_ = -1;    // epoch that order_ belongs to
  std::vector<int32_t> order_;  // of the documents when shuffled
};

/// Held-out text in one pass, in order, with the state carried from segment to segment.
///
/// With one row every token sees all that came before it in its document. With more rows a text without documents is
/// cut into that many parts, so a few tokens see less; documents are dealt to the rows in order. The number of
/// predictions is the same in every case.
class EvalStream final : private PieceStreams {
 public:
  explicit EvalStream(std::shared_ptr<const TokenStore> text, int64_t batch_size = 1);

  /// The next segment of at most `tgt_len` tokens (it may differ from call to call), or nothing at the end. Rows with
  /// nothing left are padding.
  std::optional<TokenSegment> next(int64_t tgt_len);

  /// Predictions of the whole pass.
  int64_t total() const { return predictions_; }
  int64_t predicted() const { return predicted_; }
  /// Back to the start.
  void restart();

 private:
  Row take(int64_t row) override;

  int64_t next_item_ = 0;
};

}  // namespace mnemo::data
