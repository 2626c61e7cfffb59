#include <torch/types.h>

#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "base/error.h"
#include "core/decode.h"
#include "core/require_state.h"
#include "memory/compressive.h"

namespace mnemo::memory {
namespace {

/// The rows of one sequence, [compressed; memory; open segment] for each layer.
struct CompressiveRows final : core::CopiedState<CompressiveRows> {
  std::vector<std::vector<float>> layers;  ///< [count,D] each
  int64_t dim = 0, served = 0;
  int64_t count = 0, plain = 0;  ///< rows; number of uncompressed rows among them, which come last
  int64_t open = 0;              ///< rows of the open segment
  int64_t old_compressed = 0;    ///< at the end of a segment: compressed rows before it,
  int64_t kept = 0, made = 0;    ///< how many of them are kept, and new ones
  int64_t num_bytes() const override { return served * count * dim * 4; }
};

class CompressiveDecoder final : public core::DecodeContext {
 public:
  CompressiveDecoder(const Compressive& memory, const CompressiveOptions& options, const core::MemoryBuild& build)
      : memory_(memory), options_(options), num_layers_(build.num_layers), served_(build.layers), dim_(build.dim) {}

  std::unique_ptr<core::DecodeState> import(const core::State& state, const Segment& segment) const override {
    auto made = std::make_unique<CompressiveRows>();
    take(state.as<CompressiveState>(), *made);
    if (segment.keys.open) {
      core::require_rows("compressive", segment.keys.context + segment.keys.segment, made->count);
      core::require_rows("compressive", segment.keys.segment, made->open);
    }
    return made;
  }

  core::State export_state(const core::DecodeState& state, bool open) const override {
    const auto& own = static_cast<const CompressiveRows&>(state);
    CompressiveState rows;
    rows.rows.resize(own.layers.size());
    for (const int64_t number : served_) {
      const auto layer = static_cast<size_t>(number);
      rows.rows[layer] = core::tensor_of(own.layers[layer].data(), {1, own.count, dim_});
    }
    rows.valid = at::ones({1, own.count}, at::kBool);
    rows.plain = at::arange(own.count).unsqueeze(0) >= own.count - own.plain;
    if (open) rows.open_rows = at::full({1}, own.open, at::kLong);
    return rows;
  }

  void reserve(core::DecodeState&, const core::DecodePiece&) const override {}
  void enter(core::DecodeState& state, int64_t layer, const core::DecodePiece& piece,
             const float* rows) const override {
    auto& own = static_cast<CompressiveRows&>(state).layers[static_cast<size_t>(layer)];
    own.insert(own.end(), rows, rows + piece.rows() * dim_);
  }
  void leave(core::DecodeState& state, const core::DecodePiece& piece) const override {
    auto& own = static_cast<CompressiveRows&>(state);
    own.count += piece.rows(), own.plain += piece.rows(), own.open += piece.rows();
  }

  /// Uses the model's own code, once per segment.
  void end_segment(core::DecodeState& state, const Segment&) const override {
    const c10::InferenceMode inference;
    auto& own = static_cast<CompressiveRows&>(state);
    const int64_t old_compressed = own.count - own.plain;
    const int64_t blocks = std::max<int64_t>(0, own.plain - options_.mem_len) / options_.compression_rate;
    const core::ContextEnd end = memory_.end_segment(export_state(state, true), core::Mode::evaluate);
    take(end.state.as<CompressiveState>(), own);
    own.old_compressed = old_compressed;
    own.made = std::min(blocks, options_.compressed_len);
    own.kept = own.count - own.plain - own.made;
    base::require(own.kept >= 0,
                  "[compressive] a state of {} rows, {} of them plain and {} just made, contradicts itself", own.count,
                  own.plain, own.made);
  }
  void kept(const core::DecodeState& state, int64_t layer, const Segment& segment,
            std::vector<core::KeptKeys>& kept) const override {
    const auto& own = static_cast<const CompressiveRows&>(state);
    const int64_t all = segment.keys.context + segment.keys.segment;
    if (own.kept > 0) kept.push_back({own.old_compressed - own.kept, own.kept});
    if (own.made > 0) kept.push_back({0, own.made, rows(state, layer) + own.kept * dim_});
    if (own.plain > 0) kept.push_back({all - own.plain, own.plain});
  }

  const float* rows(const core::DecodeState& state, int64_t layer) const override {
    return static_cast<const CompressiveRows&>(state).layers[static_cast<size_t>(layer)].data();
  }
  int64_t count(const core::DecodeState& state) const override {
    return static_cast<const CompressiveRows&>(state).count;
  }

 private:
  void take(const CompressiveState& state, CompressiveRows& own) const {
    const int64_t padding = core::left_padding(state.valid), count = state.valid.size(1) - padding;
    own.dim = dim_;
    own.served = static_cast<int64_t>(served_.size());
    own.layers.resize(static_cast<size_t>(num_layers_));
    core::require_layers("compressive", state.rows, num_layers_, served_);
    for (const int64_t number : served_) {
      const auto layer = static_cast<size_t>(number);
      core::require_state("compressive", state.rows[layer], {1, padding + count, dim_});
      const std::vector<float> rows = core::plain_numbers(state.rows[layer].narrow(1, padding, count));
      own.layers[layer].assign(rows.begin(), rows.end());
    }
    own.count = count;
    own.plain = state.plain.sum().item<int64_t>();
    base::require(own.plain <= count, "[compressive] expected at most as many plain rows as rows, {}, found {}", count,
                  own.plain);
    own.open = state.open_rows.defined() ? state.open_rows.item<int64_t>() : 0;
  }

  const Compressive& memory_;
  CompressiveOptions options_;
  int64_t num_layers_;
  std::vector<int64_t> served_;
  int64_t dim_;
};

}  // namespace

std::unique_ptr<core::DecodeContext> Compressive::decoder(const core::DecodeBuild&) const {
  return std::make_unique<CompressiveDecoder>(*this, options_, build_);
}

}  // namespace mnemo::memory
