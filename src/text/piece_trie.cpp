#include "text/piece_trie.h"

#include <algorithm>

namespace mnemo::text {

PieceTrie::PieceTrie(std::vector<Entry> entries) : nodes_(1) {
  std::erase_if(entries, [](const Entry& entry) { return entry.text.empty(); });
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.text < b.text; });
  // The nodes in order of their depth, each with the entries below it: those that share its bytes.
  struct Range {
    size_t begin, end;
  };
  std::vector<Range> below = {{0, entries.size()}};
  size_t depth = 0, level_begin = 0;
  while (level_begin < nodes_.size()) {
    const size_t level_end = nodes_.size();
    for (size_t at = level_begin; at < level_end; ++at) {
      auto [begin, end] = below[at];
      while (begin < end && entries[begin].text.size() == depth) {
        if (nodes_[at].id < 0) nodes_[at].id = entries[begin].id;
        ++begin;
      }
      nodes_[at].children = static_cast<uint32_t>(nodes_.size());
      while (begin < end) {
        const char byte = entries[begin].text[depth];
        size_t last = begin + 1;
        while (last < end && entries[last].text[depth] == byte) ++last;
        ++nodes_[at].count;
        nodes_.push_back({.children = 0, .id = -1, .count = 0, .byte = static_cast<unsigned char>(byte)});
        below.push_back({begin, last});
        begin = last;
      }
    }
    level_begin = level_end;
    ++depth;
  }
}

}  // namespace mnemo::text
