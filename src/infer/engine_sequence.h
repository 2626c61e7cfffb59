#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/decode.h"

namespace mnemo::infer {

/// One sequence in the decoding engine: what the model's decoders keep of it, in place, in memory that grows by
/// doubling. A value; a copy goes on alone.
class EngineSequence {
 public:
  /// Bytes of its state.
  int64_t num_bytes() const;

 private:
  friend class Engine;
  /// A decoder's state; a copy is a clone.
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

  /// Tokens of the open segment that have run.
  int64_t used() const { return open_ ? length_ - read_ : 0; }

  bool open_ = false;
  int64_t length_ = 0;            // rows of the open segment
  int64_t read_ = 0;              // memory rows in front of it
  std::vector<int64_t> context_;  // rows of each layer context, as the open segment sees them
  std::vector<Kept> layers_, contexts_;
  std::vector<Kept> memories_;  // on the sequence seam
};

}  // namespace mnemo::infer
