#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>
#include <unordered_set>

#include "base/json_value.h"
#include "base/node.h"
#include "base/printable.h"

namespace mnemo::base {
namespace {

constexpr size_t kMaxMessage = 200;

/// Counts the characters that the parser has read, because its callbacks do not report positions.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char* begin, size_t* consumed) : at_(at), begin_(begin), consumed_(consumed) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    ++at_;
    *consumed_ = static_cast<size_t>(at_ - begin_);
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator old = *this;
    ++*this;
    return old;
  }
  friend bool operator==(const CountingIterator& a, const CountingIterator& b) { return a.at_ == b.at_; }

 private:
  const char* at_;
  const char* begin_;
  size_t* consumed_;
};

/// Builds the tree with an explicit stack; nlohmann's parser does not recurse either, so depth uses no call stack.
class Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(std::string_view text, const std::string& file, const ReadLimits& limits, const size_t& consumed,
          int64_t first_line)
      : text_(text),
        limits_(limits),
        consumed_(consumed),
        source_(std::make_shared<const std::string>(file)),
        line_(static_cast<int32_t>(first_line)) {}

  Node take() { return std::move(root_); }

  bool null() override { return scalar(Node()); }
  bool boolean(bool value) override { return scalar(Node(value)); }
  bool number_integer(number_integer_t value) override { return scalar(Node(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<number_unsigned_t>(INT64_MAX)) {
      advance();
      fail("integer {} does not fit in 64 bits", value);
    }
    return scalar(Node(static_cast<int64_t>(value)));
  }
  bool number_float(number_float_t value, const string_t& digits) override {
    if (digits.find_first_of(".eE") == std::string::npos) {
      advance();
      fail("integer {} does not fit in 64 bits", printable(digits));
    }
    return scalar(Node(value));
  }
  bool string(string_t& value) override { return scalar(Node(std::move(value))); }
  bool binary(binary_t&) override { return false; }

  bool start_object(size_t) override { return open(Node::table()); }
  bool start_array(size_t) override { return open(Node::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    advance();
    if (!open_.back().keys.insert(name).second) fail("duplicate key {}", in_quotes(name, '\''));
    key_ = std::move(name);
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& error) override {
    // The parser points at the last character it read, which may already be the line break.
    move_to(consumed_ == 0 ? 0 : consumed_ - 1);
    fail("{}", printable(json_parser_words(error.what()), kMaxMessage));
  }

 private:
  struct Open {
    Node* node;
    std::unordered_set<std::string> keys;
  };

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
    input_error("{}: {}", place().text(), fmt::format(format, std::forward<Args>(args)...));
  }

  Place place() const { return {source_, line_, static_cast<int32_t>(position_ - line_start_ + 1)}; }

  void move_to(size_t position) {
    for (; position_ < position; ++position_) {
      if (text_[position_] == '\n') {
        ++line_;
        line_start_ = position_ + 1;
      }
    }
  }

  /// Moves to the start of the token just read: the first character after the previous token that can start one. (For
  /// numbers, the parser reads one character too many. That can only be a separator or a closing bracket, whose
  /// position is not kept.)
  void advance() {
    size_t start = previous_end_;
    while (start < text_.size() && std::string_view(" \t\r\n,:").find(text_[start]) != std::string_view::npos) ++start;
    move_to(start);
    previous_end_ = std::max(start, consumed_);
  }

  Node& add(Node node) {
    if (++values_ > limits_.max_values) fail("more than {} values", limits_.max_values);
    node.set_place(place());
    if (open_.empty()) return root_ = std::move(node);
    Node& parent = *open_.back().node;
    if (parent.is_array()) return parent.push_back(std::move(node));
    return parent.members().emplace_back(Node::Member{std::move(key_), std::move(node)}).value;
  }

  bool scalar(Node node) {
    advance();
    add(std::move(node));
    return true;
  }

  bool open(Node node) {
    advance();
    if (open_.size() >= static_cast<size_t>(limits_.max_depth)) fail("nested deeper than {} levels", limits_.max_depth);
    Node& added = add(std::move(node));
    open_.push_back({&added, {}});
    return true;
  }

  bool close() {
    advance();
    open_.pop_back();
    return true;
  }

  std::string_view text_;
  const ReadLimits& limits_;
  const size_t& consumed_;
  std::shared_ptr<const std::string> source_;
  Node root_;
  // The pointers stay valid: an open node is not moved, because its parent gains no other child meanwhile.
  std::vector<Open> open_;
  std::string key_;
  int64_t values_ = 0;
  size_t previous_end_ = 0;
  size_t position_ = 0;
  size_t line_start_ = 0;
  int32_t line_;
};

}  // namespace

Node parse_json(std::string_view text, const std::string& file, const ReadLimits& limits, int64_t first_line) {
  require(text.size() <= limits.max_bytes, "{}: {} bytes, the limit is {}", file, text.size(), limits.max_bytes);
  size_t consumed = 0;
  Builder builder(text, file, limits, consumed, first_line);
  const char* begin = text.data();
  const char* end = begin + text.size();
  try {
    nlohmann::json::sax_parse(CountingIterator(begin, begin, &consumed), CountingIterator(end, begin, &consumed),
                              &builder);
  } catch (const nlohmann::json::exception& error) {
    input_error("{}: {}", file, error.what());
  }
  return builder.take();
}

}  // namespace mnemo::base
