#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/decode.h"
#include "infer/embedding_rows.h"
#include "infer/engine_sequence.h"
#include "models/model.h"
#include "ops/decode/decode_rows.h"
#include "ops/linear/packed_linear.h"

namespace mnemo::infer {

struct EngineOptions {
  /// Of the weights. Keys and values of the past are kept in float32 with float32 weights, else in bf16.
  ops::Precision precision = ops::Precision::float32;
};

/// Why the decoding engine cannot run a model; empty if it can.
std::string unsupported_reason(const core::Model& model);

/// A model with its weights packed for decoding: a loop over layers that knows norms and feed-forwards and asks the
/// decoders that the model's attentions, memories and head bring (core/decode.h) for everything else. Rows of up to
/// kRows tokens of any number of sequences run together; the loop over tokens calls no LibTorch operation and, once its
/// memory has grown, allocates nothing. It computes what models::Model computes in evaluation, to rounding; a row's
/// numbers do not depend on the rows beside it.
///
/// Constant after it was made; any number of threads may run sequences of their own.
class Engine {
 public:
  /// Throws InputError naming what has no form for decoding (unsupported_reason).
  explicit Engine(std::shared_ptr<const models::Model> model, const EngineOptions& options = {});
  ~Engine();

  /// Rows of one pass; more rows are cut.
  static constexpr int64_t kRows = 64;

  /// Tokens for one sequence, in range.
  struct Step {
    EngineSequence* sequence;
    std::span<const int64_t> tokens;
    float* logits;  ///< [V] of the last token; null: not wanted
  };
  void run(std::span<const Step> steps) const;
  /// The same for one sequence; `each` gets the logits [V] after every token, in order. It must not run an engine
  /// itself.
  void run(EngineSequence& sequence, std::span<const int64_t> tokens,
           const std::function<void(const float*)>& each) const;

  /// A sequence without tokens.
  EngineSequence begin() const { return begin_; }
  /// The engine's form of a state of one sequence, and back.
  EngineSequence import(const core::State& state) const;
  core::State export_state(const EngineSequence& sequence) const;

  const std::shared_ptr<const models::Model>& model() const { return model_; }
  const EngineOptions& options() const { return options_; }
  /// Bytes of weights and of state that one token must read behind `keys` keys: what bounds its time from below.
  int64_t bytes_per_token(int64_t keys) const;

 private:
  friend std::string unsupported_reason(const core::Model& model);
  /// Throws InputError naming what has no form for decoding; packs no weights.
  static void require_supported(const models::Model& model);

  struct Parts;
  struct Piece;
  struct Workspace;

  void require_places(const EngineSequence& sequence, int64_t tokens) const;
  bool cut(std::span<const Step> steps, Workspace& workspace) const;
  /// The rows of a pass as the layers that see context `context` get them; -1: none.
  void list_rows(const Workspace& workspace, int context, std::vector<core::DecodeRow>& rows) const;
  void forward(Workspace& workspace) const;
  void embed(Workspace& workspace) const;
  void end_segment(EngineSequence& sequence, int64_t write) const;
  /// Makes the keys of layer `layer` anew from the rows of its context.
  void make_keys(EngineSequence& sequence, size_t layer) const;
  void run_pieces(std::span<const Step> steps, const std::function<void(const float*)>* each) const;

  std::shared_ptr<const models::Model> model_;
  EngineOptions options_;
  std::unique_ptr<const Parts> parts_;
  EngineSequence begin_;
};

}  // namespace mnemo::infer
