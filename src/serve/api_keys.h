#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mnemo::serve {

/// The keys of `--api-key-file`: one a line; blank lines, lines that begin with # and a byte order mark do not count.
class ApiKeys {
 public:
  ApiKeys() = default;
  /// Throws InputError naming the file if it has no key, or one of fewer than 16 characters.
  explicit ApiKeys(const std::string& file);
  bool required() const { return !keys_.empty(); }
  size_t size() const { return keys_.size(); }
  /// The number of the key in "Bearer KEY", with the first word in any case; nothing if it is none of them. The time
  /// does not tell how much of a key is right.
  std::optional<size_t> find(std::string_view authorization) const;

 private:
  std::vector<std::string> keys_;
};

}  // namespace mnemo::serve
