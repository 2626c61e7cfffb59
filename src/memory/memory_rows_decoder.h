#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "core/decode.h"
#include "core/require_state.h"

namespace mnemo::memory {

/// Memory rows of one sequence, [m,D].
struct MemoryRowsState final : core::CopiedState<MemoryRowsState> {
  std::vector<float> rows;
  bool carried = false;  ///< carried from segment to segment; false: the model's learned rows
  int64_t num_bytes() const override { return carried ? static_cast<int64_t>(rows.size()) * 4 : 0; }
};

/// Decoder for memory tokens around a segment: learned ones, or rows of the last layer carried to the next segment (`S`
/// is the memory's state, with a field `tokens`).
template <class S>
class MemoryRowsDecoder final : public core::DecodeSequence {
 public:
  /// The rows carried to the next segment: none, the output of the read rows, or that of the write rows.
  enum class Carries { nothing, read, written };
  /// learned [1,m,D].
  MemoryRowsDecoder(const at::Tensor& learned, Rows rows, Carries carries)
      : learned_(core::plain_numbers(learned)), dim_(learned.size(2)), count_(learned.size(1)), carries_(carries) {
    if (count_ > 0) rows_ = rows;
  }

  Rows rows() const override { return rows_; }
  std::unique_ptr<core::DecodeState> import(const core::State& state) const override {
    auto made = std::make_unique<MemoryRowsState>();
    made->carried = carries_ != Carries::nothing;
    if (made->carried) core::require_state("memory_rows", state.as<S>().tokens, {1, count_, dim_});
    made->rows = made->carried ? core::plain_numbers(state.as<S>().tokens) : learned_;
    return made;
  }
  core::State export_state(const core::DecodeState& state) const override {
    if (carries_ == Carries::nothing) return S{};
    return S{core::tensor_of(static_cast<const MemoryRowsState&>(state).rows.data(), {1, count_, dim_})};
  }
  const float* entering(const core::DecodeState& state) const override {
    return static_cast<const MemoryRowsState&>(state).rows.data();
  }
  void leave(core::DecodeState& state, const core::DecodePiece& piece, const float* hidden) const override {
    if (count_ == 0) return;
    const bool now = carries_ == Carries::read ? piece.starts : carries_ == Carries::written && piece.ends;
    if (!now) return;
    const int64_t from = carries_ == Carries::read ? 0 : piece.rows() - piece.write;
    std::copy_n(hidden + from * dim_, count_ * dim_, static_cast<MemoryRowsState&>(state).rows.data());
  }

 private:
  std::vector<float> learned_;
  int64_t dim_, count_;
  Carries carries_;
  Rows rows_;
};

}  // namespace mnemo::memory
