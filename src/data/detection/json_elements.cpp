#include "data/detection/json_elements.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/json_value.h"
#include "base/printable.h"

namespace mnemo::data {
namespace {

constexpr size_t kMaxParserMessage = 200, kMaxElementDepth = 16, kMaxKeys = 256;

class ElementReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  ElementReader(const std::string& file, std::span<const std::string_view> lists, const TakeElement& take)
      : file_(file), lists_(lists), take_(take), is_list_(lists.size() == 1 && lists[0].empty()) {}

  bool null() override { return scalar(base::Node()); }
  bool boolean(bool value) override { return scalar(base::Node(value)); }
  bool number_integer(number_integer_t value) override { return scalar(base::Node(int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<number_unsigned_t>(INT64_MAX)) fail("integer {} does not fit in 64 bits", value);
    return scalar(base::Node(static_cast<int64_t>(value)));
  }
  bool number_float(number_float_t value, const string_t& digits) override {
    if (digits.find_first_of(".eE") == std::string::npos)
      fail("integer {} does not fit in 64 bits", base::printable(digits, kMaxParserMessage));
    return scalar(base::Node(value));
  }
  bool string(string_t& value) override { return scalar(base::Node(std::move(value))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(base::Node::table()); }
  bool start_array(size_t) override { return open(base::Node::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    if (!stack_.empty() && stack_.back()->size() >= kMaxKeys) fail("a table of more than {} keys", kMaxKeys);
    if (!stack_.empty() && stack_.back()->contains(name)) fail("duplicate key {}", base::in_quotes(name, '\''));
    key_ = std::move(name);
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& error) override {
    fail("byte {}: {}", position, base::printable(base::json_parser_words(error.what()), kMaxParserMessage));
  }

  void require_all_lists() const {
    for (const std::string_view name : lists_)
      base::require(seen_.contains(std::string(name)), "{}: expected the key '{}', found none", file_, name);
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    base::input_error("{}: {}", where(), fmt::format(format, std::forward<Args>(args)...));
  }
  std::string where() const {
    if (!in_list_) return file_;
    const base::Node* id = stack_.empty() ? nullptr : element_.find("id");
    return fmt::format("{}: {}[{}]{}", file_, list_, index_,
                       id != nullptr && id->is_int() ? fmt::format(" (id {})", id->as_int()) : "");
  }
  int64_t list_depth() const { return is_list_ ? 1 : 2; }
  bool wanted(const std::string& name) const { return std::find(lists_.begin(), lists_.end(), name) != lists_.end(); }

  base::Node& add(base::Node node) {
    if (++values_ > kMaxElementValues) fail("more than {} values", kMaxElementValues);
    base::Node& parent = *stack_.back();
    if (parent.is_array()) return parent.push_back(std::move(node));
    return parent.members().emplace_back(base::Node::Member{std::move(key_), std::move(node)}).value;
  }

  bool scalar(base::Node node) {
    if (!stack_.empty()) {
      add(std::move(node));
      return true;
    }
    outside(node);
    return true;
  }
  /// A value that is not inside of an element.
  void outside(const base::Node& node) const {
    if (depth_ == 0) fail("expected a {}, found {}", is_list_ ? "list" : "table", node.found());
    if (in_list_) fail("expected a table, found {}", node.found());
    if (depth_ == 1 && !is_list_ && wanted(key_)) fail("'{}': expected a list, found {}", key_, node.found());
  }

  bool open(base::Node node) {
    if (!stack_.empty()) {
      if (stack_.size() >= kMaxElementDepth) fail("nested deeper than {} levels", kMaxElementDepth);
      stack_.push_back(&add(std::move(node)));
    } else if (in_list_ && depth_ == list_depth() && node.is_table()) {
      element_ = std::move(node);
      stack_.push_back(&element_);
      values_ = 0;
    } else if (!in_list_ && node.is_array() && depth_ + 1 == list_depth() && (is_list_ || wanted(key_))) {
      list_ = is_list_ ? std::string() : key_;
      if (!seen_.insert(list_).second) fail("duplicate key {}", base::in_quotes(list_, '\''));
      in_list_ = true;
      index_ = 0;
    } else if (depth_ > 0 || node.is_table() == is_list_) {
      outside(node);
    }
    ++depth_;
    return true;
  }

  bool close() {
    --depth_;
    if (!stack_.empty()) {
      if (stack_.size() > 1) {
        stack_.pop_back();
        return true;
      }
      const std::string place = where();
      stack_.pop_back();
      take_(list_, std::move(element_), place);
      ++index_;
    } else if (in_list_ && depth_ + 1 == list_depth()) {
      in_list_ = false;
    }
    return true;
  }

  const std::string& file_;
  std::span<const std::string_view> lists_;
  const TakeElement& take_;
  bool is_list_, in_list_ = false;
  std::string key_, list_;
  std::set<std::string> seen_;
  int64_t depth_ = 0, index_ = 0, values_ = 0;
  base::Node element_;
  // The pointers stay valid: an open node gains a child only after the last one is closed.
  std::vector<base::Node*> stack_;
};

}  // namespace

void read_json_elements(std::string_view text, const std::string& file, std::span<const std::string_view> lists,
                        const TakeElement& take) {
  ElementReader reader(file, lists, take);
  try {
    nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  } catch (const nlohmann::json::exception& error) {
    base::input_error("{}: {}", file, base::printable(base::json_parser_words(error.what()), kMaxParserMessage));
  }
  reader.require_all_lists();
}

const base::Node& JsonElement::at(std::string_view key) const {
  const base::Node* found = node_.find(key);
  base::require(found != nullptr, "{}: expected the key '{}', found none", where_, key);
  return *found;
}

int64_t JsonElement::integer(std::string_view key) const {
  const base::Node& value = at(key);
  base::require(value.is_int(), "{}: '{}': expected an integer, found {}", where_, key, value.found());
  return value.as_int();
}

double JsonElement::number(std::string_view key) const {
  const base::Node& value = at(key);
  base::require(value.is_int() || value.is_real(), "{}: '{}': expected a number, found {}", where_, key, value.found());
  return value.as_double();
}

const std::string& JsonElement::text(std::string_view key) const {
  const base::Node& value = at(key);
  base::require(value.is_string(), "{}: '{}': expected a string, found {}", where_, key, value.found());
  return value.as_string();
}

std::vector<double> JsonElement::numbers(const base::Node& list, std::string_view key) const {
  base::require(list.is_array(), "{}: '{}': expected a list of numbers, found {}", where_, key, list.found());
  std::vector<double> out;
  for (const base::Node& item : list.items()) {
    base::require(item.is_int() || item.is_real(), "{}: '{}': expected numbers, found {}", where_, key, item.found());
    out.push_back(item.as_double());
  }
  return out;
}

}  // namespace mnemo::data
