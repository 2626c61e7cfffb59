#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <set>

#include "base/error.h"
#include "base/json_sax.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "text/tokenizer_json.h"

namespace mnemo::text {
namespace {

// Limits of everything but the long lists.
constexpr size_t kMaxDepth = 32, kMaxValues = 8192, kMaxKeys = 1000;
constexpr size_t kMaxAddedKeys = 32;  // of one added token

constexpr const char*
    kTooManyMerges = "{}: merge {}: expected at most {} merges, one for each way to split a token in two, found more";

class TokenizerJsonParser final : public base::JsonSax {
 public:
  /// merges_alone: everything else is in `out` already.
  TokenizerJsonParser(TokenizerJson& out, bool root_is_vocabulary, bool merges_alone, const std::string& where)
      : JsonSax(where), out_(out), root_is_vocabulary_(root_is_vocabulary), merges_alone_(merges_alone) {}

  bool null() override { return value({}); }
  bool boolean(bool v) override { return value(v); }
  bool number_integer(number_integer_t v) override { return integer(v); }
  bool number_unsigned(number_unsigned_t v) override {
    return integer(v > static_cast<number_unsigned_t>(std::numeric_limits<int64_t>::max()) ? -1
                                                                                           : static_cast<int64_t>(v));
  }
  bool number_float(number_float_t v, const string_t&) override {
    if (!is_long()) return value(v);
    if (list_ != List::pairs || items_ != 1) unexpected("a fraction");
    out_.scores.push_back(v);
    ++items_;
    return true;
  }

  bool string(string_t& text) override {
    switch (list_) {
      case List::none:
      case List::added:
      case List::skipped:
        return value(std::move(text));
      case List::pairs:
        if (depth_in_list_ != 1 || items_ != 0) unexpected("a string");
        out_.tokens.push_back(text);
        break;
      case List::merges:
        if (depth_in_list_ == 0) {
          add_merge(text);
          return true;
        }
        if (items_ > 1) unexpected("a third token");
        if (items_ == 0) {
          add_left(text);
        } else {
          out_.right.push_back(text);
        }
        break;
      case List::tokens:
        unexpected("a string");
    }
    ++items_;
    return true;
  }

  bool key(string_t& name) override {
    if (list_ == List::tokens) {
      out_.tokens.push_back(name);
    } else if (list_ == List::added) {
      base::require(token_keys_.size() < kMaxAddedKeys, "{}: more than {} keys", token_where(), kMaxAddedKeys);
      base::require(std::find(token_keys_.begin(), token_keys_.end(), name) == token_keys_.end(),
                    "{}: the key {} appears twice", token_where(), base::in_quotes(name));
      token_keys_.push_back(std::move(name));
    } else if (list_ == List::none) {
      base::require(open_.back().size() < kMaxKeys, "{}: an object of more than {} keys", where_, kMaxKeys);
      base::require(!open_.back().contains(name), "{}: the key {} appears twice", where_, base::in_quotes(name));
      keys_.back() = std::move(name);
    }
    return true;
  }

  bool start_object(size_t) override {
    if (list_ == List::skipped) return deeper();
    if (list_ == List::added && depth_in_list_ == 0) return start_token();
    if (list_ != List::none) unexpected("an object");
    if (root_is_vocabulary_ || is_long_list("vocab")) return start_list(List::tokens);
    return open(base::Node::table());
  }
  bool end_object() override {
    if (list_ == List::added) return end_token();
    if (list_ == List::skipped) return leave();
    return list_ == List::tokens ? end_list() : close();
  }

  bool start_array(size_t) override {
    if (list_ == List::skipped) return deeper();
    if (list_ == List::none && is_long_list("vocab")) return start_list(List::pairs);
    if (list_ == List::none && is_long_list("merges")) return start_merges();
    if (list_ == List::none && keys_.size() == 1 && keys_[0] == "added_tokens") return start_list(List::added);
    if (list_ == List::none && !root_is_vocabulary_) return open(base::Node::array());
    if ((list_ != List::pairs && list_ != List::merges) || depth_in_list_ > 0) unexpected("an array");
    items_ = 0;
    return deeper();
  }
  bool end_array() override {
    if (list_ == List::none) return close();
    if (list_ == List::skipped) return leave();
    if (depth_in_list_ == 0) return end_list();
    if (items_ != 2) unexpected("an array of another length than 2");
    --depth_in_list_;
    return true;
  }

