#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/piece_trie.h"
#include "data/tokenizers/sentencepiece_model.h"

namespace mnemo::data {

/// The best segmentation of a text by a unigram model (Kudo 2018), with the numbers and ties of SentencePiece 0.2.
/// Older versions of the library, which Debian has, choose another one of equally good segmentations, and need time n^2
/// for unknown characters in a row.
class UnigramEncoder {
 public:
  /// The model must outlive the encoder.
  explicit UnigramEncoder(const SentencePieceModel& model);

  /// Whether a model is one that this class encodes as SentencePiece does: unigram, with spaces marked in front of
  /// words.
  static bool supports(const SentencePieceModel& model);

  /// The text by the model's rules of characters, with marks for spaces. Valid UTF-8 gives valid UTF-8 or what the
  /// rules make of it.
  std::string normalise(std::string_view text) const;

  /// Appends the ids. Unknown characters in a row are one unknown piece, or their bytes.
  void encode(std::string_view text, std::vector<int32_t>& ids) const;
  /// Appends the pieces: the parts of the normalised text.
  void encode(std::string_view text, std::vector<std::string>& pieces) const;

 private:
  struct Piece {
    std::string_view text;
    int32_t id;
  };
  /// What the text starts with becomes `text` and is `length` bytes long.
  struct Rule {
    std::string_view text;
    size_t length;
  };
  Rule front_rule(std::string_view text) const;
  std::vector<Piece> best(std::string_view normalised) const;

  const SentencePieceModel& model_;
  std::vector<float> scores_;  // by id
  float unknown_score_ = 0;
  int32_t unknown_ = 0;
  std::array<int32_t, 256> byte_ids_;
  PieceTrie pieces_, user_defined_;
  bool has_user_defined_ = false;
};

}  // namespace mnemo::data
