#include "text/tokenizer_config.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/printable.h"

namespace mnemo::text {
namespace {

constexpr size_t kMaxLevels = 32, kMaxSettings = 8192;

class SettingsParser final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit SettingsParser(const std::string& where) : where_(where) {}

  bool null() override { return value({}); }
  bool boolean(bool v) override { return value(v); }
  bool number_integer(number_integer_t v) override { return value(v); }
  bool number_unsigned(number_unsigned_t v) override {
    const bool fits = v <= static_cast<number_unsigned_t>(std::numeric_limits<int64_t>::max());
    return value(fits ? base::Node(static_cast<int64_t>(v)) : base::Node(static_cast<double>(v)));
  }
  bool number_float(number_float_t v, const string_t&) override { return value(v); }
  bool string(string_t& v) override { return value(std::move(v)); }
  bool binary(binary_t&) override { return false; }

  bool key(string_t& name) override {
    if (depth_ == 1) key_ = std::move(name);
    return true;
  }
  bool start_object(size_t) override { return deeper(); }
  bool start_array(size_t) override {
    base::require(depth_ > 0, "{}: expected an object, found an array", where_);
    return deeper();
  }
  bool end_object() override { return depth_-- > 0; }
  bool end_array() override { return depth_-- > 0; }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    base::input_error("{}: broken JSON at byte {}: {}", where_, position, base::printable(e.what(), 200));
  }

  base::Node take() { return std::move(settings_); }

 private:
  bool deeper() {
    base::require(++depth_ <= kMaxLevels, "{}: nested more than {} deep", where_, kMaxLevels);
    return true;
  }

  bool value(base::Node node) {
    base::require(depth_ > 0, "{}: expected an object, found {}", where_, node.found());
    if (depth_ > 1) return true;
    base::require(settings_.size() < kMaxSettings, "{}: more than {} settings", where_, kMaxSettings);
    base::require(settings_.find(key_) == nullptr, "{}: the key {} appears twice", where_, base::in_quotes(key_));
    settings_.set(key_, std::move(node));
    return true;
  }

  const std::string& where_;
  base::Node settings_ = base::Node::table();
  std::string key_;
  size_t depth_ = 0;
};

}  // namespace

base::Node parse_tokenizer_config(std::string_view text, const std::string& where) {
  SettingsParser parser(where);
  nlohmann::json::sax_parse(text.begin(), text.end(), &parser);
  return parser.take();
}

}  // namespace mnemo::text
