#include "serve/api_keys.h"

#include <sstream>

#include "base/ascii.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/file_io.h"
#include "base/utf8.h"

namespace mnemo::serve {
namespace {

std::string digest(std::string_view text) {
  base::Sha256 hash;
  hash.update(text);
  return hash.hex();
}

/// Compares digests, all of each, so the time says nothing of the keys.
bool same(const std::string& a, const std::string& b) {
  unsigned char differs = 0;
  for (size_t i = 0; i < a.size(); ++i) differs |= static_cast<unsigned char>(a[i] ^ b[i]);
  return differs == 0;
}

}  // namespace

ApiKeys::ApiKeys(const std::string& file) {
  std::string text = base::read_file(file, uint64_t{1} << 20);
  if (text.starts_with(base::kByteOrderMark)) text.erase(0, base::kByteOrderMark.size());
  std::istringstream lines(std::move(text));
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (line.empty() || line.front() == '#') continue;
    base::require(line.size() >= 16, "{}: expected keys of 16 characters or more, found one of {}", file, line.size());
    keys_.push_back(digest(line));
  }
  base::require(!keys_.empty(), "{}: expected at least one key, each on a line of its own, found none", file);
}

std::optional<size_t> ApiKeys::find(std::string_view authorization) const {
  constexpr std::string_view kBearer = "bearer ";
  if (base::lower_case(authorization.substr(0, kBearer.size())) != kBearer) return std::nullopt;
  const std::string given = digest(authorization.substr(kBearer.size()));
  std::optional<size_t> found;
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (same(keys_[i], given)) found = i;
  }
  return found;
}

}  // namespace mnemo::serve
