#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace mnemo::search {

constexpr double kNever = -std::numeric_limits<double>::infinity();

/// Tokens that would complete a sequence of `size` tokens which occurs before.
template <class T>
void forbid_repeats(const std::vector<int64_t>& tokens, int64_t size, T* row) {
  const auto count = static_cast<int64_t>(tokens.size());
  const int64_t head = size - 1;
  for (int64_t at = 0; at + size <= count; ++at) {
    if (std::equal(tokens.begin() + at, tokens.begin() + at + head, tokens.end() - head))
      row[tokens[static_cast<size_t>(at + head)]] = static_cast<T>(kNever);
  }
}

/// Lets a hypothesis end with log probability `end` if its row [V] allows no token at all.
template <class T>
void end_if_stuck(T* row, int64_t words, int64_t eos, T end) {
  if (std::all_of(row, row + words, [](T value) { return value == static_cast<T>(kNever); })) row[eos] = end;
}

}  // namespace mnemo::search
