#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "base/printable.h"
#include "text/tokenizer_types.h"
#include "text/utf8_error.h"
#include "text/word_index.h"

namespace mnemo::text {
namespace {

constexpr std::string_view kEndOfLine = "<eos>";
constexpr size_t kLongestWord = size_t{1} << 16;

bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/// Passes on the words of a text that is read in chunks; the end of a line is <eos>.
class WordScanner {
 public:
  WordScanner(std::string where, int64_t offset) : where_(std::move(where)), offset_(offset) {}

  template <class Use>
  void put(std::string_view chunk, Use&& use) {
    size_t at = 0;
    while (at < chunk.size()) {
      size_t end = at;
      while (end < chunk.size() && !is_blank(chunk[end])) ++end;
      const std::string_view part = chunk.substr(at, end - at);
      if (end == chunk.size()) {
        limit(pending_.size() + part.size());
        pending_ += part;
        return;
      }
      word(part, use);
      if (chunk[end] == '\n') use(kEndOfLine);
      ++offset_;
      at = end + 1;
    }
  }

  template <class Use>
  void finish(Use&& use) {
    word({}, use);
  }

 private:
  void limit(size_t size) const {
    base::require(size <= kLongestWord, "{}: a word of more than {} bytes at byte {}: is this a text of words?", where_,
                  kLongestWord, offset_);
  }

  template <class Use>
  void word(std::string_view part, Use&& use) {
    limit(pending_.size() + part.size());
    if (!pending_.empty()) part = pending_ += part;
    if (!part.empty()) {
      if (const auto bad = base::first_invalid_utf8(part)) {
        invalid_utf8(where_, offset_ + static_cast<int64_t>(*bad), part.substr(*bad), kUseBytes);
      }
      use(part);
    }
    offset_ += static_cast<int64_t>(part.size());
    pending_.clear();
  }

  std::string where_;
  int64_t offset_;  // of the first byte not yet passed on
  std::string pending_;
};

class WordTokenizer final : public Tokenizer {
 public:
  WordTokenizer(EntryList entries, const std::string& where)
      : entries_(std::move(entries)),
        index_(entries_),
        unknown_(index_.find(kUnknownEntry)),
        end_of_line_(index_.find(kEndOfLine)) {
    if (const int64_t twice = index_.duplicate(); twice >= 0) {
      base::input_error("{}: the word \"{}\" appears twice", where, base::printable(entries_[twice], 40));
    }
    base::require(unknown_ >= 0 && end_of_line_ >= 0, "{}: expected the entries <unk> and <eos>", where);
  }

  std::string type() const override { return "words"; }
  int64_t size() const override { return entries_.size(); }
  int64_t unknown_id() const override { return unknown_; }

  /// -1 for a word without an entry.
  int64_t find(std::string_view word) const override { return index_.find(word); }

  std::unique_ptr<Encoder> encoder(std::string where, int64_t offset) const override;

  void append(std::string& out, int64_t id) const override {
    require_id(id);
    if (id == end_of_line_) {
      out.push_back('\n');
      return;
    }
    if (!out.empty() && out.back() != '\n') out.push_back(' ');
    out += entries_[id];
  }

  Files save() const override {
    return {{std::string(kFile), write_vocabulary({.type = "words", .entries = entries_, .has_entries = true})}};
  }

 private:
  EntryList entries_;
  WordIndex index_;
  int64_t unknown_, end_of_line_;
};

class WordEncoder final : public Encoder {
 public:
  WordEncoder(const WordTokenizer& tokenizer, std::string where, int64_t offset)
      : tokenizer_(tokenizer), scanner_(std::move(where), offset) {}
  void put(std::string_view chunk, std::vector<int32_t>& out) override {
    scanner_.put(chunk, [&](std::string_view word) { add(word, out); });
  }
  void finish(std::vector<int32_t>& out) override {
    scanner_.finish([&](std::string_view word) { add(word, out); });
  }

 private:
  void add(std::string_view word, std::vector<int32_t>& out) {
    const int64_t found = tokenizer_.find(word);
    out.push_back(static_cast<int32_t>(found < 0 ? tokenizer_.unknown_id() : found));
    num_unknown_ += found < 0;
  }

  const WordTokenizer& tokenizer_;
  WordScanner scanner_;
};

std::unique_ptr<Encoder> WordTokenizer::encoder(std::string where, int64_t offset) const {
  return std::make_unique<WordEncoder>(*this, std::move(where), offset);
}

struct Hash {
  using is_transparent = void;
  size_t operator()(std::string_view word) const { return std::hash<std::string_view>{}(word); }
};

}  // namespace

void check_words(std::string_view line, const std::string& where) {
  const auto accept = [](std::string_view) {};
  WordScanner scanner(where, 0);
  scanner.put(line, accept);
  scanner.finish(accept);
}

std::shared_ptr<const Tokenizer> make_word_tokenizer(const TextSource& training_text, VocabularyLimits limits) {
  std::unordered_map<std::string, int64_t, Hash, std::equal_to<>> counts;
  int64_t words = 0;
  const auto count = [&](std::string_view word) {
    ++words;
    if (const auto found = counts.find(word); found != counts.end()) {
      ++found->second;
    } else {
      counts.emplace(word, 1);
    }
  };
  WordScanner scanner(training_text.path(), training_text.begin());
  training_text.for_each_chunk([&](std::string_view chunk) {
    scanner.put(chunk, count);
    return true;
  });
  scanner.finish(count);
  base::require(words > 0, "{}: no words for a vocabulary in {} bytes of text", training_text.path(),
                training_text.size());
  base::require(limits.max_size == 0 || limits.max_size > 2, "max_vocabulary: expected 0 or at least 3, found {}",
                limits.max_size);

  counts.try_emplace(std::string(kUnknownEntry), 0);
  counts.try_emplace(std::string(kEndOfLine), 0);
  std::vector<std::pair<int64_t, std::string_view>> order;
  for (const auto& [word, seen] : counts) {
    const bool special = word == kUnknownEntry || word == kEndOfLine;
    if (special || seen >= limits.min_count) order.emplace_back(-seen, word);
  }
  std::sort(order.begin(), order.end());
  if (limits.max_size > 0 && static_cast<int64_t>(order.size()) > limits.max_size) {
    // The special entries are always kept, whatever their frequency.
    int64_t left = limits.max_size - 2;
    std::erase_if(order, [&](const auto& entry) {
      return entry.second != kUnknownEntry && entry.second != kEndOfLine && left-- <= 0;
    });
  }
  EntryList entries;
  for (const auto& [seen, word] : order) entries.push_back(word);
  return std::make_shared<WordTokenizer>(std::move(entries), training_text.path());
}

std::shared_ptr<const Tokenizer> word_tokenizer_from(EntryList entries, const std::string& where) {
  for (int64_t i = 0; i < entries.size(); ++i) {
    const std::string_view entry = entries[i];
    base::require(!entry.empty() && entry.size() <= kLongestWord && std::none_of(entry.begin(), entry.end(), is_blank),
                  "{}: entry {}: expected a word without spaces of 1 to {} bytes, found \"{}\"", where, i, kLongestWord,
                  base::printable(entry, 40));
  }
  return std::make_shared<WordTokenizer>(std::move(entries), where);
}

}  // namespace mnemo::text
