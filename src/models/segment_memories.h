#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/typed_options.h"
#include "core/memory.h"
#include "core/memory_build.h"
#include "core/mode.h"
#include "core/spans.h"

namespace mnemo::core {
class Backbone;
struct BackboneInput;
struct BackboneResult;
struct Segment;
}  // namespace mnemo::core

namespace mnemo::models {

/// The rows so far of a segment that continues in the next call; absent between segments.
struct OpenSegment {
  at::Tensor length;     ///< [B] int64: rows of this segment so far, including memory rows
  at::Tensor read_rows;  ///< [B] int64: memory rows among them
  /// [B,M] bool each: false for padding among [context; rows so far], one for each set of layers that see the same
  /// context.
  std::vector<at::Tensor> valid = std::vector<at::Tensor>(1);
  template <class F>
  void visit(F&& f) {
    f("length", length, "B");
    f("read_rows", read_rows, "B");
    for (size_t view = 0; view < valid.size(); ++view) {
      f(view == 0 ? std::string("valid") : "valid_" + std::to_string(view), valid[view], "B M");
    }
  }
};

/// A memory of the list and its name in the state: its type, followed by a number unless it is the first of that type.
template <class M>
struct NamedMemory {
  std::string name;
  std::unique_ptr<M> memory;
};

/// The attention mask of some layers of a model.
struct LayerTable {
  std::vector<int64_t> layers;
  core::AttendTable table;
};

/// The memories on the layer-context and sequence seams. They decide which rows run through the backbone and which rows
/// each layer may attend to. A segment may be processed in parts: an open segment is kept in the state.
///
/// A view is a group of layers that see the same context and share a table. Without contexts there is one view.
class SegmentMemories {
 public:
  /// Creates the memories of the list on these two seams; others belong to attentions or to image models.
  SegmentMemories(const std::vector<base::TypedOptions>& list, core::MemoryBuild build, bool causal);

  const std::vector<NamedMemory<core::LayerContext>>& contexts() const { return contexts_; }
  const std::vector<NamedMemory<core::SequenceMemory>>& sequences() const { return sequences_; }
  /// Index of the context that serves a layer, or -1.
  int64_t context_of(int64_t layer) const { return context_of_[static_cast<size_t>(layer)]; }
  /// Throws InputError if the attention of some layer does not support a memory.
  void require_support(const core::Backbone& backbone, const std::string& attention) const;

  /// `layers`: the states of the backbone's attentions.
  core::State initial_state(int64_t batch, core::State layers) const;
  /// As core::Model::bptt_depth; unset if the path does not belong to these memories.
  std::optional<int64_t> bptt_depth(std::string_view path) const;

  /// The rows of one call on their way into the backbone, with memory rows and masks. `tokens` are the embedded tokens
  /// [B,T,D]; cls [D]: a row before them, or undefined. Throws InputError for a state of another model.
  core::SegmentRows enter(const at::Tensor& tokens, const at::Tensor& cls, const core::Segment& segment,
                          const core::State& state) const;
  /// Fills in the backbone's input for these rows.
  void show(core::BackboneInput& input, const core::SegmentRows& rows, const core::Segment& segment,
            const core::State& state) const;
  /// The state after the backbone; also returns the losses of contexts as in core::StepResult.
  core::State leave(const core::BackboneResult& result, const core::SegmentRows& rows, const core::Segment& segment,
                    const core::State& state, std::vector<at::Tensor>& context_losses) const;

  /// The masks of a whole segment with these embedded tokens after `state`, one for each view.
  std::vector<LayerTable> attend_tables(const at::Tensor& tokens, const at::Tensor& cls, const core::State& state,
                                        core::Mode mode) const;

 private:
  /// The value between segments: all fields absent.
  OpenSegment closed_segment() const;
  /// The context of a view, or null.
  const NamedMemory<core::LayerContext>* context_in(size_t view) const;
  void require_state(const core::State& state) const;
  core::SegmentRows start_rows(const at::Tensor& tokens, const at::Tensor& cls, const core::Segment& segment,
                               const core::State& state, const OpenSegment& open) const;
  void set_valid(core::SegmentRows& rows, const core::State& state, const OpenSegment& open, bool starts) const;
  OpenSegment still_open(const core::SegmentRows& rows, const OpenSegment& open, const core::State& state,
                         bool starts) const;

  bool causal_;
  std::vector<NamedMemory<core::LayerContext>> contexts_;
  std::vector<NamedMemory<core::SequenceMemory>> sequences_;
  std::vector<int64_t> context_of_;  ///< by layer
  std::vector<int64_t> views_;       ///< the distinct values of context_of_, in the order of the layers
  std::vector<size_t> view_of_;      ///< by layer
};

}  // namespace mnemo::models
