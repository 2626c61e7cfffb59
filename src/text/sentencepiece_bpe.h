#pragma once

#include <string>
#include <vector>

#include "text/piece_encoder.h"
#include "text/word_index.h"

namespace mnemo::text {

/// The segmentation of a text by a BPE model of SentencePiece, the same as the library's: of neighbours whose text is a
/// piece the two of the best score are joined, of equal ones the leftmost, until none are left. Unused pieces are then
/// taken apart again. A control piece is never found in a text.
class SentencePieceBpe final : public PieceEncoder {
 public:
  /// The model must outlive the encoder. Throws InputError that names `where` for a piece that appears twice.
  SentencePieceBpe(const SentencePieceModel& model, const std::string& where);

 private:
  std::vector<Piece> segment(std::string_view normalised) const override;
  /// The id of a text that is a piece of texts, or -1.
  int64_t find(std::string_view text) const;

  WordIndex index_;
  std::vector<uint32_t> ranks_;  // by id: 0 is the best score, equal scores have equal ranks
  size_t longest_ = 0;           // bytes of the longest piece
};

}  // namespace mnemo::text
