#pragma once

#include <cstdint>
#include <vector>

#include "distributed/group.h"
#include "layers/parameters.h"
#include "weights/safetensors.h"

namespace mnemo::train {

/// The state of an optimizer, divided over the ranks (ZeRO stage 1, Rajbhandari et al. 2020, section 5.1). All numbers
/// of the model, one parameter after another, are cut into as many equal parts as there are ranks; a rank keeps the
/// state of its part and updates it alone, then all get the new numbers. So a large table of embeddings is divided too.
/// In a step:
///   take_gradients(); the optimizer of own() steps; exchange()
class OptimiserShards {
 public:
  /// The parameters must be contiguous, on the CPU and of one type. The group must outlive this object.
  OptimiserShards(distributed::Group& group, const layers::ParameterSet& parameters);

  /// This rank's part of each parameter, flat, in the parameter's own memory; empty if it has none.
  const std::vector<layers::Parameter>& own() const { return own_; }
  /// Every part gets its part of the parameter's gradient, or none where the parameter has none.
  void take_gradients();
  /// Every rank sends the numbers of its part to all others.
  void exchange();

  /// The state of an optimizer of whole parameters, from that of an optimizer of own(): tensors of parameters (named
  /// KIND.PARAMETER) get their parameter's shape, all others stay. All ranks call it; with the values of all ranks, or
  /// as room to load into.
  weights::NamedTensors gathered(const weights::NamedTensors& state) const;
  weights::NamedTensors room(const weights::NamedTensors& state) const;
  /// The other way: copies this rank's part of `whole` into the state.
  void take(const weights::NamedTensors& whole, const weights::NamedTensors& state) const;

 private:
  /// Numbers [first, first + count) of a flat parameter.
  struct Range {
    int64_t first = 0, count = 0;
  };
  /// The part of parameter i that a rank has.
  Range range(size_t i, int64_t rank) const;
  /// The parameter that a tensor of an optimizer's state belongs to, or null.
  const layers::Parameter* parameter_of(const std::string& state) const;

  distributed::Group& group_;
  std::vector<layers::Parameter> whole_, own_;
  std::vector<int64_t> offsets_;  ///< of each parameter among all numbers
  int64_t total_ = 0;
};

}  // namespace mnemo::train
