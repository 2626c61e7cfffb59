#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "core/model.h"
#include "tasks/start_documents.h"
#include "train/options.h"
#include "train/recompute.h"

namespace mnemo::train {

using tasks::start_documents;

/// One segment of the list. reset [B] bool, true where a row starts a new document with this segment: its state becomes
/// model.initial_state(B)'s, with gradient; undefined = no row.
struct BpttSegment {
  core::Segment input;
  at::Tensor reset = {};
};

/// The losses [] of the segments, detached, undefined if the callback returned none, and the state after the last
/// segment, or after BpttHooks::carried of them, detached.
struct BpttResult {
  std::vector<at::Tensor> losses;
  core::State state;
};

/// The loss of segment `index`: a tensor with one element, or an undefined tensor for no loss. It must not draw random
/// numbers. For recomputed segments it is called again in the backward pass, sometimes twice, with the same values each
/// time, so the callback should store results by `index`.
using SegmentLoss = std::function<at::Tensor(const core::StepResult& step, size_t index)>;

/// Hooks of a caller, for example for a batch that several processes share.
struct BpttHooks {
  /// The returned state is the one after so many segments, at least 1; unset: all.
  std::optional<int64_t> carried = {};
  /// Before the backward pass after which no gradient of a parameter changes.
  std::function<void()> before_last_backward = {};
  /// Replaces a per-model field, detached and made by `segment`, by the result of all processes.
  std::function<at::Tensor(const core::Field& field, const at::Tensor& value, size_t segment)> shared_field = {};
  /// The gradient of `segment`'s own value, given that of the replaced one by this process's losses.
  std::function<at::Tensor(const at::Tensor& gradient, size_t segment)> shared_gradient = {};
};

/// Runs the segments in order, starting from `state`, and adds the gradient of the sum of their losses, truncated
/// according to `form` and the model's depths, to .grad of everything that requires it: parameters, `state` and tensors
/// of the segments.
///
/// The h-th boundary back from a loss is crossed through the fields with k >= h. Every segment has its own graph, which
/// begins at its boundary. If all depths are 0, each segment is differentiated immediately. If all depths are 0 or full
/// (or k >= S-1), there is one backward pass, segment by segment from the last. Otherwise each segment costs k passes
/// for its incoming state and one for everything. K+1 graphs are alive at a time, where K is the largest finite depth
/// (all S with a full depth; in `chunked` those of a chunk).
///
/// Graphs are stored as long as they take at most `stored_bytes` in total, in addition to the current one, starting
/// with the first segments. Other segments keep only the state at their boundary; they run again in the backward pass,
/// with the same random numbers. Losses, state, gradients and subsequent random numbers are bitwise equal to those of
/// kStoreAll. Each such segment costs one more forward pass, or two if K > 1 is the largest number of
/// boundaries that any loss crosses (see Segments::sweeps in the source).
BpttResult backward_segments(const core::Model& model, const std::vector<BpttSegment>& segments,
                             const core::State& state, const SegmentLoss& loss, BpttForm form = BpttForm::sliding,
                             int64_t stored_bytes = kStoreAll, const BpttHooks& hooks = {});

}  // namespace mnemo::train
