#include "text/bpe_tokenizer.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/node.h"
#include "base/text_format.h"
#include "base/unicode.h"
#include "base/utf8.h"
#include "text/bpe_merges.h"
#include "text/byte_characters.h"
#include "text/text_splitter.h"
#include "text/word_index.h"

namespace mnemo::text {
namespace {

bool is_word_character(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

class Bpe final : public PretrainedTokenizer {
 public:
  Bpe(BpeVocabulary vocabulary, const AddedTokens& added, BpeOptions options, std::optional<ModelIds> model_ids,
      PretrainedParts parts, const std::string& where)
      : PretrainedTokenizer(std::move(parts)),
        options_(std::move(options)),
        tokens_(std::move(vocabulary.tokens)),
        index_(tokens_),
        model_ids_(std::move(model_ids)),
        pieces_(plain_pieces(added, where)),
        piece_index_(pieces_) {
    if (const int64_t twice = index_.duplicate(); twice >= 0)
      base::input_error("{}: the token {} appears twice", where, base::in_quotes(tokens_[twice]));
    if (const int64_t twice = piece_index_.duplicate(); twice >= 0)
      base::input_error("{}: two tokens stand for {}", where, base::in_quotes(pieces_[twice]));
    for (const std::string& pattern : options_.patterns)
      splitters_.push_back(std::make_shared<const TextSplitter>(pattern, where));
    if (!options_.unknown.empty()) {
      unknown_ = static_cast<int32_t>(index_.find(options_.unknown));
      base::require(unknown_ >= 0, "{}: expected the unknown token {}, found none", where,
                    base::in_quotes(options_.unknown));
    }
    find_bytes(where);
    read_merges(vocabulary, where);
    find_direct();
    if (model_ids_) invert_model_ids(where);
  }

  std::string type() const override { return "bpe"; }
  int64_t size() const override { return model_ids_ ? model_ids_->size : tokens_.size(); }
  int64_t unknown_id() const override { return model_ids_ ? model_ids_->unknown : unknown_; }

  int64_t find(std::string_view token) const override {
    if (!model_ids_) return index_.find(token);
    const auto& special = model_ids_->special;
    const auto found = std::find(special.begin(), special.end(), token);
    if (found != special.end()) return found - special.begin();
    const int64_t id = index_.find(token);
    return id < 0 ? -1 : model_ids_->of_token[static_cast<size_t>(id)];
  }

  std::string normalised(std::string_view text) const override {
    return options_.compose ? base::normalise(text, base::NormalForm::nfc) : std::string(text);
  }

  void encode_part(std::string_view part, PartBegins begins, std::vector<int32_t>& out) const override {
    const size_t start = out.size();
    std::string composed;
    if (options_.compose) part = composed = normalised(part);
    encode_text(part, begins, out);
    if (!model_ids_) return;
    for (size_t i = start; i < out.size(); ++i) {
      const int32_t id = model_ids_->of_token[static_cast<size_t>(out[i])];
      out[i] = id < 0 ? model_ids_->unknown : id;
    }
  }

  size_t last_cut(std::string_view text) const override {
    if (!cuts_at_words_) return 0;
    for (size_t at = text.size(); --at > 0;) {
      if ((text[at] == ' ' || text[at] == '\n') && is_word_character(text[at - 1])) return at;
    }
    return 0;
  }

  /// Whole texts, unlike streams, know which space was put in front, even if it is a token of its own.
  std::string decode(std::span<const int64_t> ids) const override {
    if (options_.bytes || options_.first_space == BpeOptions::FirstSpace::never) return Tokenizer::decode(ids);
    std::string out = "\n";
    for (const int64_t id : ids) append(out, id);
    return out.substr(out.starts_with("\n ") ? 2 : 1);
  }

  void append(std::string& out, int64_t id) const override {
    require_id(id);
    if (model_ids_) {
      if (id < static_cast<int64_t>(model_ids_->special.size())) {
        out += model_ids_->special[static_cast<size_t>(id)];
        return;
      }
      id = token_of_model_id_[static_cast<size_t>(id)];
      if (id < 0) return;  // a word that only fills the dictionary
    }
    const int32_t piece = piece_of_[static_cast<size_t>(id)];
    if (piece < 0) {
      out += tokens_[id];
    } else if (options_.bytes) {
      out += pieces_[piece];
    } else {
      append_characters(out, static_cast<int32_t>(id));
    }
  }

 private:
  /// The entries of tokens that are no added tokens. Sets piece_of_, the place of each token in that list.
  EntryList plain_pieces(const AddedTokens& added, const std::string& where) {
    piece_of_.assign(static_cast<size_t>(tokens_.size()), 0);
    if (!model_ids_) {
      for (const int64_t id : added.ids) {
        base::ensure(id >= 0, "added token {}", id);
        if (id < tokens_.size()) piece_of_[static_cast<size_t>(id)] = -1;
      }
    }
    EntryList pieces;
    for (int64_t id = 0; id < tokens_.size(); ++id) {
      int32_t& piece = piece_of_[static_cast<size_t>(id)];
      if (piece < 0) continue;
      const std::string_view token = tokens_[id];
      const std::optional<std::string> bytes = options_.bytes ? bytes_of_characters(token) : std::string(token);
      // Tokens of other characters are special without being declared so, like <|endoftext|> in a vocab.json.
      base::require(bytes.has_value() || !token.empty(), "{}: token {} is empty", where, id);
      piece = bytes ? static_cast<int32_t>(pieces.size()) : -1;
      if (!bytes) continue;
      pieces.push_back(*bytes);
      piece_ids_.push_back(static_cast<int32_t>(id));
    }
    return pieces;
  }

  void find_bytes(const std::string& where) {
    byte_ids_.fill(-1);
    if (!options_.bytes && !options_.byte_fallback) return;
    for (int byte = 0; byte < 256; ++byte) {
      const char text = static_cast<char>(byte);
      const int64_t id = index_.find(options_.bytes ? characters_of_bytes({&text, 1})
                                                    : fmt::format("<0x{:02X}>", byte));
      base::require(id >= 0 || !options_.bytes, "{}: no token stands for the byte 0x{:02X}", where, byte);
      byte_ids_[byte] = static_cast<int32_t>(id);
    }
  }

  void read_merges(const BpeVocabulary& vocabulary, const std::string& where) {
    std::vector<BpeMerges::Merge> merges;
    merges.reserve(static_cast<size_t>(vocabulary.left.size()));
    std::string joined;
    for (int64_t rank = 0; rank < vocabulary.left.size(); ++rank) {
      const std::string_view left = vocabulary.left[rank], right = vocabulary.right[rank];
      joined.assign(left).append(right);
      const BpeMerges::Merge merge{static_cast<int32_t>(index_.find(left)), static_cast<int32_t>(index_.find(right)),
                                   static_cast<int32_t>(index_.find(joined))};
      base::require(merge.left >= 0 && merge.right >= 0 && merge.merged >= 0,
                    "{}: merge {}: expected tokens of the vocabulary, found {} and {}", where, rank,
                    base::in_quotes(left), base::in_quotes(right));
      merges.push_back(merge);
    }
    merges_ = BpeMerges(merges);
    if (const int64_t twice = merges_.duplicate(); twice >= 0)
      base::input_error("{}: merge {}: the pair {} and {} appears twice", where, twice,
                        base::in_quotes(vocabulary.left[twice]), base::in_quotes(vocabulary.right[twice]));
  }

  /// Which tokens the merges lead to, so that most words of a text are found at once.
  void find_direct() {
    direct_.assign(piece_ids_.size(), options_.ignore_merges);
    cuts_at_words_ = options_.bytes && !options_.patterns.empty() &&
                     std::all_of(options_.patterns.begin(), options_.patterns.end(), TextSplitter::ends_at_words);
    if (options_.ignore_merges || !options_.bytes) return;
    std::vector<int32_t> symbols;
    for (size_t piece = 0; piece < piece_ids_.size(); ++piece) {
      merged_bytes(pieces_[static_cast<int64_t>(piece)], symbols);
      direct_[piece] = symbols.size() == 1 && symbols[0] == piece_ids_[piece];
    }
  }

  void invert_model_ids(const std::string& where) {
    token_of_model_id_.assign(static_cast<size_t>(model_ids_->size), -1);
    base::ensure(static_cast<int64_t>(model_ids_->of_token.size()) == tokens_.size(), "{}: model ids", where);
    for (size_t id = 0; id < model_ids_->of_token.size(); ++id) {
      if (model_ids_->of_token[id] >= 0)
        token_of_model_id_[static_cast<size_t>(model_ids_->of_token[id])] = static_cast<int32_t>(id);
    }
  }

  void encode_text(std::string_view text, PartBegins begins, std::vector<int32_t>& out) const {
    std::string changed;
    if (!options_.bytes) {
      text = changed = with_marks(text, begins);
    } else if (options_.first_space != BpeOptions::FirstSpace::never && begins != PartBegins::nothing &&
               !text.empty() && !text.starts_with(' ')) {
      text = changed = " " + std::string(text);
    }
    std::vector<int32_t> symbols;
    split(text, 0, [&](std::string_view piece) {
      const int64_t whole = piece_index_.find(piece);
      if (whole >= 0 && direct_[static_cast<size_t>(whole)]) {
        out.push_back(piece_ids_[static_cast<size_t>(whole)]);
        return;
      }
      if (options_.bytes) {
        merged_bytes(piece, symbols);
      } else {
        merged_characters(piece, symbols);
      }
      out.insert(out.end(), symbols.begin(), symbols.end());
    });
  }

  void split(std::string_view text, size_t pattern, const std::function<void(std::string_view)>& use) const {
    if (text.empty()) return;
    if (pattern == splitters_.size()) {
      use(text);
    } else if (pattern + 1 == splitters_.size()) {
      splitters_[pattern]->split(text, use);
    } else {
      splitters_[pattern]->split(text, [&](std::string_view piece) { split(piece, pattern + 1, use); });
    }
  }

  /// Spaces as their mark, and one in front.
  std::string with_marks(std::string_view text, PartBegins begins) const {
    using FirstSpace = BpeOptions::FirstSpace;
    const std::string mark = options_.space_mark.empty() ? " " : options_.space_mark;
    std::string out(text);
    base::replace_all(out, " ", mark);
    const bool here = begins == PartBegins::text || (begins == PartBegins::section && !options_.first_space_once);
    const bool wanted = options_.first_space == FirstSpace::always ||
                        (options_.first_space == FirstSpace::where_missing && here && !out.starts_with(mark));
    return wanted && !out.empty() ? mark + out : out;
  }

  void merged_bytes(std::string_view piece, std::vector<int32_t>& symbols) const {
    symbols.clear();
    for (const char c : piece) symbols.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    merges_.apply(symbols);
  }

  void merged_characters(std::string_view piece, std::vector<int32_t>& symbols) const {
    symbols.clear();
    bool after_unknown = false;
    for (size_t at = 0; at < piece.size();) {
      const auto length = static_cast<size_t>(base::front_character(piece.substr(at)).length);
      const std::string_view character = piece.substr(at, length);
      at += length;
      if (const int64_t id = index_.find(character); id >= 0) {
        symbols.push_back(static_cast<int32_t>(id));
        after_unknown = false;
      } else if (options_.byte_fallback && std::all_of(character.begin(), character.end(), [&](char c) {
                   return byte_ids_[static_cast<unsigned char>(c)] >= 0;
                 })) {
        for (const char c : character) symbols.push_back(byte_ids_[static_cast<unsigned char>(c)]);
        after_unknown = false;
      } else if (unknown_ >= 0) {
        if (!after_unknown || !options_.fuse_unknown) symbols.push_back(unknown_);
        after_unknown = true;
      }
    }
    merges_.apply(symbols);
  }

  void append_characters(std::string& out, int32_t id) const {
    const std::string_view token = tokens_[id];
    if (options_.byte_fallback && token.size() == 6 && token.starts_with("<0x") && token.ends_with(">")) {
      const auto byte = std::find(byte_ids_.begin(), byte_ids_.end(), id);
      if (byte != byte_ids_.end()) {
        out.push_back(static_cast<char>(byte - byte_ids_.begin()));
        return;
      }
    }
    std::string text(token);
    if (!options_.space_mark.empty()) base::replace_all(text, options_.space_mark, " ");
    const bool added_space = out.empty() && options_.first_space != BpeOptions::FirstSpace::never &&
                             text.starts_with(' ');
    out += added_space ? text.substr(1) : text;
  }

  BpeOptions options_;
  EntryList tokens_;
  WordIndex index_;
  std::optional<ModelIds> model_ids_;
  std::vector<int32_t> piece_of_;   // place in pieces_ by id; -1: the text of the token is not part of any text
  std::vector<int32_t> piece_ids_;  // id by place in pieces_
  EntryList pieces_;                // with `bytes`: the bytes; otherwise the characters of the token
  WordIndex piece_index_;
  std::vector<bool> direct_;  // by place in pieces_: the piece alone is that token
  std::array<int32_t, 256> byte_ids_;
  BpeMerges merges_;
  std::vector<std::shared_ptr<const TextSplitter>> splitters_;
  std::vector<int32_t> token_of_model_id_;
  int32_t unknown_ = -1;
  bool cuts_at_words_ = false;
};

}  // namespace

std::shared_ptr<const Tokenizer> make_bpe(BpeVocabulary vocabulary, AddedTokens added, BpeOptions options,
                                          std::optional<ModelIds> model_ids, PretrainedParts parts,
                                          const std::string& where) {
  const auto bpe = std::make_shared<Bpe>(std::move(vocabulary), added, std::move(options), std::move(model_ids),
                                         std::move(parts), where);
  return with_added_tokens(bpe, added, where);
}

}  // namespace mnemo::text
