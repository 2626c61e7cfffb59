#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/piece_trie.h"
#include "text/sentencepiece_model.h"

namespace mnemo::text {

/// Encodes texts by a SentencePiece model, in time proportional to their length. The library needs time n^2 and more
/// for unknown characters in a row.
class PieceEncoder {
 public:
  virtual ~PieceEncoder() = default;

  /// The text by the model's rules of characters, with marks for spaces; `space_first`: with a space in front where the
  /// model puts one. Valid UTF-8 gives valid UTF-8 or what the rules make of it. Throws InputError if that is far
  /// longer than the text.
  std::string normalise(std::string_view text, bool space_first = true) const;
  /// The text by the rules of characters alone. Errors as above.
  std::string apply_rules(std::string_view text) const;

  /// Appends the ids. Unknown characters in a row are one unknown piece, or their bytes.
  void encode(std::string_view text, std::vector<int32_t>& ids, bool space_first = true) const;
  /// Appends the pieces: the parts of the normalised text, or the names of bytes.
  void encode(std::string_view text, std::vector<std::string>& pieces, bool space_first = true) const;

 protected:
  /// A part of a text, which begins where the one before it ends.
  struct Piece {
    uint32_t end = 0;
    int32_t id = 0;
  };

  PieceEncoder(const SentencePieceModel& model, const std::string& where);

  /// The pieces of a normalised text, unknown characters each by itself.
  virtual std::vector<Piece> segment(std::string_view normalised) const = 0;

  /// The length of the longest symbol of the user's that the text starts with, or 0.
  size_t user_defined_length(std::string_view text) const;
  static size_t character_length(std::string_view text);

  const SentencePieceModel& model_;
  int32_t unknown_ = 0;

 private:
  /// Replaces the first `length` bytes of a text by `text`.
  struct Rule {
    std::string_view text;
    size_t length;
  };
  Rule front_rule(std::string_view text) const;
  /// Throws InputError for more bytes than the rules may make of `before` bytes.
  void require_growth(size_t after, size_t before) const;
  template <class Use>
  void for_each_piece(std::string_view normalised, Use&& use) const;

  std::string where_;
  std::array<int32_t, 256> byte_ids_;
  PieceTrie user_defined_;
  bool has_user_defined_ = false;
};

/// The model must outlive the encoder. Throws InputError that names `where` for a piece that appears twice.
std::unique_ptr<const PieceEncoder> make_piece_encoder(const SentencePieceModel& model, const std::string& where);

}  // namespace mnemo::text
