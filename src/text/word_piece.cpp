#include "text/word_piece.h"

#include <algorithm>

#include "base/error.h"
#include "base/node.h"
#include "base/text_format.h"
#include "base/unicode.h"
#include "base/utf8.h"
#include "text/word_index.h"

namespace mnemo::text {
namespace {

/// Upper limit of `max_input_chars_per_word`: longer words are unknown. Published models have 100.
constexpr int64_t kMaxWordCharacters = 1000;

/// U+0130, a capital I with a dot: the one character whose lower case is two, "i" and U+0307.
constexpr char32_t kDottedI = 0x0130;
constexpr std::string_view kDottedILower = "i\u0307";

bool is_cjk(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

bool is_punctuation(char32_t c) {
  if (c < 0x80)
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
  return base::category(c).front() == 'P';
}

bool is_dropped(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  if (c < 0x80) return c < 0x20 || c == 0x7F;
  const std::string_view kind = base::category(c);
  return c == 0xFFFD || kind == "Cc" || kind == "Cf" || kind == "Co";
}

bool is_ascii(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
}

class WordPiece final : public PretrainedTokenizer {
 public:
  WordPiece(EntryList tokens, WordPieceOptions options, PretrainedParts parts, const std::string& where)
      : PretrainedTokenizer(std::move(parts)),
        options_(std::move(options)),
        tokens_(std::move(tokens)),
        index_(WordIndex::of_last(tokens_)),
        unknown_(static_cast<int32_t>(index_.find(options_.unknown))) {
    base::require(unknown_ >= 0, "{}: expected the token {}, found none", where, base::in_quotes(options_.unknown));
    is_piece_.assign(static_cast<size_t>(tokens_.size()), true);
    for (const int64_t id : options_.no_pieces) is_piece_[static_cast<size_t>(id)] = false;
    for (int64_t id = 0; id < tokens_.size(); ++id) longest_ = std::max(longest_, tokens_[id].size());
  }

  std::string type() const override { return "wordpiece"; }
  int64_t size() const override { return tokens_.size(); }
  int64_t unknown_id() const override { return unknown_; }
  int64_t find(std::string_view token) const override { return index_.find(token); }

  std::string normalised(std::string_view text) const override {
    std::u32string characters = base::code_points(text, type());
    if (options_.clean) std::erase_if(characters, is_dropped);
    std::string out;
    for (const char32_t c : characters) {
      if (options_.clean && base::is_white_space(c)) {
        out += ' ';
      } else if (options_.split_cjk && is_cjk(c)) {
        out += ' ', base::append_character(out, c), out += ' ';
      } else {
        base::append_character(out, c);
      }
    }
    characters = options_.strip_accents ? without_accents(out) : base::code_points(out, type());
    out.clear();
    for (const char32_t c : characters) append_lower(out, c);
    return out;
  }

  void encode_part(std::string_view part, PartBegins, std::vector<int32_t>& out) const override {
    std::string word;  // the normalised characters since the last border
    size_t begin = 0;
    for (size_t at = 0; at <= part.size(); ++at) {
      // ASCII white space is a border whatever stands around it, so that what is normalised is short.
      if (at < part.size() && part[at] != ' ' && part[at] != '\n') continue;
      encode_run(part.substr(begin, at - begin), word, out);
      begin = at + 1;
    }
  }

  size_t last_cut(std::string_view text) const override {
    const size_t at = text.find_last_of(" \n");
    return at == std::string_view::npos ? 0 : at;
  }

  void append(std::string& out, int64_t id) const override {
    require_id(id);
    append_added(out, tokens_[id]);
  }

  void append_added(std::string& out, std::string_view token) const override {
    if (out.empty()) {
      out += token;
      return;
    }
    const bool continues = token.size() >= options_.prefix.size() && token.starts_with(options_.prefix);
    std::string piece = continues ? std::string(token.substr(options_.prefix.size())) : " " + std::string(token);
    static constexpr std::pair<std::string_view, std::string_view> kJoined[] = {
        {" .", "."},   {" ?", "?"},   {" !", "!"},     {" ,", ","},    {" n't", "n't"},
        {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& [from, to] : kJoined) base::replace_all(piece, from, to);
    out += piece;
  }

 private:
  std::u32string without_accents(std::string_view text) const {
    std::u32string characters = base::code_points(base::normalise(text, base::NormalForm::nfd), type());
    std::erase_if(characters, [](char32_t c) { return c >= 0x80 && base::category(c) == "Mn"; });
    return characters;
  }

  void append_lower(std::string& out, char32_t c) const {
    if (c == kDottedI && options_.lowercase) {
      out += kDottedILower;
    } else {
      base::append_character(out, options_.lowercase ? base::lower(c) : c);
    }
  }

  /// A text without ASCII blanks and line ends.
  void encode_run(std::string_view run, std::string& word, std::vector<int32_t>& out) const {
    word.clear();
    const bool ascii = is_ascii(run);
    const auto flush = [&] {
      if (!word.empty()) encode_word(word, out);
      word.clear();
    };
    const auto use = [&](char32_t c) {
      if (options_.lowercase && c == kDottedI) {
        word += kDottedILower;
        return;
      }
      if (options_.lowercase) c = base::lower(c);
      if (base::is_white_space(c)) {
        flush();
      } else if (is_punctuation(c) || (options_.split_cjk && is_cjk(c))) {
        flush();
        base::append_character(word, c);
        flush();
      } else {
        base::append_character(word, c);
      }
    };
    if (ascii) {
      for (const char c : run) {
        if (!options_.clean || !is_dropped(static_cast<unsigned char>(c))) use(static_cast<unsigned char>(c));
      }
    } else {
      std::u32string text = base::code_points(run, type());
      // The marks of a dropped character belong to the one before it.
      if (options_.clean) std::erase_if(text, is_dropped);
      if (options_.strip_accents) {
        // An ideograph is a word of its own before it is decomposed, and some become others.
        text = without_accents(base::utf8(text));
      }
      for (const char32_t c : text) use(c);
    }
    flush();
  }

  void encode_word(std::string_view word, std::vector<int32_t>& out) const {
    if (static_cast<int64_t>(word.size()) > options_.max_word_characters &&
        base::count_characters(word) > options_.max_word_characters) {
      out.push_back(unknown_);
      return;
    }
    const size_t start = out.size();
    std::string piece;
    for (size_t begin = 0; begin < word.size();) {
      piece = begin == 0 ? std::string() : options_.prefix;
      const size_t before = piece.size();
      piece += word.substr(begin, longest_);
      int64_t found = -1;
      size_t end = 0;
      index_.for_each_prefix(piece, [&](size_t length, int64_t id) {
        const size_t border = begin + length - before;
        if (length <= before || !is_piece_[static_cast<size_t>(id)]) return;
        if (border < word.size() && (static_cast<unsigned char>(word[border]) & 0xC0) == 0x80) return;
        found = id;
        end = border;
      });
      if (found < 0) {
        out.resize(start);
        out.push_back(unknown_);
        return;
      }
      out.push_back(static_cast<int32_t>(found));
      begin = end;
    }
  }

  WordPieceOptions options_;
  EntryList tokens_;
  WordIndex index_;
  int32_t unknown_;
  std::vector<bool> is_piece_;
  size_t longest_ = 0;  // bytes of the longest token
};

}  // namespace

std::shared_ptr<const Tokenizer> make_word_piece(EntryList tokens, WordPieceOptions options, PretrainedParts parts,
                                                 const std::string& where, const AddedTokens& added) {
  base::require(options.max_word_characters > 0 && options.max_word_characters <= kMaxWordCharacters,
                "{}: expected words of at most 1 to {} characters, found {}", where, kMaxWordCharacters,
                options.max_word_characters);
  return with_added_tokens(std::make_shared<WordPiece>(std::move(tokens), std::move(options), std::move(parts), where),
                           added, where);
}

}  // namespace mnemo::text
