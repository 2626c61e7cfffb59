#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>

#include "tests/support/text_file.h"
#include "text/train_tokenizer.h"

namespace mnemo::test {

inline std::string training_lines() {
  std::string text;
  for (int i = 0; i < 40; ++i)
    text += fmt::format("the cat number {} sat on the mat of a house\n\nhere and there, dogs\n", i);
  return text;
}

/// A tokenizer of this type and size, trained on these lines.
inline std::shared_ptr<const text::Tokenizer> trained_pieces(std::string_view type, int64_t size,
                                                             const std::string& lines = training_lines()) {
  const TextFile file(lines);
  return text::train_tokenizer(type, {text::TextSource(file.path())}, size);
}

}  // namespace mnemo::test
