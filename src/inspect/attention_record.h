#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/inspection.h"
#include "models/model.h"

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
  explicit AttentionRecorder(const models::Model& model, int64_t batch = 1);
  /// The next segment of the sequences, a whole one. Rows with `reset` [B] bool start from the initial state; undefined
  /// = none.
  core::StepResult run(const core::Segment& segment, const at::Tensor& reset = {}) { return run(segment, reset, {}); }
  /// Runs a segment and records the attentions of these layers. Holds all their weights [B,H,Q,K] in memory at once.
  std::vector<LayerRecord> record(const core::Segment& segment, const std::vector<int64_t>& layers,
                                  const at::Tensor& reset = {});

 private:
  using OnLayer = std::function<void(int64_t layer, const core::Inspectable*, const core::AttentionInput&,
                                     const core::State& state, const core::State& history)>;
  core::StepResult run(const core::Segment& segment, const at::Tensor& reset, const OnLayer& on_layer);

  const models::Model& model_;
  core::State initial_, state_;
  std::vector<core::State> histories_;  // one per layer
};

}  // namespace mnemo::inspect
