#pragma once

#include <vector>

#include "text/piece_encoder.h"

namespace mnemo::text {

/// The best segmentation of a text by a unigram model (Kudo 2018), with the numbers and ties of SentencePiece 0.2.
/// Older versions of the library, which Debian has, choose another one of equally good segmentations.
class UnigramEncoder final : public PieceEncoder {
 public:
  /// The model must outlive the encoder.
  UnigramEncoder(const SentencePieceModel& model, const std::string& where);

 private:
  std::vector<Piece> segment(std::string_view normalised) const override;

  std::vector<float> scores_;  // by id
  float unknown_score_ = 0;
  PieceTrie pieces_;
};

}  // namespace mnemo::text
