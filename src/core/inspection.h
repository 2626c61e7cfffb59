#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "core/attention.h"

namespace mnemo::core {

/// What the rows or the columns of a map stand for.
///   queries  the rows of the table        keys   its keys: [contexts; rows]
///   slots    slots of a bounded memory    cache  rows of the gated recurrent cache
enum class MapAxis { queries, keys, slots, cache };

/// Who got how much of what: weights [B,H,R,C].
struct WeightMap {
  std::string name;  ///< "attention"; others by their mechanism
  MapAxis rows, columns;
  at::Tensor weights;
  /// [B,H,R]: what each row got of rows that are no column any more (slots keep them); undefined = nothing.
  at::Tensor past = {};
  Grid image = {};  ///< where the last columns are the rows of an image made smaller: what they are of it
};

/// All values of one gate, of any shape.
struct GateValues {
  std::string name;
  at::Tensor values;
};

/// What an attention did with one input.
struct AttentionView {
  std::vector<WeightMap> maps;
  std::vector<GateValues> gates = {};
};

/// Numbers of a mechanism that are worth following through a training.
struct Scalar {
  std::string name;
  std::vector<double> values;
};

/// What an attention offers beside Attention if it can say where it looked. Everything is computed again by definition
/// (naive twins), for whole segments; forward() neither knows nor does anything for it.
class Inspectable {
 public:
  virtual ~Inspectable() = default;
  /// What forward(input, state) does. `history` is what history() gave for the segments before, empty at a sequence's
  /// start.
  virtual AttentionView inspect(const AttentionInput& input, const State& state, const State& history) const = 0;
  /// What a later inspect() needs to know of this segment beside the state.
  virtual State history(const AttentionInput& /*input*/, const State& /*state*/, const State& /*history*/) const {
    return {};
  }
  virtual std::vector<Scalar> scalars() const { return {}; }
};

/// Told of each attention of a forward pass before it runs.
using AttentionObserver = std::function<void(int64_t layer, const Attention&, const AttentionInput&, const State&)>;

}  // namespace mnemo::core
