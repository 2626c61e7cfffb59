#include "bundle/require_said.h"

#include <set>

#include "base/error.h"

namespace mnemo::bundle {

void require_said(const base::Node& ours, const base::Node& said, const std::string& path, const std::string& who) {
  // Keys of initial weights, keys given by the shapes of tensors, and keys from which others have been filled in.
  static const std::set<std::string> kNotNeeded = {"init_std", "mlp_ratio", "preset"};
  for (const auto& [key, value] : ours.members()) {
    const base::Node* other = said.find(key);
    const std::string at = path.empty() ? key : path + "." + key;
    if (kNotNeeded.contains(key)) continue;
    if (value.is_table() && other != nullptr && other->is_table()) {
      require_said(value, *other, at, who);
      continue;
    }
    const std::string can = other == nullptr ? "nothing" : base::to_json(*other, -1);
    base::require(other != nullptr && value == *other,
                  "{}: the format cannot store '{}': expected {}, found {}; to change it, edit config.json in a folder "
                  "written by --to mnemo",
                  who, at, can, base::to_json(value, -1));
  }
}

}  // namespace mnemo::bundle