  base::Node take() { return std::move(root_); }
  /// Whether merges stand before the vocabulary, which limits their number.
  bool skipped_merges() const { return skipped_merges_; }

 private:
  enum class List { none, tokens, pairs, merges, added, skipped };

  bool is_long() const { return list_ == List::tokens || list_ == List::pairs || list_ == List::merges; }

  /// Whether the value that begins is model.NAME.
  bool is_long_list(std::string_view name) const {
    return keys_.size() == 2 && keys_[0] == "model" && keys_[1] == name && open_[1].is_table();
  }

  bool start_list(List list) {
    const std::string path = fmt::format("{}", fmt::join(keys_, "."));
    base::require(lists_.insert(path).second, "{}: the key {} appears twice", where_, base::in_quotes(path));
    list_ = merges_alone_ && list != List::merges ? List::skipped : list;
    depth_in_list_ = 0;
    return true;
  }
  bool start_merges() {
    skipped_merges_ = out_.tokens.size() == 0 && !merges_alone_;
    max_merges_ = count_splits(out_.tokens) + count_splits(out_.added.texts);
    return start_list(skipped_merges_ ? List::skipped : List::merges);
  }
  bool deeper() {
    ++depth_in_list_;
    return true;
  }
  bool leave() { return depth_in_list_ == 0 ? end_list() : depth_in_list_-- > 0; }
  bool end_list() {
    list_ = List::none;
    return true;
  }

  bool integer(int64_t v) {
    if (!is_long()) return value(v);
    if (list_ == List::tokens) {
      out_.ids.push_back(v);
    } else if (list_ == List::pairs && items_ == 1) {
      out_.scores.push_back(static_cast<double>(v));
      ++items_;
    } else {
      unexpected("a number");
    }
    return true;
  }

  void add_merge(std::string_view text) {
    const size_t space = text.find(' ');
    base::require(space != std::string_view::npos && space > 0 && space + 1 < text.size() &&
                      text.find(' ', space + 1) == std::string_view::npos,
                  "{}: merge {}: expected two tokens and a space between them, found {}", where_, out_.left.size(),
                  base::in_quotes(text));
    add_left(text.substr(0, space));
    out_.right.push_back(text.substr(space + 1));
  }
  void add_left(std::string_view text) {
    base::require(out_.left.size() < max_merges_, fmt::runtime(kTooManyMerges), where_, out_.left.size(), max_merges_);
    out_.left.push_back(text);
  }

  std::string token_where() const { return fmt::format("{}.added_tokens[{}]", where_, out_.added.size()); }

  bool start_token() {
    token_ = {};
    token_keys_.clear();
    return deeper();
  }
  bool end_token() {
    base::require(token_.id >= 0 && !token_.text.empty(), "{}: expected an id and a content", token_where());
    out_.added.add(token_.id, token_.text, token_.rule);
    --depth_in_list_;
    return true;
  }
  bool token_value(base::Node node) {
    if (depth_in_list_ == 0) unexpected(node.found());
    const std::string& name = token_keys_.back();
    const auto expect = [&](bool good, std::string_view what) {
      base::require(good, "{}.{}: expected {}, found {}", token_where(), name, what, node.found());
    };
    if (node.is_null()) return true;
    if (name == "id") {
      expect(node.is_int(), "a whole number");
      token_.id = node.as_int();
    } else if (name == "content") {
      expect(node.is_string(), "a string");
      token_.text = node.as_string();
    } else if (bool* flag = token_.rule.find(name); flag != nullptr) {
      expect(node.is_bool(), "true or false");
      *flag = node.as_bool();
    }
    return true;
  }

  bool value(base::Node node) {
    if (list_ == List::skipped || (merges_alone_ && list_ == List::none)) return true;
    if (list_ == List::added) return token_value(std::move(node));
    if (list_ != List::none || root_is_vocabulary_) unexpected(node.found());
    base::require(++values_ <= kMaxValues, "{}: more than {} values", where_, kMaxValues);
    if (open_.empty()) {
      root_ = std::move(node);
    } else if (open_.back().is_table()) {
      open_.back().set(keys_.back(), std::move(node));
    } else {
      open_.back().push_back(std::move(node));
    }
    return true;
  }

  bool open(base::Node node) {
    base::require(open_.size() < kMaxDepth, "{}: nested more than {} deep", where_, kMaxDepth);
    open_.push_back(std::move(node));
    keys_.emplace_back();
    return true;
  }

  bool close() {
    base::Node done = std::move(open_.back());
    open_.pop_back();
    keys_.pop_back();
    return value(std::move(done));
  }

