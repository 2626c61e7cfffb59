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
#include "infer/fingerprint.h"
#include "ops/decode/decode_rows.h"
#include "ops/linear/packed_linear.h"

namespace mnemo::models {
class Model;
}
namespace mnemo::core {
class Model;
}

namespace mnemo::infer {

struct EngineOptions {
  /// Precision of the weights. Keys and values of the past are stored as float32 with float32 weights, else as bf16.
  ops::Precision precision = ops::Precision::float32;
  /// Keys and values are int8 instead, with a scale for each row and head (ops::quantise_row). Only for attentions over
  /// individual keys, without distance terms or a memory around them.
  bool int8_keys = false;
  bool operator==(const EngineOptions&) const = default;
};

/// Why the decoding engine cannot run a model with these options; empty if it can.
std::string unsupported_reason(const core::Model& model, const EngineOptions& options = {});

/// A model with its weights packed for decoding. The engine is a loop over layers that implements norms and
/// feed-forward layers; everything else is done by the decoders of the model's attentions, memories and head
/// (core/decode.h). Up to kRows tokens of any number of sequences run together. The loop over tokens calls no LibTorch
/// operation and, once its buffers have grown, allocates nothing. Results equal those of models::Model in evaluation up
/// to rounding; the result for a row does not depend on the other rows.
///
/// Immutable after construction; any number of threads may run different sequences.
class Engine {
 public:
  /// Throws InputError naming whatever cannot be decoded (unsupported_reason).
  explicit Engine(std::shared_ptr<const models::Model> model, const EngineOptions& options = {});
  ~Engine();

  /// Rows per pass; longer inputs are split.
  static constexpr int64_t kRows = 64;

  /// Tokens for one sequence, within the vocabulary.
  struct Step {
    EngineSequence* sequence;
    std::span<const int64_t> tokens;
    float* logits;  ///< [V] of the last token; null: not needed
  };
  void run(std::span<const Step> steps) const;
  /// Same in one pass, however many rows there are. The tokens of a step must not go past the end of its segment.
  void pass(std::span<const Step> steps) const;
  /// Same for one sequence; `each` is called with the logits [V] after every token, in order. It must not run an engine
  /// itself.
  void run(EngineSequence& sequence, std::span<const int64_t> tokens,
           const std::function<void(const float*)>& each) const;

  /// Throws InputError if a sequence has no places left for so many more tokens: more rows in a segment than there are
  /// learned positions, or than an attention has positions for. run() and pass() check it before anything runs.
  void require_places(const EngineSequence& sequence, int64_t tokens) const;
  /// How many of `wanted` more tokens have places after `read` others.
  int64_t places(const EngineSequence& sequence, int64_t read, int64_t wanted) const;

  /// A new sequence without tokens.
  EngineSequence begin() const { return begin_; }
  /// As core::ReadsSource::read_source() in evaluation; with int8 and w8a8, the encoder's linear layers have such
  /// weights too.
  core::State read_source(const at::Tensor& source, const at::Tensor& valid, const core::State& before) const;
  /// New sequences of a translation model, one for each source that has been read.
  std::vector<EngineSequence> begin(const core::State& read) const;
  /// Between segments: gives up keys and values that layers have of a memory's rows, for a sequence that waits. It must
  /// not run before make_keys() has computed them again, to the same bits.
  void drop_keys(EngineSequence& sequence) const;
  void make_keys(EngineSequence& sequence) const;
  /// Converts a state of one sequence to the engine's format, and back.
  EngineSequence import(const core::State& state) const;
  core::State export_state(const EngineSequence& sequence) const;

  const std::shared_ptr<const models::Model>& model() const { return model_; }
  /// Of the model, computed once.
  const Fingerprint& fingerprint() const { return fingerprint_; }
  const EngineOptions& options() const { return options_; }
  /// Bytes of weights and state that must be read to decode a token after `keys` keys; a lower bound on its time.
  int64_t bytes_per_token(int64_t keys) const;

 private:
  friend std::string unsupported_reason(const core::Model& model, const EngineOptions& options);
  /// Throws InputError naming whatever cannot be decoded; packs no weights.
  static void require_supported(const models::Model& model, const EngineOptions& options);

  struct Parts;
  struct Piece;
  struct Workspace;

  bool cut(std::span<const Step> steps, int64_t rows, Workspace& workspace) const;
  /// The rows of a pass as seen by layers with context `context`; -1: none.
  void list_rows(const Workspace& workspace, int context, std::vector<core::DecodeRow>& rows) const;
  void forward(Workspace& workspace) const;
  /// Opens the segments that pieces start, makes room for their rows, and lists the rows that each row reads.
  void start_pieces(Workspace& workspace) const;
  void embed(Workspace& workspace) const;
  void end_segment(EngineSequence& sequence, int64_t write) const;
  /// Recomputes the keys of layer `layer` from the rows of its context.
  void make_keys(EngineSequence& sequence, size_t layer) const;
  /// rows: of a pass, shared among the steps.
  void run_pieces(std::span<const Step> steps, int64_t rows, const std::function<void(const float*)>* each) const;

  std::shared_ptr<const models::Model> model_;
  EngineOptions options_;
  std::unique_ptr<const Parts> parts_;
  EngineSequence begin_;
  Fingerprint fingerprint_;
};

}  // namespace mnemo::infer
