#pragma once

#include <type_traits>
#include <utility>

#include "models/image_model.h"
#include "models/pair_model.h"
#include "models/text_model.h"

namespace mnemo::models {

/// Several functions as one, for visit().
template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;  // clang before 17 makes none for an aggregate

/// Calls `f` with the model as what it is: TextModel, ImageModel or PairModel. It has to take each of them.
template <class F>
auto visit(const Model& model, F&& f) {
  if (const auto* text = dynamic_cast<const TextModel*>(&model)) return f(*text);
  if (const auto* images = dynamic_cast<const ImageModel*>(&model)) return f(*images);
  return f(dynamic_cast<const PairModel&>(model));
}

}  // namespace mnemo::models
