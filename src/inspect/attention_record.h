#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/stop.h"
#include "core/inspection.h"
#include "core/spans.h"
#include "core/state.h"

namespace mnemo::models {
class TextModel;
}
namespace mnemo::core {
struct Segment;
struct StepResult;
}  // namespace mnemo::core

namespace mnemo::inspect {

/// The rows and keys of one layer: layers with different contexts differ.
struct LayerMask {
  core::AttendTable table;  ///< of the segment's rows, including memory rows
  int64_t compressed = 0;  ///< number of compressed rows (Compressive Transformer) at the start of the first sequence's
                           ///< cache
};

/// Record of one layer's attention over a segment; no maps if the attention provides none.
struct LayerRecord {
  int64_t layer = 0;
  LayerMask mask;
  core::AttentionView view;
};

/// Runs sequences through a model segment by segment and records the attention weights. Outputs and states equal those
/// of Model::forward bit for bit.
class AttentionRecorder {
 public:
  /// should_stop: asked before each attention; then base::Stopped is thrown.
  explicit AttentionRecorder(const models::TextModel& model, int64_t batch = 1, base::ShouldStop should_stop = {});
  /// The next segment of the sequences, a whole one. Rows with `reset` [B] bool start from the initial state; undefined
  /// = none.
  core::StepResult run(const core::Segment& segment, const at::Tensor& reset = {});
  /// The same, and records what the attentions of these layers did. Holds all their weights [B,H,Q,K] in memory at
  /// once.
  std::vector<LayerRecord> record(const core::Segment& segment, const std::vector<int64_t>& layers,
                                  const at::Tensor& reset = {});
  /// Same, but passes each layer on instead of keeping it.
  void record(const core::Segment& segment, const std::vector<int64_t>& layers, const at::Tensor& reset,
              const std::function<void(LayerRecord)>& each);

 private:
  using OnLayer = std::function<void(int64_t layer, const core::Attention&, const core::AttentionInput&,
                                     const core::State& state, const core::State& history)>;
  core::StepResult run(const core::Segment& segment, const at::Tensor& reset, const OnLayer& on_layer);

  const models::TextModel& model_;
  base::ShouldStop should_stop_;
  core::State initial_, state_;
  std::vector<core::State> histories_;  // one per layer
};

}  // namespace mnemo::inspect
