#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace mnemo::test {

/// A vocabulary of given pieces of bytes. It only decodes.
class PiecesTokenizer final : public text::Tokenizer {
 public:
  explicit PiecesTokenizer(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}
  /// `size` pieces: a, b, ….
  explicit PiecesTokenizer(int64_t size) {
    for (int64_t i = 0; i < size; ++i) pieces_.emplace_back(1, static_cast<char>('a' + i % 26));
  }
  std::string type() const override { return "pieces"; }
  int64_t size() const override { return static_cast<int64_t>(pieces_.size()); }
  int64_t unknown_id() const override { return -1; }
  std::unique_ptr<text::Encoder> encoder(std::string, int64_t) const override { return nullptr; }
  void append(std::string& out, int64_t id) const override { out += pieces_.at(static_cast<size_t>(id)); }
  text::Files save() const override {
    std::string all;
    for (const std::string& piece : pieces_) all += piece + "\n";
    return {{"pieces.txt", all}};
  }

 private:
  std::vector<std::string> pieces_;
};

}  // namespace mnemo::test
