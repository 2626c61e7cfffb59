#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/node.h"

namespace mnemo::data {

/// Values in one element of a list, so that a file takes no more memory than its size plus 32 MB.
inline constexpr int64_t kMaxElementValues = int64_t{1} << 18;

/// Receives one element. `where`: "FILE: annotations[3] (id 17)".
using TakeElement = std::function<void(std::string_view list, base::Node element, const std::string& where)>;

/// Reads JSON whose lists are too long for a tree: the tables in the lists under these top-level keys, one at a time;
/// the name "" means that the text is such a list itself. Everything else in the text is skipped. Throws InputError
/// with the file and the element for broken JSON, lists of something else, a list twice, a duplicate key, an integer
/// beyond 64 bits, or an element of more than kMaxElementValues values.
void read_json_elements(std::string_view text, const std::string& file, std::span<const std::string_view> lists,
                        const TakeElement& take);

/// One element, with errors that name it. Every getter throws InputError for a missing key or another type.
class JsonElement {
 public:
  JsonElement(const base::Node& node, const std::string& where) : node_(node), where_(where) {}
  const std::string& where() const { return where_; }
  bool has(std::string_view key) const { return node_.contains(key); }
  const base::Node& at(std::string_view key) const;
  int64_t integer(std::string_view key) const;
  double number(std::string_view key) const;  ///< finite
  const std::string& text(std::string_view key) const;
  /// A list of finite numbers; `key` is for messages.
  std::vector<double> numbers(const base::Node& list, std::string_view key) const;

 private:
  const base::Node& node_;
  const std::string& where_;
};

}  // namespace mnemo::data
