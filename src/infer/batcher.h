#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "infer/session.h"

namespace mnemo::infer {

/// Several sequences in one padded batch, which the batcher keeps between steps.
///
/// Rows of the past (dimension M of a state) are right-aligned, so shorter sequences have padding on the left. The
/// block tracks this padding and removes it when a sequence leaves; otherwise sequences that take turns being the
/// shorter one would grow without bound.
class PaddedBatch {
 public:
  /// One sequence of a block.
  struct Row {
    std::shared_ptr<const PaddedBatch> block;
    int64_t row;
  };

  /// A block with one sequence.
  explicit PaddedBatch(core::State state);
  /// Joins sequences from any blocks, in that order. Throws ShapeError if their states have different fields.
  explicit PaddedBatch(const std::vector<Row>& rows);

  const core::State& state() const { return state_; }
  int64_t size() const { return size_; }
  /// Sets the state after a call with `tokens` tokens per sequence.
  void advance(core::State state, int64_t tokens, core::Part part);
  /// The state of one sequence, without padding.
  core::State take(int64_t row) const { return take(std::vector<int64_t>{row}).state; }

 private:
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  /// A field with rows of the past.
  struct PaddedField {
    std::string path;
    int64_t width;                 ///< of the whole block
    std::vector<int64_t> padding;  ///< of each sequence
    WeakTensor tensor;             ///< to check later whether it is still the same tensor
  };
  struct Piece {
    core::State state;
    std::vector<PaddedField> fields;
  };
  /// The padded fields in their current state.
  std::vector<PaddedField> padded_fields() const;
  /// Selects some sequences, without the padding that all of them share.
  Piece take(const std::vector<int64_t>& rows) const;

  core::State state_;
  int64_t size_ = 1;
  std::vector<PaddedField> made_;  // the padded fields as they were when the block was made
  int64_t tokens_ = 0;             // since then
  bool crossed_segment_ = false;
};

/// Runs several sessions of a model together that has no decoding engine (a Scheduler runs those of an engine). Each
/// generates the same text as it would alone; sessions may join and leave at any time.
///
/// Sequences at different positions of their segments run in one call as long as none of them starts or ends a segment;
/// those that do run in separate calls. Sums over padded rows may round differently from sums over a single sequence,
/// so logits agree up to rounding, and bit for bit only if no padding was needed.
class Batcher {
 public:
  using Id = int64_t;
  struct Token {
    Id id;
    int64_t token;
  };

  explicit Batcher(std::shared_ptr<const core::Model> model);
  ~Batcher();

  /// Takes over a session that has been fed; its prompt is processed before it joins. Throws InputError if it belongs
  /// to another model, has read no tokens, or started before the model's own memory (the GRC cache) last changed.
  Id add(Session session);
  /// Returns the session, as if it had run alone. Throws InputError for an unknown id.
  Session remove(Id id);
  int64_t size() const { return static_cast<int64_t>(members_.size()); }

  /// Generates the next token of every session, with its id. Throws InputError naming the session if logits are not
  /// finite; no session has generated a token then, and the others can continue once that one is removed.
  std::vector<Token> step();

 private:
  struct Member {
    Session session;  ///< its state is empty while the sequence is in a block
    std::shared_ptr<PaddedBatch> block;
    int64_t row;
  };
  Member& find(Id id);
  void run_pending();
  void run_group(const std::vector<Member*>& group);

  std::shared_ptr<const core::Model> model_;
  std::map<Id, Member> members_;
  Id next_id_ = 0;
};

}  // namespace mnemo::infer
