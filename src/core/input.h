#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

namespace mnemo::core {

/// The input of a model.
enum class InputKind { tokens, images, pairs };

/// For error messages.
inline std::string_view model_of(InputKind kind) {
  constexpr std::string_view kNames[] = {"a model of texts", "a model of images", "a translation model"};
  return kNames[static_cast<size_t>(kind)];
}

/// Sequences of tokens, divided into segments.
struct TokenInput {
  int64_t vocab_size = 0;    ///< 0: a layer_stack, which takes hidden states
  int64_t segment_size = 0;  ///< tokens per segment in training; generation ends segments at this length
};

/// Images [B,C,H,W], one class per image.
struct ImageInput {
  int64_t height = 0, width = 0;  ///< the size that the model was built for; other sizes may be resampled
  int64_t channels = 0;
};

/// Pairs of a source, which an encoder reads whole, and a target, which a decoder predicts token by token.
struct PairInput {
  int64_t source_vocab_size = 0, target_vocab_size = 0;
  /// The most tokens of a source and of a target, ends included, that the model has places for; unset: any number.
  std::optional<int64_t> max_source = {}, max_target = {};
};

/// A model's input and its parameters, one alternative for each InputKind, in the same order.
using ModelInput = std::variant<TokenInput, ImageInput, PairInput>;

/// For text models. Throws InputError for any other.
const TokenInput& token_input(const ModelInput& input);

/// For translation models. Throws InputError for any other.
const PairInput& pair_input(const ModelInput& input);

inline InputKind kind_of(const ModelInput& input) { return static_cast<InputKind>(input.index()); }

}  // namespace mnemo::core
