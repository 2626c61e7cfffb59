#include "inspect/attention_record.h"

#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "core/backbone.h"
#include "models/text_model.h"

namespace mnemo::inspect {

AttentionRecorder::AttentionRecorder(const models::TextModel& model, int64_t batch, base::ShouldStop should_stop)
    : model_(model),
      should_stop_(std::move(should_stop)),
      initial_(model.initial_state(batch)),
      state_(initial_),
      histories_(static_cast<size_t>(model.backbone().num_layers())) {}

core::StepResult AttentionRecorder::run(const core::Segment& segment, const at::Tensor& reset) {
  return run(segment, reset, {});
}

core::StepResult AttentionRecorder::run(const core::Segment& segment, const at::Tensor& reset,
                                        const OnLayer& on_layer) {
  base::require(segment.part.starts && segment.part.ends,
                "attention record: expected whole segments, found a part of one");
  const at::NoGradGuard no_grad;
  if (reset.defined() && reset.any().item<bool>()) {
    base::require(reset.all().item<bool>(), "attention record: expected sequences that start together, found {} of {}",
                  reset.sum().item<int64_t>(), reset.numel());
    state_ = core::reset_rows(state_, reset, initial_);
    std::fill(histories_.begin(), histories_.end(), core::State());
  }
  core::StepResult result = model_.forward(segment, state_,
                                           [&](int64_t layer, const core::Attention& attention,
                                               const core::AttentionInput& input, const core::State& state) {
                                             base::stop_if_asked(should_stop_, "attention record");
                                             if (input.table.is_cross()) return;
                                             core::State& history = histories_[static_cast<size_t>(layer)];
                                             if (on_layer) on_layer(layer, attention, input, state, history);
                                             history = attention.history(input, state, history);
                                           });
  state_ = result.state;
  return result;
}

std::vector<LayerRecord> AttentionRecorder::record(const core::Segment& segment, const std::vector<int64_t>& layers,
                                                   const at::Tensor& reset) {
  std::vector<LayerRecord> records;
  record(segment, layers, reset, [&](LayerRecord one) { records.push_back(std::move(one)); });
  return records;
}

void AttentionRecorder::record(const core::Segment& segment, const std::vector<int64_t>& layers,
                               const at::Tensor& reset, const std::function<void(LayerRecord)>& each) {
  run(segment, reset,
      [&](int64_t layer, const core::Attention& attention, const core::AttentionInput& input, const core::State& state,
          const core::State& history) {
        if (std::find(layers.begin(), layers.end(), layer) == layers.end()) return;
        LayerRecord record{layer, {input.table}, {}};
        if (const int64_t context = model_.memories().context_of(layer); context >= 0) {
          const auto& [name, memory] = model_.memories().contexts()[static_cast<size_t>(context)];
          record.mask.compressed = memory->compressed_rows(state_.child(name));
        }
        record.view = attention.inspect(input, state, history);
        each(std::move(record));
      });
}

}  // namespace mnemo::inspect
