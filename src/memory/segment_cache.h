#pragma once

#include <optional>
#include <string>

#include "base/options.h"
#include "core/memory.h"
#include "core/memory_build.h"
#include "core/model_outline.h"

namespace mnemo::memory {

struct SegmentCacheOptions {
  int64_t mem_len = 64;
  bool same_length = false;
  std::optional<int64_t> eval_mem_len;
  std::optional<bool> eval_same_length;
  bool keep_memory_rows = true;
  template <class V>
  void visit(V&& v) {
    v("mem_len", mem_len, "number of rows of earlier segments that each layer keeps; 0: none", base::range(0, 1 << 24));
    v("same_length", same_length, "each query sees exactly mem_len keys, itself included");
    v("eval_mem_len", eval_mem_len, "mem_len in evaluation; unset: same as mem_len", base::range(0, 1 << 24));
    v("eval_same_length", eval_same_length, "same_length in evaluation; unset: same as same_length");
    v("keep_memory_rows", keep_memory_rows,
      "store the read and write memory rows in the cache too (as in the authors' RMT)");
  }
  void validate(const base::Where& where) const;
  /// Throws InputError if it does not fit the model.
  void check(const core::ModelOutline& model, const base::Where& where) const;
};

/// Rows that entered each served layer, right-aligned: rows[l] [B,M,D], undefined for other layers; valid [B,M] bool, M
/// <= mem_len.
struct SegmentCacheState {
  std::vector<at::Tensor> rows;
  at::Tensor valid;
  template <class F>
  void visit(F&& f) {
    for (size_t layer = 0; layer < rows.size(); ++layer) f("layers." + std::to_string(layer), rows[layer], "B M D");
    f("valid", valid, "B M");
  }
};

/// Segment-level recurrence (Dai et al. 2019, section 3.2): layer l sees, to the left of the segment, the last mem_len
/// rows that entered it in earlier segments. No gradient flows into the cache.
///   cache' = the last mem_len rows of [cache; rows], detached; padding is not stored
class SegmentCache : public core::LayerContext {
 public:
  using Options = SegmentCacheOptions;
  SegmentCache(const Options& options, const core::MemoryBuild& build, std::string name = "segment_cache")
      : options_(options), build_(build), name_(std::move(name)) {}
  core::State initial_state(int64_t batch) const override;
  void add_spans(core::AttendTable& table, const core::State& state, core::Mode mode) const override;
  at::Tensor valid(const core::State& state) const override;
  at::Tensor before(int64_t layer, const at::Tensor& entering, const core::State& state) const override;
  core::State after(const std::vector<at::Tensor>& entering, const at::Tensor& valid, const core::AttendTable& table,
                    const core::State& state, core::Mode mode) const override;
  int64_t max_rows(std::string_view, core::Mode mode) const override { return mem_len(mode); }
  std::unique_ptr<core::DecodeContext> decoder(const core::DecodeBuild& build) const override;
  const Options& options() const { return options_; }

 private:
  int64_t mem_len(core::Mode mode) const;
  bool same_length(core::Mode mode) const;

  Options options_;
  core::MemoryBuild build_;
  std::string name_;  ///< for error messages
};

}  // namespace mnemo::memory
