#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "core/mode.h"
#include "core/spans.h"
#include "core/state.h"

namespace mnemo::core {

class DecodeContext;
class DecodeSequence;
struct DecodeBuild;

/// A loss in addition to the task's: weight * mean of `values` is added to it.
struct AuxiliaryLoss {
  std::string_view name;
  at::Tensor values;
  double weight;
};

/// The result of ending a segment: the state, and each sequence's contribution to the training loss, [B] or undefined.
struct ContextEnd {
  State state;
  at::Tensor loss = {};
};

/// The layer-context seam: extra rows that a layer sees, and what is stored of the layer's own rows. One object serves
/// all layers that its options name (MemoryBuild::layers).
class LayerContext {
 public:
  virtual ~LayerContext() = default;
  virtual State initial_state(int64_t batch) const = 0;
  /// Adds the span of its rows to the table and, if the mechanism requires it, changes rules of the token rows.
  virtual void add_spans(AttendTable& table, const State& state, Mode mode) const = 0;
  /// Which of its rows are real, [B,M] bool: nobody attends to padding. Equal for all layers that it serves.
  virtual at::Tensor valid(const State& state) const = 0;
  /// Its rows for one layer, [B,M,D]. entering [B,Q,D]: the rows that enter the layer, before any norm. Called once for
  /// each layer it serves, at the start of a segment.
  virtual at::Tensor before(int64_t layer, const at::Tensor& entering, const State& state) const = 0;
  /// How many of the first sequence's rows are compressed, each representing several rows; they come first.
  virtual int64_t compressed_rows(const State& /*state*/) const { return 0; }
  /// The state after the rows have run. entering[l] [B,Q,D] are the rows that entered layer l, before any norm; valid
  /// [B,Q] is false for padding, undefined = no padding.
  virtual State after(const std::vector<at::Tensor>& entering, const at::Tensor& valid, const AttendTable& table,
                      const State& state, Mode mode) const = 0;
  /// Called at the end of a segment with the state that after() returned: for work that is done once per segment, no
  /// matter how many calls the segment took.
  virtual ContextEnd end_segment(const State& state, Mode /*mode*/) const { return {state}; }
  /// The weight of the losses that end_segment() returns.
  virtual double loss_weight() const { return 0.0; }
  /// Its decoder (core/decode.h); null if it has none.
  virtual std::unique_ptr<DecodeContext> decoder(const DecodeBuild& build) const;
  /// How many segments back gradients may flow through the state field with that name; -1 = no limit.
  virtual int64_t bptt_depth(std::string_view /*field*/) const { return 0; }
};

/// A segment's rows on their way into the backbone: rows [B,Q,D], and valid [B,Q] bool, undefined = no padding. There
/// is one table for each set of layers that see the same context.
struct SegmentRows {
  at::Tensor rows;
  at::Tensor valid;
  std::vector<AttendTable> tables;
};

/// Which part of a segment a call contains: a whole segment starts and ends in it.
struct Part {
  bool starts = true;
  bool ends = true;
};

/// -log p(target) of rows: hidden [B,m,D], targets [B,m] int64 -> [B,m].
using LossOfRows = std::function<at::Tensor(const at::Tensor& hidden, const at::Tensor& targets)>;

/// The sequence seam: rows added before the backbone and read back after it.
class SequenceMemory {
 public:
  virtual ~SequenceMemory() = default;
  virtual State initial_state(int64_t batch) const = 0;
  /// Adds its rows: read rows before the tokens where the segment starts, write rows after them where it ends.
  virtual void enter(SegmentRows& rows, const State& state, Part part) const = 0;
  /// The state after the backbone: hidden [B,Q,D] for the table's rows.
  virtual State leave(const at::Tensor& hidden, const AttendTable& table, const State& state, Part part) const = 0;
  /// How many segments back gradients may flow through the state field with that name; -1 = no limit.
  virtual int64_t bptt_depth(std::string_view field) const = 0;
  /// In an encoder that a decoder reads: whether the decoder sees its rows too, and not only those of the tokens.
  virtual bool shows_rows() const { return false; }
  /// Whether its rows need rules of their own, which the attention of a causal model must support (support().tables).
  virtual bool needs_tables() const { return true; }
  /// Contribution of its write rows to the training loss. hidden [B,m,D]; nll(hidden, targets [B,m]) is the head's
  /// loss.
  virtual std::vector<AuxiliaryLoss> losses(const at::Tensor& /*hidden*/, const LossOfRows& /*nll*/) const {
    return {};
  }
  /// Its decoder (core/decode.h); null if it has none.
  virtual std::unique_ptr<DecodeSequence> decoder() const;
};

}  // namespace mnemo::core
