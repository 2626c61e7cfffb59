#include "data/answers/listops.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/printable.h"
#include "data/answers/words.h"

namespace mnemo::data {
namespace {

constexpr std::array<std::string_view, kListOpsVocabulary> kWords = {
    "<pad>", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "[MIN", "[MAX", "[MED", "[SM", "X", "<unk>"};

bool is_operator(uint8_t token) { return token >= kMin && token <= kSum; }
bool is_digit(uint8_t token) { return token >= kZero && token < kMin; }

/// Applies an operator to its arguments, which it may reorder.
int64_t list_value(uint8_t token, std::span<int64_t> arguments) {
  if (token == kMin) return *std::min_element(arguments.begin(), arguments.end());
  if (token == kMax) return *std::max_element(arguments.begin(), arguments.end());
  if (token == kSum) {
    int64_t sum = 0;
    for (const int64_t value : arguments) sum += value;
    return sum % 10;
  }
  std::sort(arguments.begin(), arguments.end());
  const size_t middle = arguments.size() / 2;
  return arguments.size() % 2 == 1 ? arguments[middle] : (arguments[middle - 1] + arguments[middle]) / 2;
}

/// Parses an expression word by word, without recursion: a line may be nested as deep as it is long.
class Parser {
 public:
  Parser(const LinePlace& place, int64_t column) : place_(place), column_(column) {}

  ListOpsExpression read(std::string_view text) {
    each_word(text, [this](std::string_view word, int64_t at) {
      here_ = column_ + at;
      put(word);
    });
    here_ = column_ + static_cast<int64_t>(text.size());
    if (items_.empty()) fail("an expression", "nothing");
    if (items_.size() > 1 || items_.front().kind != Kind::value) fail("the expression to go on", "its end");
    result_.value = items_.front().value;
    return std::move(result_);
  }

 private:
  /// An element on the stack: an open parenthesis, an operator with the arguments so far (starting at `first` in
  /// values_), a value, or "]".
  enum class Kind { open, function, value, close };
  struct Item {
    Kind kind;
    uint8_t token = 0;
    size_t first = 0;
    int64_t value = 0;
  };

  [[noreturn]] void fail(std::string_view expected, std::string_view found) const {
    base::input_error("{}: expected {}, found {}", place_.at(here_), expected, found);
  }

  void put(std::string_view word) {
    const std::string found = "'" + base::printable(word, 40) + "'";
    if (!items_.empty() && items_.front().kind != Kind::open) fail("the line's end", found);
    if (word == ")") return close(found);
    // Only the form "( X Y )" exists: at most two elements after an open parenthesis.
    if (!open_.empty() && behind_open() >= 2) fail("')'", found);
    if (word == "(") {
      open_.push_back(items_.size());
      items_.push_back({Kind::open});
      return;
    }
    const auto known = std::find(kWords.begin() + kZero, kWords.begin() + kClose,
                                 word);  // "]" must not be written as the model's X
    const auto token = static_cast<uint8_t>(known - kWords.begin());
    if (token == kClose && word != "]") fail("'(', ')', a digit, '[MIN', '[MAX', '[MED', '[SM' or ']'", found);
    const bool first = open_.empty() || behind_open() == 0;
    if (is_operator(token) && (open_.empty() || !first))
      fail(open_.empty() ? "'(' or a digit" : "an argument or ']'", found);
    if (token == kClose && first) fail("'(', an operator or a digit", found);
    result_.tokens.push_back(token);
    if (is_operator(token)) {
      items_.push_back({Kind::function, token, values_.size()});
    } else if (token == kClose) {
      items_.push_back({Kind::close});
    } else {
      items_.push_back({Kind::value, token, 0, token - kZero});
    }
  }

  size_t behind_open() const { return items_.size() - open_.back() - 1; }

  /// Handles ")": the operator on the left takes the element on the right as an argument, or is complete.
  void close(const std::string& found) {
    if (open_.empty()) fail("'(' or a digit", found);
    if (behind_open() < 2) fail(behind_open() == 0 ? "'(', an operator or a digit" : "an argument or ']'", found);
    Item left = items_[items_.size() - 2];
    const Item right = items_.back();
    if (left.kind != Kind::function) fail("an operator on the left of what ends here", found);
    if (right.kind == Kind::function) fail("']' before an operator with its arguments ends", found);
    if (right.kind == Kind::close) {
      if (values_.size() == left.first) fail("an operator with an argument at least", found);
      left = {Kind::value, 0, 0, list_value(left.token, std::span(values_).subspan(left.first))};
      values_.resize(items_[items_.size() - 2].first);
    } else {
      values_.push_back(right.value);
    }
    items_.resize(open_.back());
    open_.pop_back();
    items_.push_back(left);
  }

