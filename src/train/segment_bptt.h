#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

#include "core/model.h"
#include "tasks/start_documents.h"
#include "train/recompute.h"

namespace mnemo::train {

using tasks::start_documents;

/// Where the gradient is cut between segments. Both cut each state field by its own depth k = model.bptt_depth(path);
/// -1: never.
///   sliding  every segment's loss reaches exactly k boundaries back, so segments s, s-1, ... s-k (the golden files'
///   definition)
///   chunked  the field is detached at every (k+1)th boundary of the list, which is cheaper: a loss reaches 0 to k
///   boundaries back
/// In both a field of depth 0 is cut at every boundary, and the state handed in is no boundary: it keeps its graph.
enum class BpttForm { sliding, chunked };

/// The form of that name, "sliding" or "chunked". Throws InputError for another.
BpttForm bptt_form(std::string_view name);

/// One segment of the list. reset [B] bool, true where a row starts a new document with this segment: its state becomes
/// model.initial_state(B)'s, with gradient; undefined = no row does.
struct BpttSegment {
  core::Segment input;
  at::Tensor reset = {};
};

/// Losses [] of the segments, detached, undefined where the callback gave none; and the state after the last one,
/// detached.
struct BpttResult {
  std::vector<at::Tensor> losses;
  core::State state;
};

/// What segment `index` adds to the scalar that is differentiated: a tensor with one element, or an undefined one for
/// nothing. It draws no random numbers. Segments that are computed again are asked about in the backward pass, some of
/// them twice, with the same numbers each time: what the callback notes, it notes by `index`.
using SegmentLoss = std::function<at::Tensor(const core::StepResult& step, size_t index)>;

/// Runs the segments one after another from `state` and adds the gradient of the sum of their losses, truncated as
/// `form` and the model's depths say, to .grad of everything that requires it: parameters, `state` and the segments'
/// own tensors.
///
/// The h-th boundary back from a loss is crossed through the fields with k >= h. Every segment has a graph of its own
/// that begins at its boundary. With all depths 0 each segment is differentiated at once, with all depths 0 or full (or
/// k >= S-1) there is one backward pass, segment by segment from the last; otherwise each segment costs k passes for
/// its incoming state alone and one for everything. K+1 graphs are alive at a time, K the largest finite depth (all S
/// with a full depth, in `chunked` those of a chunk).
///
/// Graphs are stored while they take at most `stored_bytes` together, beside the one at work, the first segments'
/// first. Of the other segments only the state at their boundary is kept: they run again in the backward pass, with the
/// same random numbers. Losses, state, gradients and the random numbers that follow are bitwise those of kStoreAll;
/// each such segment costs a forward pass more, or two where K > 1 is the farthest that any loss reaches back (see
/// Segments::sweeps in the source).
BpttResult backward_segments(const core::Model& model, const std::vector<BpttSegment>& segments,
                             const core::State& state, const SegmentLoss& loss, BpttForm form = BpttForm::sliding,
                             int64_t stored_bytes = kStoreAll);

}  // namespace mnemo::train
