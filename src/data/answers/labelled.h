#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "data/part.h"
#include "data/text/token_store.h"

namespace mnemo::data {

/// Documents with one label each, for classification.
class LabelledDocuments {
 public:
  /// with_types: every token has a type, 0 to 255.
  LabelledDocuments(int64_t vocabulary_size, int64_t num_labels, bool with_types = false)
      : tokens_(vocabulary_size, true), num_labels_(num_labels) {
    if (with_types) types_.emplace(256, true);
  }

  /// A document of at least one token. Throws InternalError if a token, type or label is out of range.
  void add(std::span<const int32_t> tokens, int64_t label, std::span<const int32_t> types = {});

  int64_t size() const { return static_cast<int64_t>(labels_.size()); }
  int64_t num_labels() const { return num_labels_; }
  int64_t vocabulary_size() const { return tokens_.vocabulary_size(); }
  /// Tokens of all documents together.
  int64_t num_tokens() const { return tokens_.size(); }
  int64_t length(int64_t i) const { return tokens_.document_end(i) - tokens_.document_begin(i); }
  int64_t longest() const {
    int64_t found = 0;
    for (int64_t i = 0; i < size(); ++i) found = std::max(found, length(i));
    return found;
  }
  int64_t label(int64_t i) const { return labels_[static_cast<size_t>(i)]; }
  /// The first `out.size()` tokens of document i.
  void read(int64_t i, std::span<int64_t> out) const { tokens_.read(tokens_.document_begin(i), out); }
  /// Words, or pieces, of the texts before they were cut, and how many of these the vocabulary lacks.
  int64_t num_read() const { return num_read_; }
  int64_t num_unknown() const { return num_unknown_; }
  void count_read(int64_t read, int64_t unknown) {
    num_read_ += read;
    num_unknown_ += unknown;
  }
  /// How many texts were cut.
  int64_t num_cut() const { return num_cut_; }
  void count_cut() { ++num_cut_; }
  bool has_types() const { return types_.has_value(); }
  /// Their types.
  void read_types(int64_t i, std::span<int64_t> out) const { types_->read(types_->document_begin(i), out); }
  /// Hashes of all tokens, and of their types and labels; protect a resumed position against use with other documents.
  uint64_t fingerprint() const { return tokens_.fingerprint(); }
  uint64_t labels_fingerprint() const;

 private:
  TokenStore tokens_;
  std::optional<TokenStore> types_;
  int64_t num_labels_, num_read_ = 0, num_unknown_ = 0, num_cut_ = 0;
  std::vector<int32_t> labels_;
};

/// The parts of a data set; a missing part is null.
struct LabelledSets {
  std::shared_ptr<const LabelledDocuments> train, valid, test;

  const std::shared_ptr<const LabelledDocuments>& part(Part part) const {
    return part == Part::train ? train : part == Part::valid ? valid : test;
  }
};

}  // namespace mnemo::data
