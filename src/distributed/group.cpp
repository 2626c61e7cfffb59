#include "distributed/group.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/machine.h"

namespace mnemo::distributed {

void Group::require_same(const std::vector<std::pair<std::string, std::string>>& entries, const std::string& what) {
  std::string mine = base::host_name();
  for (const auto& [name, value] : entries) mine += "\n" + value;
  const std::vector<std::string> all = gather(mine);
  const auto lines = [](const std::string& text) {
    std::vector<std::string> found;
    for (size_t from = 0, end = 0; end != std::string::npos; from = end + 1) {
      end = text.find('\n', from);
      found.push_back(text.substr(from, end == std::string::npos ? end : end - from));
    }
    return found;
  };
  const std::vector<std::string> first = lines(all.front());
  for (size_t rank = 1; rank < all.size(); ++rank) {
    const std::vector<std::string> other = lines(all[rank]);
    base::require(other.size() == first.size(), "{}: rank {} ({}) has {} entries, rank 0 ({}) {}", what, rank, other[0],
                  other.size() - 1, first[0], first.size() - 1);
    for (size_t i = 1; i < first.size(); ++i) {
      base::require(other[i] == first[i], "{}: rank {} ({}) has another {} than rank 0 ({}): expected {}, found {}",
                    what, rank, other[0], entries[i - 1].first, first[0], first[i], other[i]);
    }
  }
}

}  // namespace mnemo::distributed
