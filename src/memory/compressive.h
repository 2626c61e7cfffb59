#pragma once

#include <string>
#include <vector>

#include "base/options.h"
#include "core/memory.h"
#include "core/memory_build.h"
#include "memory/compression.h"

namespace mnemo::memory {

struct CompressiveOptions {
  int64_t mem_len = 64;
  int64_t compressed_len = 64;
  int64_t compression_rate = 4;
  CompressionFunction compression = CompressionFunction::conv;
  double loss_weight = 1.0;
  template <class V>
  void visit(V&& v) {
    v("mem_len", mem_len,
      "number of uncompressed rows of earlier segments that each layer keeps, plus up to compression_rate - 1 rows "
      "that wait to be compressed",
      base::range(0, 1 << 24));
    v("compressed_len", compressed_len, "number of compressed rows that each layer keeps in addition; 0: none",
      base::range(0, 1 << 24));
    v("compression_rate", compression_rate, "number of rows compressed into one", base::range(1, 1 << 10));
    v("compression", compression, "how a block is compressed",
      base::one_of("mean_pooling", "max_pooling", "conv", "dilated_conv", "most_used"));
    v("loss_weight", loss_weight,
      "weight of the attention-reconstruction loss, which only trains conv and dilated_conv", base::at_least(0));
  }
  void validate(const base::Where& where) const;
};

/// The state of every served layer: rows[l] [B,M,D], right-aligned, undefined for other layers; valid [B,M]: false for
/// padding; plain [B,M]: uncompressed rows, which come last. open_rows [B]: rows of a segment that continues in the
/// next call; absent between segments.
struct CompressiveState {
  std::vector<at::Tensor> rows;
  at::Tensor valid, plain, open_rows;
  template <class F>
  void visit(F&& f) {
    for (size_t layer = 0; layer < rows.size(); ++layer) f("layers." + std::to_string(layer), rows[layer], "B M D");
    f("valid", valid, "B M");
    f("plain", plain, "B M");
    f("open_rows", open_rows, "B");
  }
};

/// Compressive Transformer (Rae et al. 2020, section 3, algorithm 1): rows that leave a layer's memory are compressed,
/// c into one, and the compressed rows are placed to the left of the memory.
///   layer l sees [compressed; memory] to the left of the segment, as Transformer-XL sees its cache; distances are
///   counted by position in this context
///   memory' = [memory; rows] without its oldest blocks of c rows, as long as more than mem_len remain
///   compressed' = the last compressed_len rows of [compressed; f_l(those blocks)]
/// No gradient flows into either, and none of the task's loss into f; f is trained by the attention-reconstruction loss
/// of the segment that pushed its rows out (Compression). Padding is not stored.
class Compressive final : public core::LayerContext {
 public:
  using Options = CompressiveOptions;
  Compressive(const Options& options, const core::MemoryBuild& build);
  core::State initial_state(int64_t batch) const override;
  int64_t max_rows(std::string_view field, core::Mode) const override {
    return field == "open_rows" ? 0 : options_.mem_len + options_.compression_rate - 1 + options_.compressed_len;
  }
  void add_spans(core::AttendTable& table, const core::State& state, core::Mode mode) const override;
  at::Tensor valid(const core::State& state) const override;
  at::Tensor before(int64_t layer, const at::Tensor& entering, const core::State& state) const override;
  core::State after(const std::vector<at::Tensor>& entering, const at::Tensor& valid, const core::AttendTable& table,
                    const core::State& state, core::Mode mode) const override;
  core::ContextEnd end_segment(const core::State& state, core::Mode mode) const override;
  double loss_weight() const override { return options_.loss_weight; }
  int64_t compressed_rows(const core::State& state) const override;
  std::unique_ptr<core::DecodeContext> decoder(const core::DecodeBuild& build) const override;

 private:
  Options options_;
  core::MemoryBuild build_;
  Compression compression_;
};

}  // namespace mnemo::memory
