#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/inspection.h"
#include "models/model.h"

namespace mnemo::inspect {

/// What the attention of one layer did with a segment; no maps where it gives none.
struct LayerRecord {
  int64_t layer = 0;
  core::AttentionView view;
};

struct SegmentRecord {
  core::AttendTable table;  ///< of the segment's rows, memory rows among them
  std::vector<LayerRecord> layers;
  int64_t compressed = 0;  ///< how many rows of the first sequence's cache, its first ones, are compressed (Compressive
                           ///< Transformer)
};

/// Runs sequences through a model segment by segment and writes down where its attentions look, as a model that nobody
/// watches would: the outputs and states are those of Model::forward, bit for bit.
class AttentionRecorder {
 public:
  explicit AttentionRecorder(const models::Model& model, int64_t batch = 1);
  /// The next segment of the sequences, a whole one. Rows with `reset` [B] bool start anew before it; undefined = none.
  core::StepResult run(const core::Segment& segment, const at::Tensor& reset = {}) { return run(segment, reset, {}); }
  /// The same, and what the attentions of these layers did. Takes memory for their weights [B,H,Q,K] at once.
  SegmentRecord record(const core::Segment& segment, const std::vector<int64_t>& layers, const at::Tensor& reset = {});

 private:
  using OnLayer = std::function<void(int64_t layer, const core::Inspectable*, const core::AttentionInput&,
                                     const core::State& state, const core::State& history)>;
  core::StepResult run(const core::Segment& segment, const at::Tensor& reset, const OnLayer& on_layer);

  const models::Model& model_;
  core::State initial_, state_;
  std::vector<core::State> histories_;  // one a layer
};

}  // namespace mnemo::inspect
