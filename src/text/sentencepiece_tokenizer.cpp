#include "text/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>
#include <utf8proc.h>

#include <algorithm>

#include "base/error.h"
#include "base/node.h"
#include "base/printable.h"
#include "base/text_format.h"
#include "base/unicode.h"
#include "text/piece_encoder.h"
#include "text/sentencepiece_model.h"
#include "text/sentencepiece_status.h"
#include "text/word_index.h"

namespace mnemo::text {
namespace {

constexpr std::string_view kSpace = "\u2581";
constexpr std::string_view kUnknownText = " \u2047 ";

/// A model of the library, and the content of its file.
class Model {
 public:
  Model(std::string_view file, const SentencePieceOptions& options, const std::string& where)
      : model_(read_sentencepiece_model(file, where)) {
    model_.space_where_missing = options.space_where_missing;
    if (options.llama) {
      model_.normaliser.clear();
      model_.single_spaces = model_.space_last = false;
      model_.marks_spaces = true;
      model_.space_first = !options.no_first_space;
    }
    require_ok(processor_.LoadFromSerializedProto({file.data(), file.size()}), where);
    encoder_ = make_piece_encoder(model_, where);
  }

  /// Ids (int32_t) or pieces (std::string) of a text.
  template <class Unit>
  std::vector<Unit> encode(std::string_view text, bool space_first = true) const {
    std::vector<Unit> out;
    encoder_->encode(text, out, space_first);
    return out;
  }

  std::string apply_rules(std::string_view text) const { return encoder_->apply_rules(text); }
  const sentencepiece::SentencePieceProcessor& processor() const { return processor_; }
  int64_t size() const { return model_.pieces.size(); }
  std::string_view piece(int64_t id) const { return model_.pieces[id]; }

  int64_t find(std::string_view piece) const {
    const int id = processor_.PieceToId({piece.data(), piece.size()});
    return id >= 0 && model_.pieces[id] == piece ? id : -1;
  }

  /// The text of a piece after `out`, as the library decodes it.
  void append(std::string& out, int64_t id) const {
    const std::string_view piece = model_.pieces[id];
    switch (model_.types[static_cast<size_t>(id)]) {
      case PieceType::control:
        return;
      case PieceType::unknown:
        out += kUnknownText;
        return;
      case PieceType::byte:
        if (const int byte = byte_of(piece); byte >= 0) {
          out.push_back(static_cast<char>(byte));
          return;
        }
        break;
      default:
        break;
    }
    std::string text(piece);
    base::replace_all(text, kSpace, " ");
    const bool drop_space = out.empty() && (model_.space_first || model_.single_spaces) && text.starts_with(' ');
    out += drop_space ? text.substr(1) : text;
  }

 private:
  /// The byte of a piece like "<0x41>"; -1 for other pieces.
  static int byte_of(std::string_view piece) {
    const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; };
    if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return -1;
    const int high = digit(piece[3]), low = digit(piece[4]);
    return high < 0 || low < 0 ? -1 : 16 * high + low;
  }

  SentencePieceModel model_;
  sentencepiece::SentencePieceProcessor processor_;
  std::unique_ptr<const PieceEncoder> encoder_;
};

class SentencePieceTokenizer final : public PretrainedTokenizer {
 public:
  SentencePieceTokenizer(std::string_view file, SentencePieceOptions options, PretrainedParts parts,
                         const std::string& where)
      : PretrainedTokenizer(std::move(parts)),
        options_(std::move(options)),
        where_(where),
        model_(file, options_, where) {
    if (options_.pieces_by_id) {
      index_ = std::make_unique<WordIndex>(*options_.pieces_by_id);
      if (const int64_t twice = index_->duplicate(); twice >= 0)
        base::input_error("{}: the piece {} appears twice", where, base::in_quotes((*options_.pieces_by_id)[twice]));
      unknown_ = index_->find("<unk>");
      base::require(unknown_ >= 0, "{}: expected the piece <unk> in the vocabulary, found none", where);
      if (!options_.target.empty()) target_ = std::make_unique<Model>(options_.target, SentencePieceOptions{}, where);
      options_.target.clear();
      for (int64_t id = 0; id < options_.pieces_by_id->size(); ++id) {
        const std::string_view piece = (*options_.pieces_by_id)[id];
        if (piece.size() > 4 && piece.starts_with(">>") && piece.ends_with("<<"))
          (codes_ += codes_.empty() ? "" : ", ") += piece;
      }
    } else {
      unknown_ = model_.processor().unk_id();
    }
  }

  std::string type() const override { return "sentencepiece"; }
  int64_t size() const override { return index_ ? options_.pieces_by_id->size() : model_.size(); }
  int64_t unknown_id() const override { return unknown_; }

  int64_t find(std::string_view token) const override { return index_ ? index_->find(token) : model_.find(token); }

  std::string normalised(std::string_view text) const override { return model_.apply_rules(prepared(text)); }

