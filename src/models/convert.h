#pragma once

#include <cstdint>
#include <memory>
#include <optional>

namespace mnemo::models {

class Model;
struct ModelOptions;

/// Converts a trained softmax model to linear attention with learned features (T2R, Kasai et al. 2021, section 3): the
/// same options except backbone.attention, all parameters copied, and feature maps newly initialised from `seed`. The
/// result needs further training.
///   num_features  features per head; unset: the default
/// Throws InputError if the model's attention is not softmax, or if linear attention cannot be combined with its
/// memories.
std::unique_ptr<Model> to_t2r(const Model& model, std::optional<int64_t> num_features, uint64_t seed);

/// The encoder of a translation model alone (T5), with all its parameters: a model of texts that reads the mean of a
/// text's rows and has no classes yet. Throws InputError for another model, and for one whose encoder has absolute
/// positions or memories.
std::unique_ptr<Model> to_encoder(const Model& model);

}  // namespace mnemo::models
