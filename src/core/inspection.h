#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/attention.h"
#include "core/scalar.h"

namespace mnemo::core {

/// Meaning of the rows or columns of a map.
///   queries  the rows of the table        keys   its keys: [contexts; rows]
///   slots    slots of a bounded memory    cache  rows of the gated recurrent cache
enum class MapAxis { queries, keys, slots, cache };

/// A map of attention weights [B,H,R,C].
struct WeightMap {
  std::string name;  ///< "attention", or a name chosen by the mechanism
  MapAxis rows, columns;
  at::Tensor weights;
  /// [B,H,R]: the weight of rows that no longer have a column (slots still hold them); undefined = none.
  at::Tensor past = {};
  Grid image = {};  ///< the grid of the last columns, if they are rows of a reduced image
};

/// All values of one gate, of any shape.
struct GateValues {
  std::string name;
  at::Tensor values;
};

/// Weights and gates that an attention computed for one input.
struct AttentionView {
  std::vector<WeightMap> maps;
  std::vector<GateValues> gates = {};
};

/// The output of one branch of an attention: rows [B,Q,C], before the branches are combined.
struct BranchRows {
  std::string name;
  at::Tensor rows;
  /// [H]: the factor of the branch in the output, for the channels of each head; undefined: it is no such sum.
  at::Tensor weights = {};
};

/// Called before each attention of a forward pass, cross-attentions included: their table is_cross().
using AttentionObserver = std::function<void(int64_t layer, const Attention&, const AttentionInput&, const State&)>;

/// Called with the hidden states of a forward pass: "embed" (the input of the first layer), "layers.0" (its output), …,
/// "final_norm". Names are those of the modules in the backbone's scope.
using HiddenObserver = std::function<void(std::string_view name, const at::Tensor& rows)>;

}  // namespace mnemo::core
