#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "core/mode.h"
#include "core/spans.h"
#include "core/state.h"

namespace mnemo::core {

class DecodeContext;
class DecodeSequence;
struct DecodeBuild;

/// Rows of one layer context: rows [B,M,D], valid [B,M] bool (false: not real, nobody may attend to it).
struct ContextRows {
  at::Tensor rows;
  at::Tensor valid;
};

/// What is left when a segment has ended: the state, and what each sequence adds to the training loss, [B] or
/// undefined.
struct ContextEnd {
  State state;
  at::Tensor loss = {};
};

/// The layer-context seam: rows that layer l sees besides its own, and what it keeps of the layer's rows.
class LayerContext {
 public:
  virtual ~LayerContext() = default;
  virtual State initial_state(int64_t batch) const = 0;
  /// Adds the span of its rows to the table and, where the mechanism says so, changes rules of the token rows.
  virtual void add_spans(AttendTable& table, const State& state, Mode mode) const = 0;
  /// The rows for layer `layer`.
  virtual ContextRows before(int64_t layer, const State& state) const = 0;
  /// The state after the rows have run. entering[l] [B,Q,D] are the rows that entered layer l, before any norm;
  /// valid [B,Q] says which are real, undefined = all.
  virtual State after(const std::vector<at::Tensor>& entering, const at::Tensor& valid, const AttendTable& table,
                      const State& state, Mode mode) const = 0;
  /// Called where a segment ends, with the state that after() gave: for what is done once a segment, however many calls
  /// it came in.
  virtual ContextEnd end_segment(const State& state, Mode /*mode*/) const { return {state}; }
  /// The factor of the losses that end_segment() gives.
  virtual double loss_weight() const { return 0.0; }
  /// Its form for decoding (core/decode.h); null: it has none.
  virtual std::unique_ptr<DecodeContext> decoder(const DecodeBuild& build) const;
};

/// A segment's rows on their way into the backbone: rows [B,Q,D], and the table over them. valid [B,Q] bool, undefined
/// = all.
struct SegmentRows {
  at::Tensor rows;
  at::Tensor valid;
  AttendTable table;
};

/// Which part of a segment one call holds: a whole one starts and ends.
struct Part {
  bool starts = true;
  bool ends = true;
};

/// The sequence seam: rows added before the backbone and read back after it.
class SequenceMemory {
 public:
  virtual ~SequenceMemory() = default;
  virtual State initial_state(int64_t batch) const = 0;
  /// Adds its rows: those in front where the segment starts, those behind where it ends.
  virtual void enter(SegmentRows& rows, const State& state, Part part) const = 0;
  /// The state after the backbone: hidden [B,Q,D] for the table's rows.
  virtual State leave(const at::Tensor& hidden, const AttendTable& table, const State& state, Part part) const = 0;
  /// How many segments back a gradient may go through its state; -1 = no limit.
  virtual int64_t bptt_depth() const = 0;
  /// Its form for decoding (core/decode.h); null: it has none.
  virtual std::unique_ptr<DecodeSequence> decoder() const;
};

}  // namespace mnemo::core
