#pragma once

#include <algorithm>
#include <string>

#include "layers/parameters.h"

namespace mnemo::layers {

/// Registers the tensors of a ParameterSet as parameters of a torch::nn::Module (any class with register_parameter), so
/// that the module's optimizer, zero_grad, to, save and load reach them: both hold the same tensors.
///   name  "attn.q.weight" becomes "attn/q/weight", since names in LibTorch cannot contain dots; `prefix` is put first
template <class Module>
void register_parameters(Module& module, const ParameterSet& set, const std::string& prefix = {}) {
  for (const Parameter& parameter : set.all()) {
    std::string name = prefix + parameter.name;
    std::replace(name.begin(), name.end(), '.', '/');
    module.register_parameter(name, parameter.tensor, parameter.tensor.requires_grad());
  }
}

}  // namespace mnemo::layers