  [[noreturn]] void unexpected(std::string_view found) const {
    std::string_view expected = "an object of tokens and ids";
    auto entry = static_cast<size_t>(out_.tokens.size());
    if (list_ == List::tokens) expected = "an id for every token";
    if (list_ == List::pairs) expected = "pairs of a piece and its score";
    if (list_ == List::merges) {
      expected = "merges of two tokens";
      entry = static_cast<size_t>(out_.left.size());
    } else if (list_ == List::added) {
      expected = "added tokens, objects of an id and a content";
      entry = out_.added.size();
    }
    base::input_error("{}: expected {}, found {} (entry {})", where_, expected, found, entry);
  }

  TokenizerJson& out_;
  const bool root_is_vocabulary_, merges_alone_;
  base::Node root_;
  std::vector<base::Node> open_;   // the tables and arrays around the next value
  std::vector<std::string> keys_;  // the last key of each of these
  std::set<std::string> lists_;    // the paths of the long ones that have begun
  List list_ = List::none;
  int depth_in_list_ = 0, items_ = 0;
  size_t values_ = 0;
  bool skipped_merges_ = false;
  int64_t max_merges_ = 0;
  struct {
    int64_t id = -1;
    std::string text = {};
    AddedTokenRule rule = {};
  } token_;  // of added_tokens
  std::vector<std::string> token_keys_;
};

TokenizerJson parse(std::string_view text, bool root_is_vocabulary, const std::string& where) {
  TokenizerJson out;
  TokenizerJsonParser parser(out, root_is_vocabulary, false, where);
  nlohmann::json::sax_parse(text.begin(), text.end(), &parser);
  out.rest = parser.take();
  if (parser.skipped_merges()) {
    TokenizerJsonParser merges(out, root_is_vocabulary, true, where);
    nlohmann::json::sax_parse(text.begin(), text.end(), &merges);
  }
  return out;
}

}  // namespace

TokenizerJson parse_tokenizer_json(std::string_view text, const std::string& where) {
  TokenizerJson out = parse(text, false, where);
  base::require(out.rest.is_table(), "{}: expected an object, found {}", where, out.rest.found());
  return out;
}

TokenizerJson parse_vocab_json(std::string_view text, const std::string& where) { return parse(text, true, where); }

EntryList tokens_by_id(const EntryList& tokens, const std::vector<int64_t>& ids, const std::string& where) {
  const int64_t count = tokens.size();
  base::require(static_cast<int64_t>(ids.size()) == count,
                "{}: expected a vocabulary with an id for every token, found {} ids of {} tokens", where, ids.size(),
                count);
  std::vector<int32_t> place(ids.size(), -1);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t id = ids[static_cast<size_t>(i)];
    base::require(id >= 0 && id < count, "{}: token {}: expected an id from 0 to {}, one for each token, found {}",
                  where, base::in_quotes(tokens[i]), count - 1, id);
    int32_t& at = place[static_cast<size_t>(id)];
    base::require(at < 0, "{}: tokens {} and {} have the same id {}", where, base::in_quotes(tokens[std::max(at, 0)]),
                  base::in_quotes(tokens[i]), id);
    at = static_cast<int32_t>(i);
  }
  EntryList out;
  for (const int32_t at : place) out.push_back(tokens[at]);
  return out;
}

int64_t count_splits(const EntryList& tokens) {
  int64_t splits = 0;
  for (int64_t id = 0; id < tokens.size(); ++id) splits += std::max<int64_t>(0, base::count_characters(tokens[id]) - 1);
  return splits;
}

void read_merges(std::string_view text, const std::string& where, const EntryList& tokens, EntryList& left,
                 EntryList& right) {
  const int64_t most = count_splits(tokens);
  for (int64_t line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view merge = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (merge.ends_with('\r')) merge.remove_suffix(1);
    if (merge.empty() || (line == 1 && merge.starts_with("#version"))) continue;
    const size_t space = merge.find(' ');
    base::require(space != std::string_view::npos && space > 0 && space + 1 < merge.size() &&
                      merge.find(' ', space + 1) == std::string_view::npos,
                  "{}:{}: expected two tokens and a space between them, found {}", where, line, base::in_quotes(merge));
    base::require(left.size() < most, fmt::runtime(kTooManyMerges), where, left.size(), most);
    left.push_back(merge.substr(0, space));
    right.push_back(merge.substr(space + 1));
  }
}

}  // namespace mnemo::text
