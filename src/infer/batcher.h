#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "infer/engine.h"
#include "infer/session.h"

namespace mnemo::infer {

/// Several sequences side by side in one tensor: what the batcher keeps between steps.
///
/// Rows of the past (dimension M of a state) are right-aligned, so a shorter sequence has padding on its left. The
/// block knows how much, and drops it when the sequence leaves: without that, sequences that take turns in being the
/// shorter one would grow without end.
class PaddedBatch {
 public:
  /// One sequence of a block.
  struct Row {
    std::shared_ptr<const PaddedBatch> block;
    int64_t row;
  };

  /// A block of one.
  explicit PaddedBatch(core::State state);
  /// Joins sequences, in that order, from wherever they sit. Throws ShapeError if their states have different fields.
  explicit PaddedBatch(const std::vector<Row>& rows);

  const core::State& state() const { return state_; }
  int64_t size() const { return size_; }
  /// The state after a call with `tokens` tokens a sequence.
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
    WeakTensor tensor;             ///< to see later whether it is still the same one
  };
  struct Piece {
    core::State state;
    std::vector<PaddedField> fields;
  };
  /// The padded fields as they are now.
  std::vector<PaddedField> padded_fields() const;
  /// Some sequences, without the padding that all of them have.
  Piece take(const std::vector<int64_t>& rows) const;

  core::State state_;
  int64_t size_ = 1;
  std::vector<PaddedField> made_;  // the padded fields as they were when the block was made
  int64_t tokens_ = 0;             // since then
  bool crossed_segment_ = false;
};

/// Runs several sessions of one model together. Each makes the same text as alone; sessions join and leave at any time.
///
/// Sequences at different places of their segments run in one call as long as none of them starts or ends a segment;
/// those that do run in calls of their own. Sums over padded rows may round differently from sums over a sequence
/// alone, so logits agree to rounding, bit for bit only where no padding was needed.
class Batcher {
 public:
  using Id = int64_t;
  struct Token {
    Id id;
    int64_t token;
  };

  explicit Batcher(std::shared_ptr<const core::Model> model);
  /// Sessions of a decoding engine: all of them run in one pass, wherever they are in their segments, and each makes
  /// the same numbers as alone, bit for bit.
  explicit Batcher(std::shared_ptr<const Engine> engine);
  ~Batcher();

  /// Takes over a session that has been fed; it reads its prompt before it joins. Throws InputError if it belongs to
  /// another model, has read nothing, or began before the model's own memory (the GRC cache) last moved.
  Id add(Session session);
  /// Gives it back, as if it had run alone. Throws InputError for an id that is not here.
  Session remove(Id id);
  int64_t size() const { return static_cast<int64_t>(members_.size()); }

  /// The next token of every session, by id. Throws InputError naming the session whose logits are not finite; no
  /// session has made a token then, and the others go on once that one is removed.
  std::vector<Token> step();

 private:
  struct Member {
    Session session;                     ///< its state is empty while the sequence sits in a block
    std::shared_ptr<PaddedBatch> block;  ///< null with an engine
    int64_t row;
  };
  Member& find(Id id);
  void run_pending();
  void run_engine();
  void run_group(const std::vector<Member*>& group);

  std::shared_ptr<const core::Model> model_;
  std::shared_ptr<const Engine> engine_;
  std::map<Id, Member> members_;
  Id next_id_ = 0;
};

}  // namespace mnemo::infer
