#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "infer/engine_plan.h"
#include "models/model.h"
#include "ops/cuda.h"

namespace mnemo::infer {

/// Tokens inside one open segment by operations whose shapes and places never change, so that a CUDA device records
/// them once, as one graph, and plays the graph for every token. It takes the segment's state from the model and gives
/// it back; tokens that begin or end a segment run through the model.
///
/// Keys and values stand in rooms that double; the positions of a token are numbers on the device, moved on by the
/// graph itself. On the CPU the same operations run one by one: that is how they are tested.
class StaticDecoder {
 public:
  /// Why a model or the state of its open segment has no static form; empty if it has.
  static std::string objection(const models::Model& model, const core::State& state);

  /// state: of one sequence, its segment open. Throws InputError where objection() says so.
  StaticDecoder(std::shared_ptr<const models::Model> model, const core::State& state);
  /// A copy has rooms of its own and records its own graph.
  StaticDecoder(const StaticDecoder& other);
  StaticDecoder& operator=(const StaticDecoder& other) { return *this = StaticDecoder(other); }
  StaticDecoder(StaticDecoder&&) = default;
  StaticDecoder& operator=(StaticDecoder&&) = default;

  /// Runs one token that does not end the segment; the logits [V] of the next.
  at::Tensor step(int64_t token);
  /// The state after the tokens that have run, as the model makes it.
  core::State state() const;
  /// Bytes of its rooms.
  int64_t num_bytes() const;

 private:
  struct Layer {
    at::Tensor maps, maps_bias, o, o_bias, in, in_bias, out, out_bias;
    at::Tensor norm1, norm1_bias, norm2, norm2_bias;
    at::Tensor u, v, r;       // [H,1,d], [H,1,d], [H*d,D]
    at::Tensor distances;     // [H,d,room]: column p stands for the distance p
    at::Tensor keys, values;  // [1,H,room,d], or the slots [1,H,n,d]
    at::Tensor z;             // [1,H,n]
    at::Tensor rows;          // [room,D]: rows that entered the layer since the state was taken
  };
  void take_weights();
  void grow(int64_t room);
  void run();
  at::Tensor attend(Layer& layer, const at::Tensor& maps);

  std::shared_ptr<const models::Model> model_;
  EnginePlan plan_;
  core::State taken_;
  int64_t steps_ = 0, first_keys_ = 0, room_ = 0;
  at::Tensor token_, row_, key_, step_, logits_;  // [1] int64 each; [1,V]
  at::Tensor positions_, places_;                 // [P,D]; [room] int64
  std::vector<Layer> layers_;
  std::unique_ptr<ops::cuda::Graph> graph_;
  int64_t runs_in_place_ = 0;  // since the rooms have their size
};

}  // namespace mnemo::infer
