#include "models/carried_state.h"

namespace mnemo::models {

core::State carried_state(const core::State& state) {
  core::State source = state.child("source").map([](const core::Field& field, const at::Tensor& tensor) {
    return field.path.starts_with("encoded.") ? at::Tensor() : tensor;
  });
  return core::State::list(
      {{"layers", state.child("layers")}, {"open", state.child("open")}, {"source", std::move(source)}});
}

}  // namespace mnemo::models
