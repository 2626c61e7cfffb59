#include "base/glob.h"

#include <algorithm>

namespace mnemo::base {

bool matches(std::string_view pattern, std::string_view name) {
  // The position after the last `*`, and the end of what it has matched, which grows by one character per mismatch.
  size_t p = 0, n = 0, star = std::string_view::npos, given = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = ++p;
      given = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p, ++n;
    } else if (star != std::string_view::npos) {
      p = star;
      n = ++given;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool matches_any(const std::vector<std::string>& patterns, std::string_view name) {
  return std::ranges::any_of(patterns, [&](const std::string& pattern) { return matches(pattern, name); });
}

}  // namespace mnemo::base