  const LinePlace& place_;
  int64_t column_, here_ = 0;
  ListOpsExpression result_;
  std::vector<Item> items_;
  std::vector<size_t> open_;     // indices of the open parentheses in items_
  std::vector<int64_t> values_;  // arguments of the operators on the stack; those of the innermost one are last
};

/// Draws a tree from the root, with its tokens in order. Stops if there are too many.
class Drawing {
 public:
  Drawing(const ListOpsShape& shape, base::Random& random) : shape_(shape), random_(random) {}

  /// The value of a node; false if the expression has become too long.
  bool draw(int64_t depth, int64_t& value) {
    if (static_cast<int64_t>(tokens.size()) >= shape_.max_length) return false;
    if (depth >= shape_.max_depth || random_.below(4) != 0) {
      value = static_cast<int64_t>(random_.below(10));
      tokens.push_back(static_cast<uint8_t>(kZero + value));
      return true;
    }
    const size_t own = tokens.size();
    tokens.push_back(kMin);
    std::vector<int64_t> arguments(2 + random_.below(static_cast<uint64_t>(shape_.max_args - 1)));
    for (int64_t& argument : arguments) {
      if (!draw(depth + 1, argument)) return false;
    }
    tokens[own] = static_cast<uint8_t>(kMin + random_.below(4));
    tokens.push_back(kClose);
    value = list_value(tokens[own], arguments);
    return true;
  }

  std::vector<uint8_t> tokens;

 private:
  const ListOpsShape& shape_;
  base::Random& random_;
};

}  // namespace

ListOpsExpression parse_listops(std::string_view text, const LinePlace& place, int64_t column) {
  return Parser(place, column).read(text);
}

ListOpsExpression parse_listops_line(std::string_view line, const LinePlace& place, bool value_first) {
  const size_t tab = line.find('\t');
  const char* columns = value_first ? "value and expression" : "Source (an expression) and Target (its value)";
  base::require(tab != std::string_view::npos, "{}: expected two columns with a tab between, {}, found one",
                place.at(static_cast<int64_t>(line.size()) + 1), columns);
  const std::string_view left = line.substr(0, tab), right = line.substr(tab + 1);
  const size_t third = right.find('\t');
  base::require(third == std::string_view::npos, "{}: expected two columns, {}, found more",
                place.at(static_cast<int64_t>(tab + third) + 2), columns);
  const std::string_view value = value_first ? left : right;
  const int64_t value_column = value_first ? 1 : static_cast<int64_t>(tab) + 2;
  base::require(value.size() == 1 && value[0] >= '0' && value[0] <= '9', "{}: expected a value from 0 to 9, found '{}'",
                place.at(value_column), base::printable(value, 40));
  ListOpsExpression expression = value_first ? parse_listops(right, place, static_cast<int64_t>(tab) + 2)
                                             : parse_listops(left, place);
  base::require(expression.value == value[0] - '0', "{}: expected the expression's value, {}, found {}",
                place.at(value_column), expression.value, value);
  return expression;
}

std::string listops_text(std::span<const uint8_t> tokens) {
  // Number of arguments of each operator, by its index: this many parentheses are opened before it, plus one.
  std::vector<int64_t> arguments(tokens.size(), 0);
  std::vector<size_t> open;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] == kClose) {
      base::ensure(!open.empty(), "an expression closes what is not open");
      open.pop_back();
    } else {
      base::ensure(is_operator(tokens[i]) || is_digit(tokens[i]), "token {} in an expression", tokens[i]);
      if (!open.empty()) ++arguments[open.back()];
      if (is_operator(tokens[i])) open.push_back(i);
    }
  }
  base::ensure(open.empty() && !tokens.empty(), "an expression that is not closed");
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (is_operator(tokens[i])) {
      for (int64_t k = 0; k <= arguments[i]; ++k) text += "( ";
      open.push_back(i);
    }
    text += tokens[i] == kClose ? "]" : kWords[tokens[i]];
    if (tokens[i] == kClose) {
      text += " )";
      open.pop_back();
    }
    // A digit or a complete list is an argument of the enclosing list.
    if (!is_operator(tokens[i]) && !open.empty()) text += " )";
    if (i + 1 < tokens.size()) text += ' ';
  }
  return text;
}

std::optional<ListOpsExpression> draw_listops(const ListOpsShape& shape, base::Random& random) {
  Drawing drawing(shape, random);
  int64_t value = 0;
  if (!drawing.draw(1, value)) return std::nullopt;
  const auto length = static_cast<int64_t>(drawing.tokens.size());
  if (length <= shape.min_length || length >= shape.max_length) return std::nullopt;
  return ListOpsExpression{std::move(drawing.tokens), value};
}

}  // namespace mnemo::data
