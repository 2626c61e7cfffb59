#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/decode.h"
#include "core/decode_cross.h"

namespace mnemo::infer {

/// The state of one sequence in the decoding engine: the decoders' states, updated in place, in buffers that
/// grow. It has value semantics: a copy continues independently.
class EngineSequence {
 public:
  /// Bytes of the state, including keys and values of cross-attentions.
  int64_t num_bytes() const;

 private:
  friend class Engine;
  /// A decoder's state; copying clones it.
  class Kept {
   public:
    Kept(std::unique_ptr<core::DecodeState> state) : state_(std::move(state)) {}  // NOLINT: implicit on purpose
    Kept(const Kept& other) : state_(other.state_->clone()) {}
    Kept(Kept&&) = default;
    Kept& operator=(Kept other) noexcept {
      state_ = std::move(other.state_);
      return *this;
    }
    core::DecodeState& operator*() const { return *state_; }

   private:
    std::unique_ptr<core::DecodeState> state_;
  };

  /// Tokens of the open segment that have been processed.
  int64_t used() const { return open_ ? length_ - read_ : 0; }

  bool open_ = false;
  int64_t length_ = 0;            // rows of the open segment
  int64_t read_ = 0;              // memory rows before its tokens
  std::vector<int64_t> context_;  // rows of each layer context, as the open segment sees them
  std::vector<Kept> layers_, contexts_;
  std::vector<Kept> memories_;  // on the sequence seam
  /// Keys and values of each layer's cross-attention; shared by all hypotheses of a sentence.
  std::vector<std::shared_ptr<const core::EncodedSource>> encoded_;
};

}  // namespace mnemo::infer
