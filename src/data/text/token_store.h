#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/checksum.h"

namespace mnemo::data {

/// The tokens of a text in memory, with one, two or four bytes each depending on the vocabulary size (up to 256, up to
/// 65,536, larger), and the starts of its documents. It grows in blocks, so nothing is copied or held twice while a
/// large text is read.
class TokenStore {
 public:
  /// `documents`: whether the text consists of several documents; otherwise it is one continuous text.
  explicit TokenStore(int64_t vocabulary_size, bool documents = false);

  /// Adds tokens. Throws InternalError for an id out of range.
  void append(std::span<const int32_t> ids);
  /// Marks the next token as the start of a document. Not needed for the first document.
  void start_document();
  /// Adds to the size of the text before tokenization.
  void count_text(int64_t bytes, int64_t characters);

  int64_t size() const { return size_; }
  int64_t vocabulary_size() const { return vocabulary_size_; }
  /// Whether the text was divided into documents.
  bool has_documents() const { return documents_; }
  int64_t num_documents() const { return size_ == 0 ? 0 : static_cast<int64_t>(starts_.size()); }
  /// Tokens of document i are [document_begin(i), document_end(i)).
  int64_t document_begin(int64_t i) const { return starts_[static_cast<size_t>(i)]; }
  int64_t document_end(int64_t i) const;

  /// Tokens that stand for something outside the vocabulary.
  int64_t num_unknown() const { return num_unknown_; }
  void set_num_unknown(int64_t count) { num_unknown_ = count; }

  int64_t text_bytes() const { return text_bytes_; }
  int64_t text_characters() const { return text_characters_; }
  /// Characters per token, which makes word and character models comparable.
  double characters_per_token() const;

  /// Bytes of memory held.
  int64_t num_bytes() const;
  /// A hash of all tokens and document starts; protects a resumed position against use with another text.
  uint64_t fingerprint() const { return fingerprint_.value(); }

  /// Copies tokens [begin, begin + out.size()) to `out`.
  void read(int64_t begin, std::span<int64_t> out) const;
  /// Same as a tensor [count] int64.
  at::Tensor slice(int64_t begin, int64_t count) const;

 private:
  int64_t vocabulary_size_;
  bool documents_;
  int64_t width_;  // bytes per token
  int64_t size_ = 0;
  std::vector<std::unique_ptr<unsigned char[]>> blocks_;
  std::vector<int64_t> starts_;
  int64_t text_bytes_ = 0, text_characters_ = 0, num_unknown_ = 0;
  base::Fingerprint fingerprint_;
};

}  // namespace mnemo::data
