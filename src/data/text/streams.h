#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/batch.h"
#include "data/text/token_store.h"

namespace mnemo::data {

/// How a text is divided into parallel streams.
struct StreamOptions {
  int64_t batch_size = 16;  ///< parallel streams
  bool shuffle = false;     ///< shuffle documents every epoch
  int64_t seed = 0;         ///< seed of the order, combined with the epoch
};

/// Divides pieces of a text over B rows and into segments.
///
/// A piece is a run of predictions [begin, end): inputs are tokens begin to end - 1, targets begin + 1 to end. Every
/// token of a document except the first is predicted once; likewise for a text without documents.
class PieceStreams {
 protected:
  struct Piece {
    int64_t begin = 0, end = 0;
    int64_t size() const { return end - begin; }
  };
  /// The position of a row: index of its piece in reading order (-1: nothing left), and how much of it is done.
  struct Row {
    int64_t item = -1;
    Piece piece;
    int64_t offset = 0;
    bool done() const { return offset == piece.size(); }
  };

  PieceStreams(std::shared_ptr<const TokenStore> text, int64_t batch_size);
  virtual ~PieceStreams() = default;

  /// Chooses the next piece for a row that has finished its piece.
  virtual Row take(int64_t row) = 0;

  /// The next segment; rows with nothing left are padding. With `shrink`, it is only as long as the longest row needs.
  /// The last `context` tokens that a row has read stand in front again, without targets.
  Batch cut(int64_t tgt_len, bool shrink, int64_t context = 0);

  std::shared_ptr<const TokenStore> text_;
  std::vector<Piece> pieces_;
  std::vector<Row> rows_;
  int64_t predictions_ = 0;  // of one pass over all pieces
  int64_t predicted_ = 0;    // so far
};

/// Training batches: B parallel streams that repeat the text, segment by segment, in an order that only depends on the
/// options.
///
/// Without documents the text is divided into B streams of equal length (to within one token), each of which wraps
/// around at its end (Dai et al. 2019). With documents, a stream takes the next unread one when its own ends. The last
/// segment of a document is padded on the right; the next one starts with `reset`.
class StreamBatches final : private PieceStreams {
 public:
  /// Throws InputError if the text has fewer documents with a token to predict than streams, or fewer tokens, and if
  /// `shuffle` is set for a text without documents.
  StreamBatches(std::shared_ptr<const TokenStore> text, StreamOptions options);

  /// The next `num_segments` segments of `tgt_len` tokens.
  std::vector<Batch> next(int64_t tgt_len, int64_t num_segments);

  int64_t batch_size() const { return options_.batch_size; }
  /// Number of predictions in one pass over the text.
  int64_t predictions_per_epoch() const { return predictions_; }
  /// Number of predictions so far.
  int64_t predicted() const { return predicted_; }
  /// Number of passes over the text so far, as a fraction.
  double epoch() const { return static_cast<double>(predicted_) / static_cast<double>(predictions_); }

  using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;
  /// The position as small int64 tensors; after load() the batches continue as if never interrupted.
  NamedTensors save() const;
  /// `find(name)` returns the tensor saved under that name, or an undefined one. Throws InputError if the position
  /// belongs to another text or other options, or is damaged; the position is then unchanged.
  void load(const std::function<at::Tensor(const std::string&)>& find);

 private:
  Row take(int64_t row) override;
  Piece piece(int64_t item);

  StreamOptions options_;
  int64_t next_item_ = 0;       // first unassigned document, counted over all epochs
  int64_t order_epoch_ = -1;    // the epoch of order_
  std::vector<int32_t> order_;  // of the documents if shuffled
};

/// Held-out text in one pass, in order, with the state carried from segment to segment.
///
/// With one row, every token has the full history of its document. With more rows, a text without documents is divided
/// into that many parts, so a few tokens have less context; documents are assigned to the rows in order. The number of
/// predictions is always the same.
class EvalStream final : private PieceStreams {
 public:
  explicit EvalStream(std::shared_ptr<const TokenStore> text, int64_t batch_size = 1);

  /// The next segment of at most `tgt_len` tokens (which may vary between calls), or nothing at the end. Rows with
  /// nothing left are padding. The first `context` of these tokens are those before the new ones, read once more and
  /// not predicted (Baevski and Auli 2019, section 4.1); at the start of a row there are fewer. Throws InputError
  /// unless 0 <= context < tgt_len.
  std::optional<Batch> next(int64_t tgt_len, int64_t context = 0);

  /// Number of predictions in the whole pass.
  int64_t total() const { return predictions_; }
  int64_t predicted() const { return predicted_; }

 private:
  Row take(int64_t row) override;

  int64_t next_item_ = 0;
};

}  // namespace mnemo::data
