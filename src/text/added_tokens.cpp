#include "text/added_tokens.h"

#include <algorithm>

#include "base/error.h"
#include "base/node.h"
#include "base/unicode.h"
#include "base/utf8.h"

namespace mnemo::text {
namespace {

constexpr size_t kMaxLength = 4096;

/// A character of words in the sense of \w (UTS #18).
bool is_word(char32_t c) {
  const std::string_view kind = base::category(c);
  return kind.front() == 'L' || kind.front() == 'M' || kind == "Nd" || kind == "Nl" || kind == "Pc" || c == 0x200C ||
         c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

/// The last character of a text that is not empty.
base::Utf8Character back_character(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return base::front_character(text.substr(begin));
}

bool inside_word(std::string_view text, size_t begin, size_t end) {
  return (begin > 0 && is_word(back_character(text.substr(0, begin)).code_point)) ||
         (end < text.size() && is_word(base::front_character(text.substr(end)).code_point));
}

class WithAdded final : public PretrainedTokenizer {
 public:
  WithAdded(std::shared_ptr<const PretrainedTokenizer> inner, const AddedTokens& added, const std::string& where)
      : PretrainedTokenizer(inner->parts()),
        inner_(std::move(inner)),
        raw_(
            added, false, [](std::string_view text) { return std::string(text); }, where),
        normal_(
            added, true, [this](std::string_view text) { return inner_->normalised(text); }, where) {
    std::vector<std::pair<int64_t, size_t>> order;
    for (size_t i = 0; i < added.size(); ++i) {
      if (added.ids[i] >= inner_->size()) order.emplace_back(added.ids[i], i);
    }
    std::sort(order.begin(), order.end());
    for (const auto& [id, place] : order) {
      base::require(id == size(), "{}: added token {}: expected the id {}, found {}", where,
                    base::in_quotes(added.text(place)), size(), id);
      texts_.push_back(added.text(place));
    }
  }

  std::string type() const override { return inner_->type(); }
  int64_t size() const override { return inner_->size() + texts_.size(); }
  int64_t unknown_id() const override { return inner_->unknown_id(); }

  int64_t find(std::string_view token) const override {
    for (int64_t i = 0; i < texts_.size(); ++i) {
      if (texts_[i] == token) return inner_->size() + i;
    }
    return inner_->find(token);
  }

  void encode_part(std::string_view part, PartBegins begins, std::vector<int32_t>& out) const override {
    if (raw_.empty() && normal_.empty()) return inner_->encode_part(part, begins, out);
    const auto found = [&](int32_t id) {
      out.push_back(id);
      begins = PartBegins::section;
    };
    const auto between = [&](std::string_view text) {
      inner_->encode_part(text, begins, out);
      begins = PartBegins::section;
    };
    raw_.split(
        part,
        [&](std::string_view text) {
          if (normal_.empty()) return between(text);
          normal_.split(inner_->normalised(text), between, found);
        },
        found);
  }

  size_t last_cut(std::string_view text) const override {
    return raw_.empty() && normal_.empty() ? inner_->last_cut(text) : 0;
  }

  std::string decode(std::span<const int64_t> ids) const override {
    const bool known = std::all_of(ids.begin(), ids.end(), [&](int64_t id) { return id < inner_->size(); });
    return known ? inner_->decode(ids) : Tokenizer::decode(ids);
  }

  void append(std::string& out, int64_t id) const override {
    require_id(id);
    if (id < inner_->size()) {
      inner_->append(out, id);
    } else {
      inner_->append_added(out, texts_[id - inner_->size()]);
    }
  }

 private:
  std::shared_ptr<const PretrainedTokenizer> inner_;
  AddedFinder raw_, normal_;  // of tokens in the text as it is, and in its normal form
  EntryList texts_;           // by id, from inner_->size() on
};

}  // namespace

bool* AddedTokenRule::find(std::string_view name) {
  for (const auto& [key, rule] :
       {std::pair("special", &special), std::pair("normalized", &normalised), std::pair("lstrip", &lstrip),
        std::pair("rstrip", &rstrip), std::pair("single_word", &single_word)}) {
    if (name == key) return rule;
  }
  return nullptr;
}

AddedFinder::AddedFinder(const AddedTokens& added, bool normalised,
                         const std::function<std::string(std::string_view)>& normalise, const std::string& where)
    : trie_({}) {
  for (size_t i = 0; i < added.size(); ++i) {
    if (added.rules[i].normalised != normalised) continue;
    base::require(!added.text(i).empty(), "{}: an added token without text, id {}", where, added.ids[i]);
    base::require(added.text(i).size() <= kMaxLength, "{}: expected added tokens of at most {} bytes, found {}", where,
                  kMaxLength, added.text(i).size());
    finds_ |= !added.rules[i].special;
    texts_.push_back(normalise(added.text(i)));
    ids_.push_back(static_cast<int32_t>(added.ids[i]));
    rules_.push_back(added.rules[i]);
  }
  if (!finds_) return;
  std::vector<PieceTrie::Entry> entries;
  for (size_t i = 0; i < texts_.size(); ++i) entries.push_back({texts_[i], static_cast<int32_t>(i)});
  trie_ = PieceTrie(std::move(entries));
}

void AddedFinder::split(std::string_view text, const std::function<void(std::string_view)>& between,
                        const std::function<void(int32_t)>& found) const {
  size_t done = 0;
  for (size_t at = 0; finds_ && at < text.size();) {
    size_t length = 0;
    int32_t token = -1;
    trie_.for_each_prefix(text.substr(at), [&](size_t size, int32_t id) { length = size, token = id; });
    if (token < 0) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + length;
    const AddedTokenRule& rule = rules_[static_cast<size_t>(token)];
    at = end;
    if (rule.special || (rule.single_word && inside_word(text, begin, end))) continue;
    // White space that is the token before it stays with that one.
    while (rule.lstrip && begin > done && base::is_white_space(back_character(text.substr(0, begin)).code_point))
      begin -= static_cast<size_t>(back_character(text.substr(0, begin)).length);
    begin = std::max(begin, done);
    while (rule.rstrip && end < text.size() && base::is_white_space(base::front_character(text.substr(end)).code_point))
      end += static_cast<size_t>(base::front_character(text.substr(end)).length);
    if (begin > done) between(text.substr(done, begin - done));
    found(ids_[static_cast<size_t>(token)]);
    at = done = end;
  }
  if (done < text.size()) between(text.substr(done));
}

std::shared_ptr<const Tokenizer> with_added_tokens(std::shared_ptr<const PretrainedTokenizer> tokenizer,
                                                   const AddedTokens& added, const std::string& where) {
  bool needed = false;
  for (size_t i = 0; i < added.size(); ++i) needed |= !added.rules[i].special || added.ids[i] >= tokenizer->size();
  if (!needed) return tokenizer;
  return std::make_shared<WithAdded>(std::move(tokenizer), added, where);
}

}  // namespace mnemo::text
