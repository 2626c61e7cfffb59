#include <algorithm>
#include <array>
#include <unordered_map>

#include "base/error.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "text/tokenizer_types.h"
#include "text/utf8_error.h"

namespace mnemo::text {
namespace {

constexpr char32_t kReplacement = 0xFFFD;
constexpr char32_t kSmall = 0x800;  // code points of one or two bytes use an array lookup

/// Passes on the code points of a text that is read in chunks.
class CharacterScanner {
 public:
  CharacterScanner(std::string where, int64_t offset) : where_(std::move(where)), offset_(offset) {}

  template <class Use>
  void put(std::string_view chunk, Use&& use) {
    // At most three bytes are pending until their character is complete.
    while (!pending_.empty() && !chunk.empty()) {
      pending_.push_back(chunk.front());
      chunk.remove_prefix(1);
      const base::Utf8Character found = base::front_character(pending_);
      if (found.length < 0) invalid_utf8(where_, offset_, pending_, kUseBytes);
      if (found.length == 0) continue;
      use(found.code_point);
      offset_ += found.length;
      pending_.clear();
    }
    while (!chunk.empty()) {
      const base::Utf8Character found = base::front_character(chunk);
      if (found.length < 0) invalid_utf8(where_, offset_, chunk, kUseBytes);
      if (found.length == 0) {
        pending_ = chunk;
        return;
      }
      use(found.code_point);
      offset_ += found.length;
      chunk.remove_prefix(static_cast<size_t>(found.length));
    }
  }

  void finish() const {
    if (!pending_.empty()) invalid_utf8(where_, offset_, pending_, kUseBytes);
  }

 private:
  std::string where_;
  int64_t offset_;  // of the first byte not yet passed on
  std::string pending_;
};

class CharacterTokenizer final : public Tokenizer {
 public:
  /// characters[id], with kUnknownMark for <unk>.
  static constexpr char32_t kUnknownMark = 0xFFFFFFFF;

  explicit CharacterTokenizer(std::vector<char32_t> characters) : characters_(std::move(characters)) {
    unknown_ = static_cast<int32_t>(std::find(characters_.begin(), characters_.end(), kUnknownMark) -
                                    characters_.begin());
    small_.fill(unknown_);
    for (size_t id = 0; id < characters_.size(); ++id) {
      const char32_t c = characters_[id];
      if (c < kSmall) {
        small_[c] = static_cast<int32_t>(id);
      } else if (c != kUnknownMark) {
        large_.emplace_back(c, static_cast<int32_t>(id));
      }
    }
    std::sort(large_.begin(), large_.end());
  }

  std::string type() const override { return "characters"; }
  int64_t size() const override { return static_cast<int64_t>(characters_.size()); }
  int64_t unknown_id() const override { return unknown_; }

  int32_t id(char32_t c) const {
    if (c < kSmall) return small_[c];
    const auto found = std::lower_bound(large_.begin(), large_.end(), std::pair(c, int32_t{0}));
    return found != large_.end() && found->first == c ? found->second : unknown_;
  }

  std::unique_ptr<Encoder> encoder(std::string where, int64_t offset) const override;

  void append(std::string& out, int64_t id) const override {
    require_id(id);
    base::append_character(out, id == unknown_ ? kReplacement : characters_[static_cast<size_t>(id)]);
  }

  Files save() const override {
    VocabularyFile file{.type = "characters", .has_entries = true};
    for (size_t id = 0; id < characters_.size(); ++id) {
      std::string entry;
      if (static_cast<int32_t>(id) == unknown_) {
        entry = kUnknownEntry;
      } else {
        base::append_character(entry, characters_[id]);
      }
      file.entries.push_back(entry);
    }
    return {{std::string(kFile), write_vocabulary(file)}};
  }