  void encode_part(std::string_view part, PartBegins begins, std::vector<int32_t>& out) const override {
    std::string changed;
    const bool space_first = begins == PartBegins::text || !options_.first_space_once;
    if (begins == PartBegins::text && !codes_.empty() && part.starts_with(">>")) take_code(part, out);
    if (changes_characters()) part = changed = prepared(part);
    if (index_ || options_.digit_commas) {
      std::vector<std::string> pieces = model_.encode<std::string>(part, space_first);
      if (options_.digit_commas) pieces = with_digit_commas(pieces);
      for (const std::string& piece : pieces) {
        const int64_t id = index_ ? index_->find(piece) : model_.processor().PieceToId(piece);
        out.push_back(static_cast<int32_t>(id < 0 ? unknown_ : id));
      }
      return;
    }
    const std::vector<int32_t> ids = model_.encode<int32_t>(part, space_first);
    out.insert(out.end(), ids.begin(), ids.end());
  }

  /// Pieces may span spaces, and the best ones depend on the whole text.
  size_t last_cut(std::string_view) const override { return 0; }

  std::string decode(std::span<const int64_t> ids) const override {
    std::vector<int> pieces;
    for (const int64_t id : ids) {
      require_id(id);
      if (index_ || options_.llama) return Tokenizer::decode(ids);
      pieces.push_back(static_cast<int>(id));
    }
    std::string out;
    require_ok(model_.processor().Decode(pieces, &out), where_);
    return out;
  }

  void append(std::string& out, int64_t id) const override {
    require_id(id);
    if (index_) {
      const Model& model = target_ ? *target_ : model_;
      const int64_t piece = model.find((*options_.pieces_by_id)[id]);
      if (piece >= 0) model.append(out, piece);
    } else {
      model_.append(out, id);
    }
  }

 private:
  /// The language code at the beginning of a text, which SentencePiece does not see, is one token.
  void take_code(std::string_view& part, std::vector<int32_t>& out) const {
    const size_t end = part.find("<<", 3);
    if (end == std::string_view::npos) return;
    const std::string_view code = part.substr(0, end + 2);
    const int64_t id = index_->find(code);
    base::require(id >= 0, "{}: expected one of the model's language codes ({}), found {}", where_,
                  base::printable(codes_, 400), base::in_quotes(code));
    out.push_back(static_cast<int32_t>(id));
    part.remove_prefix(code.size());
  }

  bool changes_characters() const { return options_.straight_quotes || options_.strip_accents || options_.lowercase; }

  std::string prepared(std::string_view part) const {
    std::string text(part);
    if (!changes_characters()) return text;
    if (options_.straight_quotes) {
      base::replace_all(text, "``", "\"");
      base::replace_all(text, "''", "\"");
    }
    std::u32string characters = base::code_points(
        options_.strip_accents ? base::normalise(text, base::NormalForm::nfkd) : text, where_);
    if (options_.strip_accents)
      std::erase_if(characters, [](char32_t c) {
        return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class != 0;
      });
    if (options_.lowercase) {
      for (char32_t& c : characters) c = base::lower(c);
    }
    if (options_.straight_quotes) std::ranges::replace_if(characters, base::is_white_space, U' ');
    return base::utf8(characters);
  }

  std::vector<std::string> with_digit_commas(const std::vector<std::string>& pieces) const {
    std::vector<std::string> out;
    for (const std::string& piece : pieces) {
      if (!ends_in_digit_and_comma(piece)) {
        out.push_back(piece);
        continue;
      }
      std::string text = piece.substr(0, piece.size() - 1);
      base::replace_all(text, kSpace, "");
      std::vector<std::string> again = model_.encode<std::string>(text);
      if (!piece.starts_with(kSpace) && !again.empty() && again[0].starts_with(kSpace)) {
        again[0].erase(0, kSpace.size());
        if (again[0].empty()) again.erase(again.begin());
      }
      out.insert(out.end(), again.begin(), again.end());
      out.emplace_back(",");
    }
    return out;
  }

  bool ends_in_digit_and_comma(const std::string& piece) const {
    if (piece.size() < 2 || piece.back() != ',') return false;
    const std::u32string characters = base::code_points(piece, where_);
    return base::category(characters[characters.size() - 2]) == "Nd";
  }

  SentencePieceOptions options_;
  std::string where_;
  Model model_;
  std::unique_ptr<Model> target_;
  std::unique_ptr<WordIndex> index_;  // of pieces_by_id
  std::string codes_;                 // >>fra<<, ... of pieces_by_id; empty: none
  int64_t unknown_ = -1;
};

}  // namespace

std::shared_ptr<const Tokenizer> make_sentencepiece(std::string_view file, SentencePieceOptions options,
                                                    PretrainedParts parts, const std::string& where,
                                                    const AddedTokens& added) {
  return with_added_tokens(std::make_shared<SentencePieceTokenizer>(file, std::move(options), std::move(parts), where),
                           added, where);
}

}  // namespace mnemo::text
