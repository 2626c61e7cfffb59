#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "models/model.h"

namespace mnemo::models {

/// A trained softmax model as one of linear attention with learned features (T2R, Kasai et al. 2021, section 3): the
/// same options but for backbone.attention, every parameter of the softmax model copied, the feature maps fresh from
/// `seed`. It is meant to be trained on.
///   num_features  features of a head; unset: those of a fresh model
/// Throws InputError where the model's attention is not softmax, or where linear attention cannot stand beside its
/// memories.
std::unique_ptr<Model> to_t2r(const Model& model, std::optional<int64_t> num_features, uint64_t seed);

}  // namespace mnemo::models
