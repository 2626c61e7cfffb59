#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace mnemo::text {

/// Finds all entries of a list that a text starts with. Its memory is proportional to the bytes of the entries.
class PieceTrie {
 public:
  struct Entry {
    std::string_view text;
    int32_t id = 0;
  };

  /// The first of several entries with equal texts counts. Entries without text are left out.
  explicit PieceTrie(std::vector<Entry> entries);

  /// Calls use(length, id) for every entry that `text` starts with, the shortest first.
  template <class Use>
  void for_each_prefix(std::string_view text, Use&& use) const {
    const Node* node = &nodes_[0];
    for (size_t i = 0; i < text.size(); ++i) {
      node = child(*node, static_cast<unsigned char>(text[i]));
      if (node == nullptr) return;
      if (node->id >= 0) use(i + 1, node->id);
    }
  }

 private:
  struct Node {
    uint32_t children = 0;  // the first of them, sorted by byte
    int32_t id = -1;
    uint16_t count = 0;
    unsigned char byte = 0;
  };

  const Node* child(const Node& node, unsigned char byte) const {
    uint32_t low = node.children, high = low + node.count;
    while (low < high) {
      const uint32_t middle = (low + high) / 2;
      if (nodes_[middle].byte < byte) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low < node.children + node.count && nodes_[low].byte == byte ? &nodes_[low] : nullptr;
  }

  std::vector<Node> nodes_;
};

}  // namespace mnemo::text
