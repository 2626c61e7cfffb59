#include "infer/progress.h"

#include <torch/types.h>

#include <algorithm>

#include "base/error.h"

namespace mnemo::infer {
namespace {

/// The tokens of one call, [1,T] on the model's device.
at::Tensor on_device(std::span<const int64_t> tokens, at::Device device) {
  at::Tensor out = at::empty({1, static_cast<int64_t>(tokens.size())}, at::kLong);
  std::copy(tokens.begin(), tokens.end(), out.mutable_data_ptr<int64_t>());
  return device.is_cpu() ? out : out.to(device);
}

constexpr int64_t kLogitRows = 64;  // computed at a time

/// Runs tokens of one segment; `last`: whether the logits after the last are needed.
void run_part(const core::Model& model, Progress& progress, std::span<const int64_t> tokens, bool last,
              const std::function<void(const at::Tensor&)>& each) {
  const auto count = static_cast<int64_t>(tokens.size());
  if (progress.reset_segments && progress.used == 0) progress.state = model.initial_state(1);
  core::Segment segment;
  segment.tokens = on_device(tokens, device_of(model));
  segment.part = part_of(model, progress.used, count);
  core::StepResult step = model.forward(segment, progress.state);
  for (int64_t row = 0; each && row < count; row += kLogitRows)
    each(model.logits(step.hidden.select(0, 0).slice(0, row, row + kLogitRows)));
  if (last) progress.logits = model.logits(step.hidden.select(1, count - 1)).select(0, 0);
  progress.state = std::move(step.state);
  progress.used = segment.part.ends ? 0 : progress.used + count;
}

}  // namespace

core::Part part_of(const core::Model& model, int64_t used, int64_t count) {
  const int64_t left = core::token_input(model.input()).segment_size - used;
  base::ensure(count <= left, "{} tokens do not fit into a segment with room for {}", count, left);
  return {used == 0, count == left};
}

Progress begin(const core::Model& model) {
  Progress progress;
  progress.state = model.initial_state(1);
  return progress;
}

void require_tokens(const core::Model& model, std::span<const int64_t> tokens) {
  const int64_t vocab = core::token_input(model.input()).vocab_size;
  for (size_t i = 0; i < tokens.size(); ++i) {
    base::require(tokens[i] >= 0 && tokens[i] < vocab, "session: expected tokens from 0 to {}, found {} at {}",
                  vocab - 1, tokens[i], i);
  }
}

void run(const core::Model& model, Progress& progress, std::span<const int64_t> tokens,
         const std::function<void(const at::Tensor&)>& each, const base::ShouldStop& should_stop) {
  require_tokens(model, tokens);
  if (progress.pending < 0 && tokens.empty()) return;
  Progress next = progress;
  for (const int64_t token : tokens) next.append(token);
  if (next.pending >= 0) {
    base::stop_if_asked(should_stop, "session");
    run_part(model, next, {&progress.pending, 1}, tokens.empty(), {});
    next.pending = -1;
  }
  while (!tokens.empty()) {
    base::stop_if_asked(should_stop, "session");
    const auto room = static_cast<size_t>(core::token_input(model.input()).segment_size - next.used);
    const size_t count = std::min(room, tokens.size());
    run_part(model, next, tokens.first(count), count == tokens.size(), each);
    tokens = tokens.subspan(count);
  }
  progress = std::move(next);
}

}  // namespace mnemo::infer