 private:
  std::vector<char32_t> characters_;
  int32_t unknown_;
  std::array<int32_t, kSmall> small_;
  std::vector<std::pair<char32_t, int32_t>> large_;
};

class CharacterEncoder final : public Encoder {
 public:
  CharacterEncoder(const CharacterTokenizer& tokenizer, std::string where, int64_t offset)
      : tokenizer_(tokenizer), scanner_(std::move(where), offset) {}
  void put(std::string_view chunk, std::vector<int32_t>& out) override {
    scanner_.put(chunk, [&](char32_t c) {
      out.push_back(tokenizer_.id(c));
      num_unknown_ += out.back() == tokenizer_.unknown_id();
    });
  }
  void finish(std::vector<int32_t>&) override { scanner_.finish(); }

 private:
  const CharacterTokenizer& tokenizer_;
  CharacterScanner scanner_;
};

std::unique_ptr<Encoder> CharacterTokenizer::encoder(std::string where, int64_t offset) const {
  return std::make_unique<CharacterEncoder>(*this, std::move(where), offset);
}

}  // namespace

std::shared_ptr<const Tokenizer> make_character_tokenizer(const TextSource& training_text, VocabularyLimits limits) {
  CharacterScanner scanner(training_text.path(), training_text.begin());
  std::vector<int64_t> small(kSmall, 0);
  std::unordered_map<char32_t, int64_t> large;
  training_text.for_each_chunk([&](std::string_view chunk) {
    scanner.put(chunk, [&](char32_t c) { ++(c < kSmall ? small[c] : large[c]); });
    return true;
  });
  scanner.finish();

  std::vector<std::pair<int64_t, char32_t>> counts(0);
  const auto keep = [&](char32_t c, int64_t count) {
    if (count >= std::max<int64_t>(limits.min_count, 1)) counts.emplace_back(-count, c);
  };
  for (char32_t c = 0; c < kSmall; ++c) keep(c, small[c]);
  for (const auto& [c, count] : large) keep(c, count);
  std::sort(counts.begin(), counts.end());
  if (limits.max_size > 0 && static_cast<int64_t>(counts.size()) >= limits.max_size) {
    counts.resize(static_cast<size_t>(limits.max_size - 1));
  }
  base::require(!counts.empty(),
                "{}: no characters for a vocabulary (min_count = {}, max_vocabulary = {}, {} bytes of text)",
                training_text.path(), limits.min_count, limits.max_size, training_text.size());
  std::vector<char32_t> characters;
  for (const auto& [count, c] : counts) characters.push_back(c);
  characters.push_back(CharacterTokenizer::kUnknownMark);
  return std::make_shared<CharacterTokenizer>(std::move(characters));
}

std::shared_ptr<const Tokenizer> character_tokenizer_from(EntryList entries, const std::string& where) {
  std::vector<char32_t> characters;
  characters.reserve(static_cast<size_t>(entries.size()));
  for (int64_t i = 0; i < entries.size(); ++i) {
    const std::string_view entry = entries[i];
    if (entry == kUnknownEntry) {
      characters.push_back(CharacterTokenizer::kUnknownMark);
      continue;
    }
    const base::Utf8Character found = entry.empty() ? base::Utf8Character{} : base::front_character(entry);
    base::require(found.length > 0 && static_cast<size_t>(found.length) == entry.size(),
                  "{}: entry {}: expected one character or <unk>, found \"{}\"", where, i, base::printable(entry, 40));
    characters.push_back(found.code_point);
  }
  std::vector<char32_t> sorted = characters;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    base::require(*twice != CharacterTokenizer::kUnknownMark, "{}: <unk> appears twice", where);
    base::input_error("{}: the character U+{:04X} appears twice", where, static_cast<uint32_t>(*twice));
  }
  base::require(!sorted.empty() && sorted.back() == CharacterTokenizer::kUnknownMark, "{}: expected an entry <unk>",
                where);
  return std::make_shared<CharacterTokenizer>(std::move(characters));
}

}  // namespace mnemo::text
