#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "infer/engine_plan.h"
#include "infer/engine_sequence.h"
#include "models/model.h"
#include "ops/linear/packed_linear.h"

namespace mnemo::infer {

struct EngineOptions {
  /// Of the weights. Keys and values of the past are kept in float32 with float32 weights, else in bf16.
  ops::Precision precision = ops::Precision::float32;
};

/// A model with its weights packed for decoding: softmax, relative and ABC attention, segment cache, Memory
/// Transformer, RMT and GRC. Rows of up to kRows tokens of any number of sequences run together; the loop over tokens
/// calls no LibTorch operation and, once its memory has grown, allocates nothing. It computes what models::Model
/// computes in evaluation, to rounding; a row's numbers do not depend on the rows beside it.
///
/// Constant after it was made; any number of threads may run sequences of their own.
class Engine {
 public:
  /// Throws InputError naming what it cannot run (unsupported_reason).
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
  EngineSequence begin() const;
  /// The engine's form of a state of one sequence, and back.
  EngineSequence import(const core::State& state) const;
  core::State export_state(const EngineSequence& sequence) const { return sequence.state(initial_); }

  const std::shared_ptr<const models::Model>& model() const { return model_; }
  const EngineOptions& options() const { return options_; }
  const EnginePlan& plan() const { return plan_; }
  /// Bytes of weights and of state that one token must read behind `keys` keys: what bounds its time from below.
  int64_t bytes_per_token(int64_t keys) const;

 private:
  struct Norm {
    std::vector<float> weight, bias;
  };
  struct Layer {
    ops::PackedLinear maps;  ///< q, k, v, and the control of ABC, one below another
    ops::PackedLinear o, in, out;
    Norm norm1, norm2;
    std::vector<float> u, v;  ///< [H,width], scaled
    at::Tensor r;             ///< [H*d,D]
    std::optional<EngineGrc> grc;
  };
  /// Projected distances of all layers: rows [H, count, width], row i stands for the distance i - right.
  struct Distances {
    int64_t count = 0, right = 0;
    std::vector<ops::AlignedBytes> layers;
  };
  struct Piece;
  struct Row;
  struct Workspace;

  void require_positions(const EngineSequence& sequence, int64_t tokens) const;
  bool cut(std::span<const Step> steps, Workspace& workspace) const;
  void forward(Workspace& workspace) const;
  void embed(Workspace& workspace) const;
  void attend(int64_t layer, const Distances* distances, Workspace& workspace) const;
  template <class T>
  void attend_keys(int64_t layer, const Distances* distances, Workspace& workspace) const;
  void attend_slots(int64_t layer, Workspace& workspace) const;
  /// x: the rows that the attention has read.
  void read_caches(int64_t layer, const float* x, Workspace& workspace) const;
  void run_pieces(std::span<const Step> steps, const std::function<void(const float*)>* each) const;
  std::shared_ptr<const Distances> distances(int64_t longest) const;
  bool wide_keys() const { return options_.precision == ops::Precision::float32; }
  Norm norm(const std::string& name) const;

  std::shared_ptr<const models::Model> model_;
  EngineOptions options_;
  EnginePlan plan_;
  core::State initial_;
  std::vector<GrcMemory> caches_;     // of a sequence without tokens
  at::Tensor embedding_, positions_;  // [V,D], [P,D]
  std::vector<float> learned_;        // [m,D]
  std::vector<double> frequencies_;
  std::vector<Layer> layers_;
  Norm final_norm_;
  bool has_final_norm_ = false;
  ops::PackedLinear head_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Distances> distances_;
};

}  // namespace mnemo::infer
